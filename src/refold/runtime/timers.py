"""Timers: every sleep and timeout of a run's code, as operations whose going off is recorded."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from refold.events.envelope import Event
from refold.runtime.operations import Fields

if TYPE_CHECKING:
    from refold.runtime.operations import Operation


class TimerAsk:
    """One timer. `due_us` is in the recorded clock, so that a resumed run waits for what is left of it."""

    kind = "timer"
    name = "timer"
    drains = False

    def __init__(self, handle: asyncio.TimerHandle, delay_us: int, due_us: int) -> None:
        self.handle = handle
        self.delay_us = delay_us
        self.due_us = due_us
        self.operation: Operation | None = None

    def difference(self, event: Event, fields: Fields) -> str | None:
        recorded = event.facts.delay_us
        return (
            None
            if recorded == self.delay_us
            else f"a timer of {_seconds(recorded)} is one of {_seconds(self.delay_us)}"
        )

    def outcome(self, event: Event, fields: Fields) -> Any:
        return None

    def request(self) -> Any:
        return {"seconds": self.delay_us / 1_000_000}


def _seconds(microseconds: int) -> str:
    return f"{microseconds / 1_000_000:g} s"
