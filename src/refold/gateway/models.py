"""The port to models: what is asked, what comes back, and what a provider must do.

Messages are those of OpenAI's chat API, as dicts; an adapter for another API translates at its own edge.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any, Protocol

import msgspec

from refold.events.catalog.inference import Finish, Usage
from refold.events.identity import keyed_digest
from refold.events.values import NotRecordable, canonical, encode
from refold.gateway.model_errors import BadRequest


class ModelRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What a model is asked: exactly what is recorded, compared and sent. Made by `request_for`."""

    model: str
    messages: list[dict[str, Any]]
    settings: dict[str, Any] = {}
    tools: list[dict[str, Any]] = []


class ModelCall(msgspec.Struct, frozen=True):
    """A tool call that a model asks for. `arguments` is the decoded JSON; where the model wrote none, its text as it
    stands, and `invalid` says why.
    """

    id: str
    name: str
    arguments: Any
    invalid: str | None = None


class Completion(msgspec.Struct, frozen=True, kw_only=True):
    """A model's answer. `message` is as the provider gave it and can be put behind the messages of the next request.

    `usage` is normalised, `raw_usage` the provider's own; `model` is how the provider names what answered.
    """

    message: dict[str, Any]
    finish: Finish = "stop"
    usage: Usage | None = None
    raw_usage: Any = None
    response_id: str | None = None
    model: str | None = None

    @property
    def text(self) -> str:
        """The answer's text; empty when there is none."""
        return message_text(self.message)

    @property
    def refusal(self) -> str | None:
        """What the model says instead of an answer, when it refuses."""
        refusal = self.message.get("refusal")
        return refusal if isinstance(refusal, str) else None

    @property
    def calls(self) -> list[ModelCall]:
        """The tool calls that the model asks for, in its order."""
        calls = self.message.get("tool_calls")
        found = [_call(each) for each in calls] if isinstance(calls, list) else []
        return [call for call in found if call is not None]


class CallDelta(msgspec.Struct, frozen=True, omit_defaults=True):
    """A piece of a tool call: `place` is the call's place in the answer, `arguments` some more of its JSON."""

    place: int
    id: str | None = None
    name: str | None = None
    arguments: str = ""


class Part(msgspec.Struct, frozen=True, omit_defaults=True):
    """A piece of an answer under way. `index` counts from 0 within `attempt`.

    A part of a later attempt says that those of the earlier ones were in vain: the answer begins anew.
    """

    text: str = ""
    calls: tuple[CallDelta, ...] = ()
    index: int = 0
    attempt: int = 1


class Provider(Protocol):
    """Somebody who answers requests. Every failure is an `InferenceFailed`; `timeout` is seconds for the whole answer.

    `name` and `model` are the operator's words and stand in facts; `settings` go with every request.
    """

    @property
    def name(self) -> str: ...

    @property
    def model(self) -> str: ...

    @property
    def settings(self) -> Mapping[str, Any]: ...

    async def complete(self, request: ModelRequest, *, timeout: float) -> Completion:
        """The whole answer."""
        ...

    def stream(self, request: ModelRequest, *, timeout: float) -> AsyncGenerator[Part | Completion, None]:
        """The answer piece by piece, and then, as the one last item, whole."""
        ...

    async def aclose(self) -> None:
        """Lets connections go."""
        ...


def request_for(
    provider: Provider,
    messages: Sequence[Mapping[str, Any]],
    settings: Mapping[str, Any] | None = None,
    tools: Sequence[Mapping[str, Any]] = (),
) -> ModelRequest:
    """The request to a provider as it will be recorded and sent: a copy, which later changes leave alone.

    `settings` go over those of the provider. Raises BadRequest for what is not JSON, or cannot be recorded.
    """
    return ModelRequest(
        model=provider.model,
        messages=[_plain(message, f"message {place}") for place, message in enumerate(messages, 1)],
        settings=_plain({**provider.settings, **(settings or {})}, "the settings"),
        tools=[_plain(tool, f"tool {place}") for place, tool in enumerate(tools, 1)],
    )


def fingerprint(secret: bytes, request: ModelRequest) -> str:
    """What stands for a request in facts: equal for equal requests of one tenant, 32 hex digits."""
    everything = encode([request.model, request.messages, request.settings, request.tools])
    return keyed_digest(secret, "inference", canonical(everything)).hex()


def message_text(message: Mapping[str, Any]) -> str:
    """The text of a message: its content, or the texts among its parts."""
    content = message.get("content")
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    texts = (part.get("text") for part in content if isinstance(part, dict))
    return "\n".join(text for text in texts if isinstance(text, str))


def shown(message: Mapping[str, Any]) -> str:
    """A message for people: its text, and a line for each tool that it asks for."""
    text = message_text(message) or message.get("refusal")
    calls = message.get("tool_calls")
    lines = [text] if isinstance(text, str) and text else []
    for each in calls if isinstance(calls, list) else ():
        call = _call(each)
        if call is not None:
            lines.append(f"→ {call.name}")
    return "\n".join(lines)


def _plain(value: Any, what: str) -> Any:
    try:
        copy = json.loads(json.dumps(value, allow_nan=False))
        encode(copy)
    except (TypeError, ValueError, RecursionError, NotRecordable) as error:
        why = f"{type(error).__name__}: {error}"
        message = f"The request cannot be sent: {what} cannot be JSON or not be kept ({why})."
        raise BadRequest(message, sent=False, what=what) from error
    return copy


def _call(raw: Any) -> ModelCall | None:
    if not isinstance(raw, dict):
        return None
    function = raw.get("function")
    if not isinstance(function, dict):
        # A custom tool: its input is text and is not meant to be JSON.
        function = raw.get("custom")
        if not isinstance(function, dict):
            return None
        return ModelCall(_str(raw.get("id")), _str(function.get("name")), function.get("input"))
    arguments, invalid = _arguments(function.get("arguments"))
    return ModelCall(_str(raw.get("id")), _str(function.get("name")), arguments, invalid)


def _arguments(text: Any) -> tuple[Any, str | None]:
    if not isinstance(text, str):
        return text, "arguments are text in this API" if text is not None else None
    try:
        return json.loads(text, parse_constant=_no_constant), None
    except (ValueError, RecursionError) as error:
        return text, f"not JSON: {error}"


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


def _str(value: Any) -> str:
    return value if isinstance(value, str) else ""
