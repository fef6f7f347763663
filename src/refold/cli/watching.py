"""What a person sees while a run goes on: its events as they are committed, and what it waits for."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from refold.cli.output import Output, event_line
from refold.cli.progress import Progress
from refold.cli.shapes import duration

if TYPE_CHECKING:
    from refold.runtime.opened import Refold
    from refold.runtime.waiting import Wait

_LOOK = 0.5
"""Seconds between two looks at what the run waits for."""


@asynccontextmanager
async def watched(rf: Refold, run_id: str, after: int) -> AsyncIterator[None]:
    """Tells standard error of a run's events behind `after`, for the length of a `with` block."""
    watcher = _Watcher(rf, run_id, after)
    tasks = [asyncio.ensure_future(watcher.follow()), asyncio.ensure_future(watcher.tell_waits())]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await watcher.catch_up()


class _Watcher:
    def __init__(self, rf: Refold, run_id: str, after: int) -> None:
        from refold.events.identity import Stream

        self._rf = rf
        self._stream = Stream.run(run_id)
        self._after = after
        self._out = Output(as_json=False, stream=sys.stderr)
        self._progress = Progress()

    async def catch_up(self) -> None:
        self._progress.done()
        async for event in self._rf.scope.read(self._stream, self._after):
            self._after = event.seq
            event_line(self._out, event)
        sys.stderr.flush()

    async def follow(self) -> None:
        while True:
            head = await self._rf.scope.run_head(self._stream.run_id)
            if head.seq > self._after:
                await self.catch_up()
            await self._rf.ledger.store.changed()

    async def tell_waits(self) -> None:
        from refold.runtime.waiting import waits_of

        while True:
            await asyncio.sleep(_LOOK)
            running = self._rf.running(self._stream.run_id)
            waits = [] if running is None else waits_of(running)
            if waits:
                now = self._rf.ledger.clock.now()
                self._progress(f"waits for {', '.join(_words(each, now) for each in waits)}")


def _words(wait: Wait, now_us: int) -> str:
    """One thing that a run waits for, in words."""
    if wait.in_doubt:
        return f"a resolution of {wait.name} ({wait.call}, in doubt)"
    if wait.due_us is not None:
        return f"a timer ({duration(max(0, wait.due_us - now_us) / 1000)} left)"
    if wait.child is not None:
        return f"child {wait.name} ({wait.child})"
    return f"{_KINDS.get(wait.kind, wait.kind)} {wait.name}"


_KINDS = {"infer": "model", "env": "variable"}
