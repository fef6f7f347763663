"""The shape of an OpenAI-compatible chat endpoint: what a reply looks like, whole and as a stream."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Any

from refold.demo.wire import Answer, Request

__all__ = ["Reply", "ToolCall", "completion", "error", "is_chat"]

_PIECE = 12


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call that the model wants; the arguments are JSON text, as on the wire."""

    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Reply:
    """What a model answered, and the tokens it counts for it."""

    text: str | None
    calls: tuple[ToolCall, ...]
    prompt_tokens: int
    completion_tokens: int


def is_chat(request: Request) -> bool:
    return (request.method, request.path) == ("POST", "/v1/chat/completions")


def error(status: int, kind: str, message: str) -> Answer:
    """An error as such endpoints give it."""
    return Answer.of(status, {"error": {"message": message, "type": kind, "param": None, "code": None}})


def completion(body: dict[str, Any], reply: Reply) -> Answer:
    """The reply to this request, streamed if it asked for that. Equal requests and replies give equal bytes."""
    name = hashlib.sha256(json.dumps([body["messages"], reply.text], sort_keys=True).encode()).hexdigest()[:16]
    calls = [
        {"id": f"call_{name}_{index}", "type": "function", "function": {"name": each.name, "arguments": each.arguments}}
        for index, each in enumerate(reply.calls)
    ]
    same = {"id": f"chatcmpl-{name}", "created": 0, "model": body.get("model", "")}
    finish = "tool_calls" if calls else "stop"
    if body.get("stream"):
        return _stream(body, reply, same, calls, finish)
    message: dict[str, Any] = {"role": "assistant", "content": reply.text}
    if calls:
        message["tool_calls"] = calls
    choice = {"index": 0, "message": message, "finish_reason": finish}
    return Answer.of(200, {**same, "object": "chat.completion", "choices": [choice], "usage": _usage(reply)})


def _stream(
    body: dict[str, Any], reply: Reply, same: dict[str, Any], calls: list[dict[str, Any]], finish: str
) -> Answer:
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
    deltas += [{"content": piece} for piece in _pieces(reply.text or "")]
    for index, call in enumerate(calls):
        opened = {**call, "index": index, "function": {"name": call["function"]["name"], "arguments": ""}}
        deltas.append({"tool_calls": [opened]})
        for piece in _pieces(call["function"]["arguments"]):
            deltas.append({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
    chunks: list[dict[str, Any]] = [
        {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas
    ]
    chunks.append({"choices": [{"index": 0, "delta": {}, "finish_reason": finish}]})
    if (body.get("stream_options") or {}).get("include_usage"):
        chunks.append({"choices": [], "usage": _usage(reply)})
    events = [json.dumps({**same, "object": "chat.completion.chunk", **chunk}) for chunk in chunks]
    parts = tuple(f"data: {event}\n\n".encode() for event in [*events, "[DONE]"])
    return Answer(200, parts, "text/event-stream", chunked=True)


def _pieces(text: str) -> list[str]:
    return [text[start : start + _PIECE] for start in range(0, len(text), _PIECE)]


def _usage(reply: Reply) -> dict[str, int]:
    return {
        "prompt_tokens": reply.prompt_tokens,
        "completion_tokens": reply.completion_tokens,
        "total_tokens": reply.prompt_tokens + reply.completion_tokens,
    }
