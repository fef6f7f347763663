"""What a provider's answer says: its message, how it finished, what it used. For chat completions, Responses and
Messages, whole or as a stream.

Read for tables and evidence only; a replay answers with the bytes. Whatever does not look as expected is left out, and
nothing is raised: an answer comes from outside.
"""

from __future__ import annotations

import json
from typing import Any, Literal

import msgspec

from refold.events.catalog.inference import Finish, Usage
from refold.gateway.usage import usage_of

Operation = Literal["chat", "completion", "embedding", "rerank", "other"]

_CHAT_FINISH: dict[str, Finish] = {
    "stop": "stop",
    "length": "length",
    "tool_calls": "tool_use",
    "function_call": "tool_use",
    "content_filter": "content_filter",
}
_MESSAGES_FINISH: dict[str, Finish] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
    "tool_use": "tool_use",
    "refusal": "content_filter",
}


class Answer(msgspec.Struct):
    """What was understood. `ended`: the provider said that it was done; None where its answers do not say so."""

    message: Any = None
    text: str = ""
    finish: Finish = "other"
    usage: Usage | None = None
    raw_usage: Any = None
    response_id: str | None = None
    error: str | None = None
    ended: bool | None = None
    embeddings: int = 0


def operation_of(path: str) -> Operation:
    """What a request asks for, by the end of its path."""
    end = path.rstrip("/").rpartition("/")[2]
    if path.rstrip("/").endswith("/chat/completions") or end in ("messages", "responses", "chat"):
        return "chat"
    if end in ("completions", "embeddings", "rerank"):
        return {"completions": "completion", "embeddings": "embedding"}.get(end, "rerank")  # type: ignore[return-value]
    return "other"


def read_answer(body: bytes) -> Answer:
    """What a JSON body says."""
    try:
        data = json.loads(body)
    except (ValueError, RecursionError):
        return Answer()
    if not isinstance(data, dict):
        return Answer()
    answer = _read(data)
    answer.response_id = text_of(data.get("id")) or None
    if answer.usage is None and isinstance(data.get("usage"), dict):
        answer.raw_usage, answer.usage = data["usage"], usage_of(data["usage"])
    if answer.error is None and data.get("error"):
        answer.error = error_text(data)
    return answer


def _read(data: dict[str, Any]) -> Answer:
    if isinstance(data.get("choices"), list):
        return _of_chat(data)
    if data.get("object") == "response":
        return of_response(data)
    if data.get("type") == "message":
        return of_message(data)
    if isinstance(data.get("data"), list) and data.get("object") == "list":
        return Answer(embeddings=len(data["data"]))
    return Answer()


def _of_chat(data: dict[str, Any]) -> Answer:
    choice = dict_of(first(data["choices"]))
    message = choice.get("message")
    if message is None and "text" in choice:  # Completions, before they were chats.
        return Answer(choice["text"], text_of(choice["text"]), chat_finish(choice.get("finish_reason")))
    shown = text_of(dict_of(message).get("content")) or text_of(dict_of(message).get("refusal"))
    return Answer(message, shown, chat_finish(choice.get("finish_reason")))


def of_response(data: dict[str, Any]) -> Answer:
    """A whole response object of the Responses API, or the one that ends its stream."""
    output = [dict_of(item) for item in list_of(data.get("output"))]
    pieces = [text_of(dict_of(piece).get("text")) for item in output for piece in list_of(item.get("content"))]
    status, finish = data.get("status"), "stop"
    if status == "incomplete":
        why = dict_of(data.get("incomplete_details")).get("reason")
        finish = {"max_output_tokens": "length", "content_filter": "content_filter"}.get(text_of(why), "other")
    elif status != "completed":
        finish = "other"
    elif any(text_of(item.get("type")).endswith("_call") and "call_id" in item for item in output):
        finish = "tool_use"
    error = error_text(data) if data.get("error") else None
    if status == "failed" and error is None:
        error = "the response failed"
    raw = data.get("usage") if isinstance(data.get("usage"), dict) else None
    return Answer(
        data.get("output"),
        "".join(pieces),
        finish,  # type: ignore[arg-type]
        None if raw is None else usage_of(raw),
        raw,
        text_of(data.get("id")) or None,
        error,
    )


def of_message(data: dict[str, Any]) -> Answer:
    """A message of the Messages API."""
    blocks = list_of(data.get("content"))
    shown = "".join(text_of(dict_of(block).get("text")) for block in blocks)
    message = {"role": data.get("role", "assistant"), "content": blocks}
    return Answer(message, shown, messages_finish(data.get("stop_reason")))


def chat_finish(reason: Any) -> Finish:
    return _CHAT_FINISH.get(text_of(reason), "other")


def messages_finish(reason: Any) -> Finish:
    return _MESSAGES_FINISH.get(text_of(reason), "other")


def error_text(data: dict[str, Any]) -> str:
    """What a body or an event of a stream says went wrong."""
    error = data.get("error")
    if isinstance(error, dict):
        return text_of(error.get("message")) or text_of(error.get("type")) or "an error without a message"
    return text_of(error) or text_of(data.get("message")) or "an error without a message"


def text_of(value: Any) -> str:
    return value if isinstance(value, str) else ""


def dict_of(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def list_of(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def first(value: Any) -> Any:
    return value[0] if isinstance(value, list) and value else None
