"""Answers of OpenAI's chat API, whole or in chunks, as completions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from refold.events.catalog.inference import Finish, Usage
from refold.gateway.model_errors import AnswerIncomplete, ProviderError
from refold.gateway.models import CallDelta, Completion, Part
from refold.gateway.usage import openai_usage

_FINISH: dict[Any, Finish] = {
    "stop": "stop",
    "tool_calls": "tool_use",
    "function_call": "tool_use",
    "length": "length",
    "content_filter": "content_filter",
}
_MOST_SHOWN = 300
_TRANSIENT = frozenset({408, 409, 425, 429})


def completion_of(body: Any, status: int = 200) -> Completion:
    """A whole answer. Raises ProviderError for an error in its place, and for what is no answer."""
    if not isinstance(body, dict):
        raise ProviderError("The provider's answer is not an object.", status=status, body=str(body))
    if body.get("error"):
        raise error_in(body["error"], status)
    choices = body.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices else None
    message = choice.get("message") if isinstance(choice, dict) else None
    if not isinstance(choice, dict) or not isinstance(message, dict):
        raise ProviderError("The provider's answer has no message.", status=status, body=str(body), retryable=True)
    usage, raw = _usage(body)
    return Completion(
        message=message,
        finish=_finish(choice),
        usage=usage,
        raw_usage=raw,
        response_id=_text(body.get("id")),
        model=_text(body.get("model")),
    )


class Assembling:
    """An answer that comes in chunks. Only the first choice is kept: `n` above 1 is not asked for."""

    def __init__(self) -> None:
        self._texts: dict[str, list[str]] = {}
        self._others: dict[str, Any] = {}
        self._calls: dict[int, dict[str, Any]] = {}
        self._finish: dict[str, Any] | None = None
        self._usage: Usage | None = None
        self._raw_usage: Any = None
        self._said: dict[str, str] = {}

    def add(self, chunk: Any, status: int = 200) -> Iterator[Part]:
        """What a chunk says to code. Raises ProviderError for an error in the middle of the stream."""
        if not isinstance(chunk, dict):
            raise self.broken(ProviderError("A chunk of the stream is no object.", status=status, retryable=True))
        if chunk.get("error"):
            raise self.broken(error_in(chunk["error"], status))
        for name in ("id", "model"):
            if isinstance(chunk.get(name), str) and chunk[name]:
                self._said.setdefault(name, chunk[name])
        usage, raw = _usage(chunk)
        if usage is not None:
            self._usage, self._raw_usage = usage, raw
        choices = chunk.get("choices")
        for choice in choices if isinstance(choices, list) else ():
            if isinstance(choice, dict) and choice.get("index", 0) == 0:
                if choice.get("finish_reason"):
                    self._finish = choice
                delta = choice.get("delta")
                if isinstance(delta, dict):
                    yield from self._delta(delta)

    def end(self, status: int) -> Completion:
        """The whole answer, after the end of the body.

        It is whole when its choice has a finish reason. `[DONE]` is not asked for: the `openai` package ends its stream
        silently without it, some servers never send it, and after the reason only the usage chunk can be missing - then
        the cost is estimated. Without a reason nobody knows how much is missing. Raises AnswerIncomplete.
        """
        if self._finish is None:
            raise self.broken(
                AnswerIncomplete("The stream ended without saying that the answer was whole.", status=status)
            )
        return Completion(
            message=self._message(),
            finish=_finish(self._finish),
            usage=self._usage,
            raw_usage=self._raw_usage,
            response_id=self._said.get("id"),
            model=self._said.get("model"),
        )

    def broken(self, error: Any) -> Any:
        """The error with what the provider had counted by then."""
        error.usage, error.raw_usage = self._usage, self._raw_usage
        return error

    def _message(self) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": None, **self._others}
        message |= {name: "".join(texts) for name, texts in self._texts.items()}
        if self._calls:
            message["tool_calls"] = [_joined(self._calls[place]) for place in sorted(self._calls)]
        return message

    def _delta(self, delta: dict[str, Any]) -> Iterator[Part]:
        for name, value in delta.items():
            if value is None or name == "tool_calls":
                continue
            if name == "role" or not isinstance(value, str):
                old = self._others.get(name)
                both_lists = isinstance(old, list) and isinstance(value, list)
                self._others[name] = [*old, *value] if both_lists else value  # type: ignore[misc]
            else:
                self._texts.setdefault(name, []).append(value)
        text = delta.get("content")
        calls = delta.get("tool_calls")
        deltas = tuple(self._call(each) for each in calls if isinstance(each, dict)) if isinstance(calls, list) else ()
        if deltas or (isinstance(text, str) and text):
            yield Part(text if isinstance(text, str) else "", deltas)

    def _call(self, raw: dict[str, Any]) -> CallDelta:
        place = raw.get("index")
        if type(place) is not int:
            # Some servers number no calls: one with an id begins a call, one without goes on with the last.
            place = len(self._calls) if raw.get("id") or not self._calls else max(self._calls)
        call = self._calls.setdefault(place, {"id": "", "type": "function", "function": {}, "pieces": []})
        function = raw.get("function")
        function = function if isinstance(function, dict) else {}
        id_, name = _text(raw.get("id")), _text(function.get("name"))
        arguments = _text(function.get("arguments")) or ""
        call["id"] = call["id"] or id_ or ""
        call["type"] = _text(raw.get("type")) or call["type"]
        call["function"]["name"] = call["function"].get("name", "") + (name or "")
        call["pieces"].append(arguments)
        return CallDelta(place, id_, name, arguments)


def error_in(error: Any, status: int) -> ProviderError:
    """The failure that stands where an answer should: in a body, or in the middle of a stream."""
    said = error.get("message") if isinstance(error, dict) else error
    code = error.get("code") if isinstance(error, dict) else None
    told = said[:_MOST_SHOWN] if isinstance(said, str) and said else "no message"
    final = type(code) is int and 400 <= code < 500 and code not in _TRANSIENT
    return ProviderError(f"The provider reports an error: {told}", status=status, body=str(error), retryable=not final)


def refused(status: int, said: str, body: str, retry_after: float | None) -> ProviderError:
    """The failure that an HTTP status says."""
    told = f": {said[:_MOST_SHOWN]}" if said else ""
    return ProviderError(
        f"The provider answered {status}{told}",
        status=status,
        body=body,
        retryable=status in _TRANSIENT or status >= 500,
        retry_after=retry_after,
    )


def _joined(call: dict[str, Any]) -> dict[str, Any]:
    function = {"name": call["function"].get("name", ""), "arguments": "".join(call["pieces"])}
    return {"id": call["id"], "type": call["type"], "function": function}


def _usage(body: dict[str, Any]) -> tuple[Usage | None, Any]:
    raw = body.get("usage")
    return (openai_usage(raw), raw) if isinstance(raw, dict) else (None, None)


def _finish(choice: dict[str, Any]) -> Finish:
    reason = choice.get("finish_reason")
    return _FINISH.get(reason, "other") if isinstance(reason, str) else "other"


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None
