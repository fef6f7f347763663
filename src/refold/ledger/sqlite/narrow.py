"""For rooms that work on a SQLite ledger's own tables: its store and reader, from behind the port."""

from __future__ import annotations

from refold.ledger.ledger import ScopedLedger
from refold.ledger.port import Reader, Store
from refold.ledger.sqlite.reader import SqliteReader
from refold.ledger.sqlite.store import SqliteStore


def sqlite_store(store: Store) -> SqliteStore:
    """The store as the SQLite adapter. Raises TypeError for another one, which brings rooms of its own."""
    if not isinstance(store, SqliteStore):
        raise TypeError(f"this works on SQLite ledgers, and not on {type(store).__name__}")
    return store


def sqlite_reader(source: Reader | ScopedLedger) -> SqliteReader:
    """The reader, or a new one of a scope, as the SQLite adapter's. Raises TypeError for another one."""
    reader = source.reader() if isinstance(source, ScopedLedger) else source
    if not isinstance(reader, SqliteReader):
        raise TypeError(f"this works on SQLite ledgers, and not on {type(reader).__name__}")
    return reader
