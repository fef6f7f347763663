"""Opening a ledger file, or making a new one."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

import apsw

from refold.clock import Clock
from refold.events.catalog import CATALOG, Catalog
from refold.ids import Ids
from refold.ledger.sqlite import schema
from refold.ledger.sqlite.connection import (
    BUSY_MILLISECONDS,
    PAGE_SIZE,
    check_place,
    connect,
    must_exist,
    query,
    transaction,
    translated,
)
from refold.ledger.sqlite.lockfile import open_lock_file
from refold.ledger.sqlite.store import SqliteStore

_MAGIC = b"SQLite format 3\0"


def open_store(
    path: Path, clock: Clock, ids: Ids, *, create: bool, vfs: str | None = None, catalog: Catalog = CATALOG
) -> SqliteStore:
    """Opens a ledger, or makes one where there is none and `create` is set. Raises typed errors and leaves other
    files alone.
    """
    check_place(path)
    if create and not path.exists():
        _make(path, clock, ids, vfs)
    must_exist(path)
    if create and _is_unfinished(path, vfs):
        _make(path, clock, ids, vfs)
    probe = connect(path, vfs, write=False)
    try:
        with translated(path):
            schema.check(probe, path)
    finally:
        probe.close()
    return SqliteStore(path, clock, ids, vfs=vfs, catalog=catalog)


def _is_unfinished(path: Path, vfs: str | None) -> bool:
    """Whether the file is a database without a single table: somebody was killed while making it."""
    try:
        with path.open("rb") as file:
            start = file.read(len(_MAGIC))
    except OSError:
        return False  # Opening the database says what is wrong.
    if start != _MAGIC:
        return not start  # SQLite itself would take a file of a few bytes for an empty database.
    # Not read-only: the journal that a killed maker left must be rolled back before anything can be read.
    probe = connect(path, vfs, write=True)
    try:
        with translated(path):
            return schema.is_empty(probe)
    finally:
        probe.close()


def _make(path: Path, clock: Clock, ids: Ids, vfs: str | None) -> None:
    with translated(path):
        lock = open_lock_file(str(path))
    try:
        with lock.turn(), translated(path):
            # What agents were told and said is for their owner; SQLite gives the files beside it the same mode.
            with suppress(OSError):  # What cannot be made says so, with its reason, when SQLite opens it.
                os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
            connection = apsw.Connection(str(path), vfs=vfs)
            try:
                connection.set_busy_timeout(BUSY_MILLISECONDS)
                connection.execute(f"PRAGMA page_size = {PAGE_SIZE}")
                query(connection, "PRAGMA journal_mode = WAL")
                connection.execute("PRAGMA synchronous = FULL")
                with transaction(connection):
                    if schema.is_empty(connection):  # Otherwise another process made it while this one waited.
                        schema.create(connection, clock, ids)
            finally:
                connection.close()
    finally:
        lock.close()
