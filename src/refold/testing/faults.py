"""SQLite's file operations as points of the seam, and the faults that can happen there.

`FaultVFS` inherits everything from the default VFS and tells `refold.seam` before each operation that changes
a file, with the kind of file (db, wal, journal, other):

    vfs.open:KIND  vfs.write:KIND  vfs.sync:KIND  vfs.truncate:KIND  vfs.delete:KIND

A *fault* is what a hook does at such a point: `kill` ends the process, `disk_full` and its neighbours raise
what SQLite gets from a failing disk, `Torn` writes a part first. The shared memory of WAL mode (xShmMap,
xShmLock, ...) is not wrapped: apsw hands it to the inherited VFS whenever that one has it, so processes
with and without the shim can use one database together.

One difference from a disk that fails by itself: apsw raises an error of a VFS method at the statement that
caused it even where SQLite swallows it. A failing automatic checkpoint therefore surfaces at a COMMIT that
*did* commit. Code under test must take an error from COMMIT as "unknown", which is right for real disks
too.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import apsw

from refold import seam

__all__ = [
    "VFS_NAME",
    "Fault",
    "FaultVFS",
    "Torn",
    "disk_full",
    "kill",
    "power_cut",
    "read_only",
    "register",
    "sync_fails",
    "write_fails",
]

VFS_NAME = "refold-faults"

Fault = Callable[[str], None]
"""What happens at a point; called with its name, before the operation."""

_KINDS = (
    (apsw.SQLITE_OPEN_MAIN_DB, "db"),
    (apsw.SQLITE_OPEN_WAL, "wal"),
    (apsw.SQLITE_OPEN_MAIN_JOURNAL, "journal"),
)


# Per file since its last xSync, in order: (offset, the bytes that were there, the size that the file had).
_unsynced: dict[str, list[tuple[int, bytes, int]]] = {}
_disk = threading.Lock()


def kill(point: str) -> None:
    """SIGKILL to this process: what the kernel has, stays; what it has not, is lost."""
    os.kill(os.getpid(), signal.SIGKILL)
    # With several threads the sender may run on for a moment; it must not reach its operation.
    while True:
        signal.pause()


def power_cut(point: str) -> None:
    """`kill` after taking back every write and truncation through the shim that no xSync followed.

    The harshest honest disk: nothing unsynced survives. Creating and deleting files counts as durable at
    once, and so does what other processes wrote.
    """
    _disk.acquire()  # and never released: no other thread writes after the cut
    for path, changes in _unsynced.items():
        file = os.open(path, os.O_RDWR)
        for offset, overwritten, size in reversed(changes):
            os.pwrite(file, overwritten, offset)
            os.ftruncate(file, size)
        os.close(file)
    kill(point)


def disk_full(point: str) -> None:
    """The operation fails with SQLITE_FULL."""
    raise apsw.exception_for(apsw.SQLITE_FULL)


def write_fails(point: str) -> None:
    """The operation fails with SQLITE_IOERR_WRITE."""
    raise apsw.exception_for(apsw.SQLITE_IOERR_WRITE)


def sync_fails(point: str) -> None:
    """The operation fails with SQLITE_IOERR_FSYNC."""
    raise apsw.exception_for(apsw.SQLITE_IOERR_FSYNC)


def read_only(point: str) -> None:
    """The operation fails with SQLITE_READONLY, as on a file system that was remounted."""
    raise apsw.exception_for(apsw.SQLITE_READONLY)


@dataclass(frozen=True, slots=True)
class Torn:
    """A write of which only the first `keep` bytes get written, then `then`. Only for `vfs.write:*`.

    `Torn(12)` is a crash inside the write; `Torn(12, then=disk_full)` is the last free block of a disk.
    """

    keep: int
    then: Fault = kill

    def __call__(self, point: str) -> None:
        raise _TornWrite(self)


class _TornWrite(Exception):
    # An order to the shim, which alone has the bytes; nobody else sees it.
    def __init__(self, torn: Torn) -> None:
        super().__init__("a torn write was asked for at a point that is not a write of the fault VFS")
        self.torn = torn


class FaultVFS(apsw.VFS):
    """The default VFS with the seam before each operation that changes a file.

    A database uses it when opened with `vfs=name` while this object lives; see `register`.
    """

    def __init__(self, name: str = VFS_NAME) -> None:
        super().__init__(name, base="")

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:
        kind = next((kind for flag, kind in _KINDS if flags[0] & flag), "other")
        seam.reach(f"vfs.open:{kind}")
        return _FaultFile(name, flags, kind)

    def xDelete(self, filename: str, syncdir: bool) -> None:
        suffix = filename.rpartition("-")[2]
        seam.reach(f"vfs.delete:{suffix if suffix in ('wal', 'journal') else 'other'}")
        with _disk:
            super().xDelete(filename, syncdir)
            _unsynced.pop(filename, None)


class _FaultFile(apsw.VFSFile):
    def __init__(self, name: str | apsw.URIFilename | None, flags: list[int], kind: str) -> None:
        super().__init__("", name, flags)
        self._read_only = not flags[0] & apsw.SQLITE_OPEN_READWRITE
        self._path = name.filename() if isinstance(name, apsw.URIFilename) else name
        self._write = f"vfs.write:{kind}"
        self._sync = f"vfs.sync:{kind}"
        self._truncate = f"vfs.truncate:{kind}"

    def xLock(self, level: int) -> None:
        try:
            super().xLock(level)
        except apsw.IOError:
            if not self._read_only:
                raise
            # The last reader of a WAL database asks for a lock that its descriptor cannot take. SQLite ignores that
            # error, apsw would raise it at close; "busy" it ignores as well.
            raise apsw.BusyError from None

    def xWrite(self, data: Any, offset: int) -> None:
        try:
            seam.reach(self._write)
        except _TornWrite as order:
            self._put(memoryview(data)[: order.torn.keep], offset)
            order.torn.then(self._write)
        self._put(data, offset)

    def _put(self, data: Any, offset: int) -> None:
        with _disk:
            self._remember(offset, len(data))
            super().xWrite(data, offset)

    def xSync(self, flags: int) -> None:
        seam.reach(self._sync)
        with _disk:
            super().xSync(flags)
            if self._path:
                _unsynced.pop(self._path, None)

    def xTruncate(self, newsize: int) -> None:
        seam.reach(self._truncate)
        with _disk:
            self._remember(newsize, max(self.xFileSize() - newsize, 0))
            super().xTruncate(newsize)

    def _remember(self, offset: int, length: int) -> None:
        # Temporary files have no name, and nobody looks for them after a power cut.
        if self._path:
            size = self.xFileSize()
            there = max(min(length, size - offset), 0)
            overwritten = self.xRead(there, offset) if there else b""
            _unsynced.setdefault(self._path, []).append((offset, overwritten, size))


_registered: FaultVFS | None = None


def register() -> str:
    """Register the fault VFS for the life of this process, once, and return its name for `vfs=`."""
    global _registered
    if _registered is None:
        _registered = FaultVFS()
    return VFS_NAME
