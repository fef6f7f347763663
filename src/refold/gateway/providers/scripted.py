"""A model that says what it is told to: for tests and demonstrations."""

from __future__ import annotations

import inspect
import json
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from typing import Any

from refold.gateway.model_errors import ScriptExhausted
from refold.gateway.models import CallDelta, Completion, ModelCall, ModelRequest, Part
from refold.gateway.streaming import Gathered

Answer = str | Completion | ModelCall | Exception | Sequence[ModelCall] | Sequence[Part | Exception]
"""What a script may say: a text, a completion, tool calls, an error to raise, or the parts of a stream, of which the
last may be an error.
"""


class Scripted:
    """Answers in order, or what a function of the request says; the function may be async.

    A process that goes on with a run starts a list of answers from its beginning. A function of the request has no such
    memory: it is the form for whatever must survive a crash. `asked` holds the requests, oldest first.
    """

    def __init__(
        self,
        answers: Iterable[Answer] | Callable[[ModelRequest], Any],
        *,
        name: str = "scripted",
        model: str = "scripted",
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        self.name = name
        self.model = model
        self.settings = dict(settings or {})
        self.asked: list[ModelRequest] = []
        self._say: Callable[[ModelRequest], Any] = answers if callable(answers) else _in_order(answers)

    async def complete(self, request: ModelRequest, *, timeout: float) -> Completion:
        said = await self._answer(request)
        if isinstance(said, Completion):
            return said
        gathered = Gathered()
        for item in said:
            if isinstance(item, Exception):
                raise item
            gathered.add(item)
        return _completion(gathered)

    async def stream(self, request: ModelRequest, *, timeout: float) -> AsyncGenerator[Part | Completion, None]:
        said = await self._answer(request)
        if isinstance(said, Completion):
            for piece in _pieces(said):
                yield piece
            yield said
            return
        gathered = Gathered()
        for item in said:
            if isinstance(item, Exception):
                raise item
            gathered.add(item)
            yield item
        yield _completion(gathered)

    async def aclose(self) -> None:
        """There is nothing to let go."""

    async def _answer(self, request: ModelRequest) -> Completion | Sequence[Part | Exception]:
        self.asked.append(request)
        said: Any = self._say(request)
        if inspect.isawaitable(said):
            said = await said
        if isinstance(said, Exception):
            raise said
        if isinstance(said, str):
            return Completion(message={"role": "assistant", "content": said})
        if isinstance(said, ModelCall):
            said = [said]
        if isinstance(said, Sequence) and said and all(isinstance(each, ModelCall) for each in said):
            message = {"role": "assistant", "content": None, "tool_calls": [_raw(call) for call in said]}
            return Completion(message=message, finish="tool_use")
        if not isinstance(said, Completion | Sequence):
            raise TypeError(f"a script cannot say {said!r}")
        return said


def _in_order(answers: Iterable[Answer]) -> Callable[[ModelRequest], Answer]:
    left = iter(answers)
    said = 0

    def say(_request: ModelRequest) -> Answer:
        nonlocal said
        for answer in left:
            said += 1
            return answer
        raise ScriptExhausted(f"The script has {said} answers, and the model was asked once more.", answers=said)

    return say


def _pieces(answer: Completion) -> Iterable[Part]:
    for word in answer.text.splitlines(keepends=True):
        yield Part(word)
    for place, call in enumerate(answer.calls):
        text = call.arguments if call.invalid else json.dumps(call.arguments)
        yield Part(calls=(CallDelta(place, call.id, call.name, text),))


def _completion(gathered: Gathered) -> Completion:
    message = gathered.message() or {"role": "assistant", "content": ""}
    return Completion(message=message, finish="tool_use" if "tool_calls" in message else "stop")


def _raw(call: ModelCall) -> dict[str, Any]:
    arguments = call.arguments if call.invalid else json.dumps(call.arguments)
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": arguments}}
