"""This process's life as the owner of streams: one renewable lease, named by every stream it writes."""

from __future__ import annotations

import os
from pathlib import Path

import apsw

from refold.clock import Clock
from refold.ledger.port import LEASE
from refold.ledger.sqlite.connection import query
from refold.ledger.sqlite.lockfile import LockFile


class Incarnation:
    """One process's registration in one ledger. Made and renewed inside the transactions that need it."""

    def __init__(self, lock: LockFile, clock: Clock) -> None:
        self._lock = lock
        self._clock = clock
        self._boot = boot_id()
        self.number: int | None = None
        self._lease_until = 0

    def register(self, connection: apsw.Connection) -> int:
        """This process's number, in the transaction that is open; made on first use, its lease renewed when a third
        is gone.
        """
        now = self._clock.since_boot()
        if self.number is None:
            self._sweep(connection)
            self.number = self._free_number(connection)
        if self._lease_until - now < LEASE * 2 // 3:
            self._lease_until = now + LEASE
            # Also when it was registered before: that transaction may have been rolled back.
            connection.execute(
                "INSERT INTO incarnations VALUES (?, ?, ?, ?, ?) "
                "ON CONFLICT (number) DO UPDATE SET lease_until = excluded.lease_until",
                (self.number, self._boot, os.getpid(), self._clock.now(), self._lease_until),
            )
        return self.number

    def rolled_back(self) -> None:
        """The transaction in which the number was made or the lease renewed did not happen."""
        self._lease_until = 0

    def is_dead(self, connection: apsw.Connection, number: int) -> str | None:
        """Why another incarnation counts as dead, or None while it may still write.

        Dead for certain: other boot, or nobody holds its byte of the lock file. Expired: alive, frozen past its
        lease; the epoch fences it when it thaws.
        """
        if number == self.number:
            return None
        rows = query(connection, "SELECT boot_id, lease_until FROM incarnations WHERE number = ?", (number,))
        if not rows:
            return "it is not registered any more"
        boot, lease_until = rows[0]
        if boot != self._boot:
            return "the machine was started again since"
        if not self._lock.is_alive(number):
            return "its process is gone"
        if lease_until < self._clock.since_boot():
            return "its lease has expired"
        return None

    def end(self) -> None:
        """Lets go of the byte that proves this process alive."""
        if self.number is not None:
            self._lock.die(self.number)
            self.number = None

    def _free_number(self, connection: apsw.Connection) -> int:
        number: int = query(connection, "SELECT coalesce(max(number), 0) + 1 FROM incarnations")[0][0]
        while not self._lock.try_live(number):
            number += 1  # Its row was swept, and somebody still holds the byte: a registration that was rolled back.
        return number

    def _sweep(self, connection: apsw.Connection) -> None:
        """Drops the rows of the dead that own nothing, or the table would grow by one a start."""
        unused = query(
            connection,
            "SELECT number FROM incarnations WHERE NOT EXISTS (SELECT 1 FROM stream_heads WHERE owner = number)",
        )
        for (number,) in unused:
            if self.is_dead(connection, number):
                connection.execute("DELETE FROM incarnations WHERE number = ?", (number,))


def boot_id() -> str:
    """What names this start of the machine; a constant where the system does not say."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return "unknown"
