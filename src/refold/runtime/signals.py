"""Signals: values that come from outside, in the order in which the ledger took them."""

from __future__ import annotations

from collections import deque
from typing import Any

import msgspec

from refold.events.content import Encoded
from refold.events.envelope import Event
from refold.runtime.operations import Fields
from refold.runtime.steps import Codec, input_difference


class SignalAsk:
    """`await run.signal(name, type)`."""

    kind = "signal"
    drains = False

    def __init__(self, waits_for: str, hint: Any, codec: Codec) -> None:
        self.waits_for = waits_for
        self.name = f"signal:{waits_for}"
        self._hint = hint
        self._codec = codec

    def difference(self, event: Event, fields: Fields) -> str | None:
        return None

    def outcome(self, event: Event, fields: Fields) -> Any:
        return self._codec.decode(fields["value"], self._hint)

    def request(self) -> Any:
        return {"signal": self.waits_for}


class Mailbox:
    """Signals that came before anybody waited for them, by name and in order."""

    def __init__(self) -> None:
        self._waiting: dict[str, deque[tuple[Event, Fields]]] = {}

    def put(self, event: Event, fields: Fields) -> None:
        self._waiting.setdefault(event.facts.signal, deque()).append((event, fields))

    def take(self, name: str) -> tuple[Event, Fields] | None:
        """The oldest of a name."""
        waiting = self._waiting.get(name)
        return waiting.popleft() if waiting else None

    def seqs(self) -> tuple[int, ...]:
        """The seqs of all of them, in order."""
        return tuple(sorted(event.seq for waiting in self._waiting.values() for event, _ in waiting))


class CheckpointAsk:
    """`await run.checkpoint(state)`: it never returns; the workflow's function begins again with the state."""

    kind = "checkpoint"
    name = "checkpoint"
    drains = False

    def __init__(self, state: Any, hint: Any, codec: Codec) -> None:
        self._codec = codec
        self._hint = hint
        self.state = Encoded(codec.encode(state, hint))

    def difference(self, event: Event, fields: Fields) -> str | None:
        return input_difference(fields.get("state"), self.state.data)

    def outcome(self, event: Event, fields: Fields) -> Any:
        if event.type == "operation.refused":
            raise self._codec.error(fields["error"])
        return self._codec.decode(fields["state"], self._hint)

    def request(self) -> Any:
        return {"state": msgspec.json.decode(self.state.data)}
