"""An answer under way: what has come so far, and the parts that are recorded of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from refold.gateway.models import CallDelta, Part, message_text

PART_CHARACTERS = 256
"""From this size on a part is given out at once."""
LINGER = 0.05
"""Seconds that a smaller one waits for more: a model writes some twenty words a second, and each part is an event."""


class Gathered:
    """Pieces of one answer put together. Adding costs what the piece does, however long the answer has become."""

    def __init__(self) -> None:
        self._texts: list[str] = []
        self._calls: dict[int, _Call] = {}
        self.size = 0

    def add(self, part: Part) -> None:
        if part.text:
            self._texts.append(part.text)
            self.size += len(part.text)
        for delta in part.calls:
            call = self._calls.setdefault(delta.place, _Call())
            call.id = call.id or delta.id
            call.name += delta.name or ""
            call.arguments.append(delta.arguments)
            self.size += len(delta.arguments) + len(delta.name or "")

    @property
    def text(self) -> str:
        return "".join(self._texts)

    def message(self) -> dict[str, Any] | None:
        """The message as far as it has come; None when nothing has."""
        if not self._texts and not self._calls:
            return None
        message: dict[str, Any] = {"role": "assistant", "content": self.text or None}
        if self._calls:
            message["tool_calls"] = [self._calls[place].message() for place in sorted(self._calls)]
        return message

    def written(self) -> str:
        """All that the model has written, calls included."""
        return written(self.message() or {})

    def part(self, index: int, attempt: int) -> Part:
        """The pieces as one part."""
        calls = tuple(
            CallDelta(place, call.id, call.name or None, "".join(call.arguments))
            for place, call in sorted(self._calls.items())
        )
        return Part(self.text, calls, index, attempt)


class _Call:
    def __init__(self) -> None:
        self.id: str | None = None
        self.name = ""
        self.arguments: list[str] = []

    def message(self) -> dict[str, Any]:
        function = {"name": self.name, "arguments": "".join(self.arguments)}
        return {"id": self.id or "", "type": "function", "function": function}


class Coalescer:
    """Makes parts worth an event out of a model's deltas, and hands them out in order."""

    def __init__(self, give: Callable[[Part], None], attempt: int) -> None:
        self._give = give
        self._attempt = attempt
        self._waiting = Gathered()
        self._index = 0
        self._timer: asyncio.TimerHandle | None = None

    def add(self, part: Part) -> None:
        self._waiting.add(part)
        if self._waiting.size >= PART_CHARACTERS:
            self.flush()
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(LINGER, self.flush)

    def flush(self) -> None:
        """Gives out what waits."""
        self.stop()
        waiting, self._waiting = self._waiting, Gathered()
        if waiting.size:
            part = waiting.part(self._index, self._attempt)
            self._index += 1
            self._give(part)

    def stop(self) -> None:
        """Gives out nothing by itself any more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def written(message: dict[str, Any]) -> str:
    """All that a model wrote in a message, calls included."""
    calls = message.get("tool_calls")
    functions = [each.get("function") for each in calls if isinstance(each, dict)] if isinstance(calls, list) else []
    texts = [each.get(name) for each in functions if isinstance(each, dict) for name in ("name", "arguments")]
    return message_text(message) + "".join(text for text in texts if isinstance(text, str))
