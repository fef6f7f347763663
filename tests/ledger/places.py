"""Places on SQLite for the conformance suite and for the tests beside it, and a clock that can be moved."""

from __future__ import annotations

from pathlib import Path

from refold.clock import SystemClock
from refold.ledger.ledger import Ledger, open_ledger
from refold.ledger.sqlite.incarnation import LEASE


class MovableClock(SystemClock):
    """The machine's clocks, and an offset to the time since boot that many ledgers can share."""

    def __init__(self) -> None:
        self.passed = 0

    def since_boot(self) -> int:
        return super().since_boot() + self.passed


class SqlitePlace:
    """A file in a fresh folder; every opening has an incarnation of its own."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "ledger.db"
        self.clock = MovableClock()

    async def open(self) -> Ledger:
        return await open_ledger(self.path, clock=self.clock)

    def expire_leases(self) -> None:
        self.clock.passed += LEASE + 1
