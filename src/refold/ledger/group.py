"""Group commit: writers that are ready in the same turn of the event loop share one commit.

`barrier` is the output-commit rule: it returns when everything that its writer appended is durable, and nothing that
depends on an event may leave the process before. Whatever nobody waits for is flushed in the background within
`FLUSH_AFTER` seconds.
"""

from __future__ import annotations

import asyncio
import os
from typing import Protocol

from refold.ledger.port import Lost, Outcome, Store, StreamBatch

FLUSH_AFTER = 0.02


class Batched(Protocol):
    """What group commit needs of a writer."""

    def take_batch(self) -> StreamBatch | None: ...

    def settle(self, outcome: Outcome) -> None: ...

    def is_pending(self) -> bool: ...

    def check(self) -> None: ...


class GroupCommit:
    """One open batch a process and store."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._begin()
        self.commits = 0
        """Commits made so far; tests count these instead of measuring time."""

    def _begin(self) -> None:
        self._pid = os.getpid()
        self._ready: dict[int, Batched] = {}
        self._commit: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None

    def add(self, writer: Batched) -> None:
        """Notes that a writer has something to commit."""
        if self._pid != os.getpid():
            self._begin()  # What a forked parent has open is the parent's to commit.
        self._ready[id(writer)] = writer
        if self._timer is None and self._commit is None:
            try:
                self._timer = asyncio.get_running_loop().call_later(FLUSH_AFTER, self._background)
            except RuntimeError:
                return  # No loop is running: nothing flushes by itself; the barrier will.

    async def barrier(self, writer: Batched) -> None:
        """Returns when all that this writer appended is durable. Raises what its commit was lost to."""
        writer.check()
        while writer.is_pending():
            # Shielded: a waiter that is cancelled must not cancel the commit of its neighbours.
            await asyncio.shield(self._lead())
        writer.check()

    async def flush(self) -> None:
        """Commits whatever is open, whoever appended it; each writer learns of its own loss."""
        while self._pid == os.getpid() and self._ready:
            await asyncio.shield(self._lead())

    def _background(self) -> None:
        self._timer = None
        if self._ready:
            self._lead()

    def _lead(self) -> asyncio.Task[None]:
        if self._commit is None:
            self._commit = asyncio.ensure_future(self._run())
        return self._commit

    async def _run(self) -> None:
        try:
            await asyncio.sleep(0)  # Everything that is ready in this turn joins.
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            writers = list(self._ready.values())
            self._ready.clear()
            taken = [(writer, batch) for writer in writers if (batch := writer.take_batch()) is not None]
            if not taken:
                return
            try:
                outcomes = await self._store.commit([batch for _, batch in taken])
            except Exception as error:
                # A writer whose batch is neither committed nor lost would wait for ever.
                for writer, _ in taken:
                    writer.settle(Lost(error))
                raise
            self.commits += 1
            for (writer, _), outcome in zip(taken, outcomes, strict=True):
                writer.settle(outcome)
        finally:
            self._commit = None
            if self._ready and self._timer is None:
                self._timer = asyncio.get_running_loop().call_later(FLUSH_AFTER, self._background)
