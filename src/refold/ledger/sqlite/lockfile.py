"""The lock file beside a ledger: the writers' turnstile, and proof of who is alive.

All locks are byte ranges of one file (`<ledger>-lock`), as POSIX record locks: the kernel drops them when their
process dies, however it dies, and a forked child does not get them. They belong to the process and not to the
descriptor, and closing *any* descriptor of the file drops them all - hence one object a process and file, kept in a
registry.

Turnstile: take A, take B, let A go; write; let B go. Who holds A is next, so a writer that comes back at once queues
behind it instead of overtaking (with one lock it would win nearly always, with SQLite's busy handler others starve).
"""

from __future__ import annotations

import errno
import fcntl
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from refold.ledger.errors import LedgerClosed, LedgerMissing, LedgerReadOnly

_A, _B = 0, 1
_FIRST_INCARNATION = 16
MIGRATOR = -1
"""The number of an incarnation that nobody gets: whoever folds the projections again holds its byte."""

_registry: dict[str, LockFile] = {}
_registry_lock = threading.Lock()


class LockFile:
    """The lock file of one ledger, as this process sees it. Get it from `open_lock_file`."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.users = 0
        self.turns = 0
        """Turns taken so far; tests count these."""
        self._fd = _open(path)
        self._mine: set[int] = set()
        # Record locks do not keep threads of one process apart.
        self._thread_lock = threading.Lock()

    @property
    def writable(self) -> bool:
        """Whether this process may take a turn at all. One that may not can read, since readers take none."""
        return self._fd is not None

    def _descriptor(self) -> int:
        if self.users == 0:  # The number may be another file's by now.
            raise LedgerClosed(f"{os.path.basename(self.path).removesuffix('-lock')} was closed.", lock=self.path)
        if self._fd is None:
            name = os.path.basename(self.path)
            raise LedgerReadOnly(f"{name} cannot be written by this process, so the ledger cannot.", lock=self.path)
        return self._fd

    def try_turn(self) -> bool:
        """Takes the writers' turn if nobody has it or queues for it. Raises LedgerReadOnly."""
        fd = self._descriptor()
        if not self._thread_lock.acquire(blocking=False):
            return False
        try:
            fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, _A)
        except (BlockingIOError, PermissionError):
            self._thread_lock.release()
            return False
        try:
            fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, _B)
        except (BlockingIOError, PermissionError):
            self._thread_lock.release()
            return False
        finally:
            fcntl.lockf(fd, fcntl.LOCK_UN, 1, _A)
        self.turns += 1
        return True

    def take_turn(self) -> None:
        """Takes the writers' turn, waiting behind those who came before. Raises LedgerReadOnly."""
        fd = self._descriptor()
        self._thread_lock.acquire()
        try:
            fcntl.lockf(fd, fcntl.LOCK_EX, 1, _A)
            try:
                fcntl.lockf(fd, fcntl.LOCK_EX, 1, _B)
            finally:
                fcntl.lockf(fd, fcntl.LOCK_UN, 1, _A)
        except BaseException:
            self._thread_lock.release()
            raise
        self.turns += 1

    def leave(self) -> None:
        """Ends the turn."""
        fcntl.lockf(self._descriptor(), fcntl.LOCK_UN, 1, _B)
        self._thread_lock.release()

    @contextmanager
    def turn(self) -> Iterator[None]:
        """The writers' turn for a block."""
        self.take_turn()
        try:
            yield
        finally:
            self.leave()

    def pause(self) -> None:
        """Waits until no thread of this process has the turn, and lets none take it until `resume`."""
        self._thread_lock.acquire()

    def resume(self) -> None:
        """Lets the threads of this process take turns again."""
        self._thread_lock.release()

    def try_live(self, incarnation: int) -> bool:
        """Takes the byte that proves this incarnation alive, until `die` or the end of the process.
        False: it is taken.
        """
        if incarnation in self._mine:
            return False
        try:
            fcntl.lockf(self._descriptor(), fcntl.LOCK_EX | fcntl.LOCK_NB, 1, _FIRST_INCARNATION + incarnation)
        except (BlockingIOError, PermissionError):
            return False
        self._mine.add(incarnation)
        return True

    def die(self, incarnation: int) -> None:
        """Lets the byte go."""
        self._mine.discard(incarnation)
        fcntl.lockf(self._descriptor(), fcntl.LOCK_UN, 1, _FIRST_INCARNATION + incarnation)

    def is_alive(self, incarnation: int) -> bool:
        """Whether somebody holds the incarnation's byte. False is proof of death on this machine."""
        if incarnation in self._mine:
            return True
        try:
            fcntl.lockf(self._descriptor(), fcntl.LOCK_EX | fcntl.LOCK_NB, 1, _FIRST_INCARNATION + incarnation)
        except (BlockingIOError, PermissionError):
            return True
        fcntl.lockf(self._descriptor(), fcntl.LOCK_UN, 1, _FIRST_INCARNATION + incarnation)
        return False

    def close(self) -> None:
        """Gives the file up; the last user's close drops every lock of the process on it."""
        with _registry_lock:
            self.users -= 1
            if self.users == 0:
                _registry.pop(self.path, None)
                if self._fd is not None:
                    os.close(self._fd)


def _open(path: str) -> int | None:
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
            return None
        why = os.strerror(error.errno or 0)
        raise LedgerMissing(f"There can be no ledger at {path.removesuffix('-lock')}: {why}.", lock=path) from error


def open_lock_file(path: str) -> LockFile:
    """This process's lock file object for a ledger's path."""
    name = os.path.realpath(path) + "-lock"
    with _registry_lock:
        found = _registry.get(name)
        if found is None:
            found = _registry[name] = LockFile(name)
        found.users += 1
        return found


def _forget_after_fork() -> None:
    # The child holds none of the locks. Its copies of the descriptors are left alone: what closes them is the
    # parent's affair.
    global _registry_lock
    _registry.clear()
    _registry_lock = threading.Lock()


os.register_at_fork(after_in_child=_forget_after_fork)
