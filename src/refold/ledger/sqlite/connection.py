"""Opening a SQLite file as a ledger, and what SQLite's errors mean here."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apsw

from refold.errors import RefoldError
from refold.events.values import NotRecordable
from refold.ledger.errors import (
    LedgerBusy,
    LedgerDamaged,
    LedgerFailing,
    LedgerFull,
    LedgerLinked,
    LedgerMissing,
    LedgerReadOnly,
    NetworkFileSystem,
    NotALedger,
)

PAGE_SIZE = 8192
CHECKPOINT_PAGES = 2000
APPLICATION_ID = 0x72666C64  # "rfld"
BUSY_MILLISECONDS = 5000

_NETWORK = frozenset(
    [
        "nfs",
        "nfs4",
        "cifs",
        "smb",
        "smb2",
        "smb3",
        "smbfs",
        "ncpfs",
        "9p",
        "afs",
        "ceph",
        "lustre",
        "beegfs",
        "gfs2",
        "ocfs2",
        "glusterfs",
        "fuse.sshfs",
        "fuse.glusterfs",
        "fuse.s3fs",
        "fuse.gcsfuse",
        "fuse.rclone",
        "fuse.cephfs",
        "davfs",
        "fuse.davfs2",
        "virtiofs.remote",
    ]
)


def connect(path: Path, vfs: str | None = None, *, write: bool) -> apsw.Connection:
    """A connection with the ledger's settings. The file must exist. Raises typed ledger errors."""
    with translated(path):
        flags = apsw.SQLITE_OPEN_READWRITE if write else apsw.SQLITE_OPEN_READONLY
        connection = apsw.Connection(str(path), flags=flags, vfs=vfs)
        connection.set_busy_timeout(BUSY_MILLISECONDS)
        # Freed bytes are overwritten: what was erased must not survive in a free page.
        connection.execute("PRAGMA secure_delete = ON")
        connection.execute("PRAGMA foreign_keys = ON")
        connection.execute("PRAGMA trusted_schema = OFF")
        connection.execute("PRAGMA cell_size_check = ON")
        connection.execute("PRAGMA cache_size = -16384")
        if write:
            connection.execute("PRAGMA synchronous = FULL")
            # A savepoint's undo pages: in a file they cost more than the rows, and would hold what may be erased later.
            connection.execute("PRAGMA temp_store = MEMORY")
            connection.execute("PRAGMA fullfsync = ON")
            connection.execute(f"PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES}")
        connection.execute("SELECT count(*) FROM sqlite_schema").fetchall()
    return connection


def query(connection: apsw.Connection, sql: str, values: Sequence[Any] = ()) -> list[Any]:
    """All rows of a statement."""
    return connection.execute(sql, values).fetchall()


def changed_all(connection: apsw.Connection, sql: str, rows: Sequence[Sequence[Any]]) -> bool:
    """Runs an UPDATE of one row for each of `rows`; whether each found its row."""
    before = connection.total_changes()
    if rows:
        connection.executemany(sql, rows)
    return connection.total_changes() - before == len(rows)


@contextmanager
def transaction(connection: apsw.Connection) -> Iterator[None]:
    """A write transaction for a block: committed at its end, rolled back when it or the commit raises."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if not connection.getautocommit():
            connection.execute("ROLLBACK")
        raise


@contextmanager
def translated(path: Path) -> Iterator[None]:
    """Turns SQLite's errors into the ledger's."""
    try:
        yield
    except apsw.Error as error:
        raise translate(error, path) from error
    except UnicodeEncodeError as error:
        why = "a text with a lone surrogate can neither be stored nor be looked up"
        raise NotRecordable(f"For {path.name}: {why}.", path="$", type="str", reason=why) from error
    except UnicodeDecodeError as error:
        raise LedgerDamaged(f"A text in {path.name} is not UTF-8: {error}.", ledger=str(path)) from error


def translate(error: apsw.Error, path: Path) -> RefoldError:
    """The ledger's error for one of SQLite's."""
    where = path.name
    match error:
        case apsw.FullError():
            return LedgerFull(f"There is no room left to write {where}.", ledger=str(path))
        case apsw.NotADBError():
            return NotALedger(f"{where} is not a SQLite database.", ledger=str(path))
        case apsw.CorruptError():
            return LedgerDamaged(f"SQLite finds {where} damaged: {error}.", ledger=str(path))
        case apsw.ReadOnlyError() | apsw.PermissionsError() | apsw.CantOpenError():
            return LedgerReadOnly(f"{where} cannot be opened: {error}.", ledger=str(path))
        case apsw.BusyError() | apsw.LockedError():
            return LedgerBusy(
                f"{where} has been locked by another program for over {BUSY_MILLISECONDS // 1000} s.",
                ledger=str(path),
            )
        case _:
            return LedgerFailing(f"Reading or writing {where} failed: {error}.", ledger=str(path))


def check_place(path: Path, table: str | None = None) -> None:
    """Refuses a network file system, where neither locks nor shared memory can be relied on. `table` is the table of
    mounts in the form of /proc/self/mountinfo, this machine's when it is left out. Raises NetworkFileSystem.
    """
    kind = file_system(path, mounts() if table is None else table)
    if kind in _NETWORK:
        raise NetworkFileSystem(
            f"{path.parent} is on a {kind} file system, where SQLite's locks cannot be relied on.",
            ledger=str(path),
            file_system=kind,
        )


def file_system(path: Path, mounts: str) -> str:
    """The type of the file system that holds `path`, by a text in the form of /proc/self/mountinfo; empty
    if unknown.
    """
    place = os.path.realpath(path.parent)
    best, kind = "", ""
    for line in mounts.splitlines():
        before, dash, after = line.partition(" - ")
        fields = before.split()
        if not dash or len(fields) < 5:
            continue
        point = fields[4].encode().decode("unicode_escape")
        inside = place == point or place.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= len(best):
            best, kind = point, after.split()[0]
    return kind


def mounts() -> str:
    """What is mounted where, in the form that `file_system` takes; empty where the system does not say."""
    try:
        return Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""  # Not Linux: nothing to go by.


def must_exist(path: Path) -> None:
    """Raises LedgerMissing when there is no file to open, NotALedger for a folder, LedgerLinked."""
    if not path.exists():
        raise LedgerMissing(f"There is no ledger at {path}.", ledger=str(path))
    if path.is_dir():
        raise NotALedger(f"{path} is a folder, not a ledger.", ledger=str(path))
    names = path.stat().st_nlink
    if names > 1:
        raise LedgerLinked(f"{path} is one of {names} names of the same file.", ledger=str(path), names=names)


def identity(path: Path) -> tuple[int, int] | None:
    """What tells the file at a place from any other one there; None: there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino
