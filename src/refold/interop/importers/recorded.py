"""What the ledger already has of a source: the marks of its records, in order, and what its events add up to."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from refold.events.catalog import SourceRecord
from refold.events.envelope import Event
from refold.events.identity import Stream
from refold.interop.importers.report import Tally
from refold.ledger.ledger import ScopedLedger

_PAGE = 1000


class Mark(NamedTuple):
    """A record that is in the ledger whole: its mark, and the type of the event that carries it."""

    record: SourceRecord
    type: str


class Recorded:
    """Walks a run's stream once, in pages, without opening content. `tally` counts what it has passed."""

    def __init__(self, scope: ScopedLedger, stream: Stream) -> None:
        self._scope = scope
        self._stream = stream
        self._page: Iterator[Event] = iter(())
        self.seq = 0
        self.tally = Tally()

    async def next(self) -> Mark | None:
        """The next record's mark; None when the stream has no more of them now. May be asked again later."""
        while True:
            for event in self._page:
                self.seq = event.seq
                self.tally.count(event.facts)
                if event.facts.record is not None:
                    return Mark(event.facts.record, event.type)
            async with self._scope.reader() as reader:
                page = await reader.folding(self._stream, self.seq, limit=_PAGE)
            if not page:
                return None
            self._page = iter(page)

    async def finish(self) -> None:
        """Goes on to the end, for the tally."""
        while await self.next() is not None:
            pass
