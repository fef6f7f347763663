"""Plain SQL on a ledger's file: one read transaction, no code of the package."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apsw

HEADS = "SELECT stream_no, tenant_id, workspace_id, stream, seq, hash, closed FROM stream_heads ORDER BY stream_no"
EVENTS = (
    "SELECT seq, format, type, version, epoch, recorded_at, occurred_at, actor, site, cause, facts, "
    "content_digest, content, view_digest, view, hash, tenant_id, workspace_id "
    "FROM events WHERE id > ?1 << 32 AND id < (?1 + 1) << 32 ORDER BY id"
)


@contextmanager
def reading(path: Path) -> Iterator[apsw.Connection]:
    """A connection that sees one state of the ledger."""
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        connection.set_busy_timeout(5000)
        connection.execute("BEGIN")
        yield connection
        connection.execute("ROLLBACK")
    finally:
        connection.close()


def rows(connection: apsw.Connection, sql: str, *values: Any) -> list[tuple[Any, ...]]:
    return connection.execute(sql, values).fetchall()
