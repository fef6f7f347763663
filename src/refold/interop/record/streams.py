"""A streamed answer, put together: server-sent events of chat completions, Responses and Messages."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from refold.gateway.providers.sse import EventStream
from refold.gateway.usage import usage_of
from refold.interop.record.answers import (
    Answer,
    chat_finish,
    dict_of,
    error_text,
    first,
    list_of,
    messages_finish,
    of_response,
    text_of,
)

_DONE = "[DONE]"


def read_stream(body: bytes) -> Answer:
    """What the events of a stream add up to, as far as it was read."""
    stream: _Stream = _Stream()
    for data in _events(body):
        if data == _DONE:
            stream.answer.ended = True
            continue
        try:
            event = json.loads(data)
        except (ValueError, RecursionError):
            continue  # The last one was cut, or it is not one of a model's.
        if isinstance(event, dict):
            if type(stream) is _Stream and (kind := _kind(event)) is not None:
                stream = kind()
            stream.add(event)
    stream.finish()
    return stream.answer


def _events(body: bytes) -> Iterator[str]:
    with suppress(UnicodeDecodeError):
        yield from EventStream().feed(body)


def _kind(event: dict[str, Any]) -> type[_Stream] | None:
    name = text_of(event.get("type"))
    if isinstance(event.get("choices"), list):
        return _ChatStream
    if name == "message_start":
        return _MessagesStream
    return _ResponseStream if name.startswith("response.") else None


class _Stream:
    """A stream of whatever kind: only its errors are understood."""

    def __init__(self) -> None:
        self.answer = Answer()

    def add(self, event: dict[str, Any]) -> None:
        if event.get("error") or event.get("type") == "error":
            self.answer.error = error_text(event)

    def finish(self) -> None:
        """Makes the message of what was added."""


class _ChatStream(_Stream):
    """The first choice's deltas; tool calls are merged by their index."""

    def __init__(self) -> None:
        super().__init__()
        self.answer.ended = False
        self._texts: list[str] = []
        self._refusal: list[str] = []
        self._calls: dict[int, dict[str, Any]] = {}
        self._completion = False

    def add(self, event: dict[str, Any]) -> None:
        super().add(event)
        answer = self.answer
        answer.response_id = answer.response_id or text_of(event.get("id")) or None
        if isinstance(event.get("usage"), dict):
            answer.raw_usage, answer.usage = event["usage"], usage_of(event["usage"])
        choice = dict_of(first(event.get("choices")))
        if choice.get("index", 0) != 0:
            return
        if choice.get("finish_reason"):
            answer.finish, answer.ended = chat_finish(choice["finish_reason"]), True
        delta = dict_of(choice.get("delta"))
        self._completion = self._completion or "text" in choice
        self._texts.append(text_of(choice.get("text")) + text_of(delta.get("content")))
        self._refusal.append(text_of(delta.get("refusal")))
        for call in map(dict_of, list_of(delta.get("tool_calls"))):
            self._merge(call)

    def _merge(self, call: dict[str, Any]) -> None:
        index = call.get("index")
        place = index if type(index) is int else len(self._calls)
        known = self._calls.setdefault(place, {"id": "", "type": "function", "function": {"name": "", "arguments": ""}})
        known["id"] = known["id"] or text_of(call.get("id"))
        function, more = known["function"], dict_of(call.get("function"))
        function["name"] = function["name"] or text_of(more.get("name"))
        # Joined at the end: a long argument comes in thousands of pieces.
        function.setdefault("pieces", []).append(text_of(more.get("arguments")))

    def finish(self) -> None:
        answer = self.answer
        answer.text = "".join(self._texts) or "".join(self._refusal)
        if self._completion:
            answer.message = answer.text
            return
        message: dict[str, Any] = {"role": "assistant", "content": "".join(self._texts) or None}
        if refusal := "".join(self._refusal):
            message["refusal"] = refusal
        for call in self._calls.values():
            call["function"]["arguments"] = "".join(call["function"].pop("pieces", []))
        if self._calls:
            message["tool_calls"] = [self._calls[place] for place in sorted(self._calls)]
        answer.message = message


class _MessagesStream(_Stream):
    """Content blocks and their deltas. Usage comes at the start and again, higher, at the end: it is counted once."""

    _JOINED = ("text", "thinking", "signature", "partial_json")

    def __init__(self) -> None:
        super().__init__()
        self.answer.ended = False
        self._blocks: dict[Any, tuple[dict[str, Any], dict[str, list[str]]]] = {}
        self._usage: dict[str, Any] = {}
        self._role: Any = "assistant"

    def add(self, event: dict[str, Any]) -> None:
        super().add(event)
        match event.get("type"):
            case "message_start":
                message = dict_of(event.get("message"))
                self.answer.response_id = text_of(message.get("id")) or None
                self._role = message.get("role", "assistant")
                self._count(message)
            case "content_block_start":
                self._blocks[_place(event)] = (dict(dict_of(event.get("content_block"))), {})
            case "content_block_delta":
                _, pieces = self._blocks.setdefault(_place(event), ({}, {}))
                for name, piece in dict_of(event.get("delta")).items():
                    if name in self._JOINED and isinstance(piece, str):
                        pieces.setdefault(name, []).append(piece)
            case "message_delta":
                self._count(event)
                self.answer.finish = messages_finish(dict_of(event.get("delta")).get("stop_reason"))
            case "message_stop":
                self.answer.ended = True

    def _count(self, said: dict[str, Any]) -> None:
        self._usage.update((name, value) for name, value in dict_of(said.get("usage")).items() if value is not None)

    def finish(self) -> None:
        blocks = [_joined(block, pieces) for block, pieces in self._blocks.values()]
        self.answer.message = {"role": self._role, "content": blocks}
        self.answer.text = "".join(text_of(block.get("text")) for block in blocks)
        if self._usage:
            self.answer.raw_usage, self.answer.usage = self._usage, usage_of(self._usage)


def _place(event: dict[str, Any]) -> int:
    index = event.get("index")
    return index if type(index) is int else -1


def _joined(block: dict[str, Any], pieces: dict[str, list[str]]) -> dict[str, Any]:
    for name, texts in pieces.items():
        text = "".join(texts)
        if name != "partial_json":
            block[name] = text_of(block.get(name)) + text
            continue
        try:
            block["input"] = json.loads(text)
        except (ValueError, RecursionError):
            block["input"] = text  # The stream ended inside it.
    return block


class _ResponseStream(_Stream):
    """Its last event brings the whole response; until then there is the text so far."""

    def __init__(self) -> None:
        super().__init__()
        self.answer.ended = False
        self._texts: list[str] = []

    def add(self, event: dict[str, Any]) -> None:
        super().add(event)
        name = text_of(event.get("type"))
        if name == "response.output_text.delta":
            self._texts.append(text_of(event.get("delta")))
        elif name in ("response.completed", "response.incomplete", "response.failed"):
            self.answer = of_response(dict_of(event.get("response")))
            self.answer.ended = True

    def finish(self) -> None:
        if not self.answer.ended:
            self.answer.text = "".join(self._texts)
            self.answer.message = self.answer.text or None
