"""This process's access to one ledger file: its writing connection and its turn, its readers, its place among other
processes.
"""

from __future__ import annotations

import asyncio
import os
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any, TypeVar

import apsw

from refold.clock import Clock
from refold.ledger.errors import LedgerFailing, LedgerForked, LedgerMoved
from refold.ledger.sqlite import erasing, schema
from refold.ledger.sqlite.connection import connect, identity, transaction, translated
from refold.ledger.sqlite.incarnation import Incarnation
from refold.ledger.sqlite.lockfile import LockFile, open_lock_file
from refold.ledger.sqlite.reader import ReaderPool

T = TypeVar("T")

# Connections of a forked parent: closing them in the child would run SQLite's clean-up on the parent's files.
_inherited: list[Any] = []
_all: weakref.WeakSet[Access] = weakref.WeakSet()


class Access:
    """Connections, locks and incarnation of one process. A forked child gets its own at the first use of
    any of them.
    """

    def __init__(self, path: Path, clock: Clock, vfs: str | None) -> None:
        self.path = path
        self._clock = clock
        self._vfs = vfs
        self._torn = False
        self._begin()
        _all.add(self)

    def _begin(self) -> None:
        self._pid = os.getpid()
        self._lock = open_lock_file(str(self.path))
        self._incarnation = Incarnation(self._lock, self._clock)
        self._pool = ReaderPool(self.path, lambda: connect(self.path, self._vfs, write=False))
        self._thread: ThreadPoolExecutor | None = None
        self._writing: apsw.Connection | None = None
        self._file: tuple[int, int] | None = None

    def here(self) -> Access:
        """This object, once it is certain that what it holds belongs to this process and not to a forked parent."""
        if self._pid != os.getpid():
            _inherited.extend((self._writing, self._thread, self._lock, *self._pool.lent))
            self._torn = self._writing is not None or bool(self._pool.lent)
            self._begin()
        if self._torn:
            raise LedgerForked(
                f"This process was forked while its parent was reading {self.path.name}, and cannot open it safely.",
                ledger=str(self.path),
            )
        return self

    def suspend(self) -> None:
        """Closes the connections before a fork; the parent opens others when it needs them.

        SQLite keeps its file locks in tables of the process. A child that inherits them takes its locks only there and
        not with the kernel; then the parent, whose last connection closes, removes the WAL that the child writes to.
        """
        self._pool.close()
        if self._writing is not None:
            connection, self._writing = self._writing, None
            connection.close(True)

    @property
    def is_here(self) -> bool:
        """Whether this process has used it: a forked child that has not, holds nothing of its own yet."""
        return self._pid == os.getpid()

    @property
    def lock(self) -> LockFile:
        """The lock file, as far as this process goes."""
        return self._lock

    @property
    def pool(self) -> ReaderPool:
        return self.here()._pool

    @property
    def incarnation(self) -> Incarnation:
        return self.here()._incarnation

    def writer(self) -> apsw.Connection:
        """The writing connection; whoever uses it has the turn. Raises SchemaOutdated and the like when it is first
        opened, LedgerMoved when its file is no longer at its place.
        """
        if self._writing is None:
            connection = connect(self.path, self._vfs, write=True)
            schema.require_current(connection, self.path)
            erasing.finish(connection, self.path, self._lock, patience=0)  # What a process did not live to finish.
            self._writing, self._file = connection, identity(self.path)
        elif identity(self.path) != self._file:
            # Commits would go into a file that nobody finds, and be acknowledged.
            raise LedgerMoved(f"{self.path.name} was moved or replaced while it was open.", ledger=str(self.path))
        return self._writing

    def drop_writer(self) -> None:
        """Gives up the writing connection, whatever state it is in."""
        if self._writing is not None:
            connection, self._writing = self._writing, None
            try:
                connection.close(True)
            except apsw.Error as error:
                raise LedgerFailing(f"The connection to {self.path.name} cannot be closed: {error}.") from error

    def try_turn(self) -> bool:
        return self._lock.try_turn()

    def take_turn(self) -> None:
        self._lock.take_turn()

    def leave_turn(self) -> None:
        self._lock.leave()

    def in_turn(self, work: Callable[[apsw.Connection], T]) -> T:
        """Runs `work` in a write transaction of its own, in this process's turn."""

        def transact(connection: apsw.Connection) -> T:
            try:
                with transaction(connection):
                    return work(connection)
            except BaseException:
                self._incarnation.rolled_back()
                raise

        return self.alone(transact)

    def alone(self, work: Callable[[apsw.Connection], T]) -> T:
        """Runs `work` on the writing connection in this process's turn; it makes its own transactions, if any."""
        self.here()
        with self._lock.turn(), translated(self.path):
            return work(self.writer())

    def finish_erasures(self, patience: int) -> str | None:
        """Finishes erasures that are under way, and says why it cannot when it cannot; waits `patience` ms for
        readers.
        """
        return self.alone(lambda connection: erasing.finish(connection, self.path, self._lock, patience))

    async def threaded(self, work: Callable[[], T]) -> T:
        """Runs `work` on the one writing thread, so that waiting for the turn does not stop the event loop."""
        self.here()
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, thread_name_prefix="refold-writer")
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    async def write(self, work: Callable[[apsw.Connection], T]) -> T:
        """`in_turn` on the writing thread."""
        return await self.threaded(lambda: self.in_turn(work))

    @contextmanager
    def reading(self) -> Iterator[apsw.Connection]:
        """A read transaction on a connection of the pool."""
        connection = self.pool.take()
        try:
            with translated(self.path):
                connection.execute("BEGIN")
                yield connection
        finally:
            self._pool.give(connection)

    def close(self) -> None:
        """Closes every connection and lets go of every lock."""
        self.here()
        if self._thread is not None:
            self._thread.shutdown(wait=True)
            self._thread = None
        # Closing the last connection makes a checkpoint, which is a write; who cannot write makes none.
        with self._lock.turn() if self._lock.writable else nullcontext():
            self._pool.close()
            if self._writing is not None:
                self._writing.close()
                self._writing = None
        self._incarnation.end()
        self._lock.close()


_held: list[LockFile] = []


def _before_fork() -> None:
    mine = [access for access in _all if access.is_here]
    _held.extend(sorted({access.lock for access in mine}, key=lambda lock: lock.path))
    for lock in _held:
        lock.pause()  # No transaction is under way in another thread.
    for access in mine:
        with suppress(apsw.Error):
            access.suspend()


def _after_fork_in_parent() -> None:
    while _held:
        _held.pop().resume()


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_held.clear)
