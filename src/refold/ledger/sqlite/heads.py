"""Rows of `stream_heads`: how a stream's place is stored, and the digest that makes a flipped bit in it visible."""

from __future__ import annotations

from hashlib import sha256
from typing import Any, NamedTuple

import apsw

from refold.events.envelope import Head
from refold.events.identity import Scope, Stream
from refold.ledger.port import MAX_SEQ, StreamHead
from refold.ledger.sqlite.connection import query

SHIFT = 32
SEQ_LIMIT = MAX_SEQ

COLUMNS = "stream_no, tenant_id, workspace_id, stream, seq, hash, epoch, owner, closed, erased, row_digest"


class HeadRow(NamedTuple):
    """One row of `stream_heads`."""

    stream_no: int
    tenant_id: str
    workspace_id: str
    stream: str
    seq: int
    hash: bytes
    epoch: int
    owner: int | None
    closed: int
    erased: int
    row_digest: bytes

    @property
    def head(self) -> Head:
        return Head(self.seq, self.hash, self.epoch)

    @property
    def intact(self) -> bool:
        """Whether the row is what was written."""
        return self.row_digest == row_digest(*self[:-1])

    def public(self) -> StreamHead:
        return StreamHead(
            Stream.parse(self.stream),
            self.head,
            bool(self.closed),
            bool(self.erased),
            self.owner,
            self.intact,
        )

    def sealed(self) -> HeadRow:
        """The row with the digest of its other columns."""
        return self._replace(row_digest=row_digest(*self[:-1]))


def row_digest(*columns: object) -> bytes:
    """8 bytes over the columns of a row that no chain covers."""
    text = "\0".join(each.hex() if isinstance(each, bytes) else repr(each) for each in columns)
    return sha256(text.encode("utf-8", "surrogatepass")).digest()[:8]


def find(connection: apsw.Connection, scope: Scope, stream: Stream) -> HeadRow | None:
    """The head row of a stream, None when this scope has no such stream."""
    rows = query(
        connection,
        f"SELECT {COLUMNS} FROM stream_heads WHERE tenant_id = ? AND workspace_id = ? AND stream = ?",
        (scope.tenant, scope.workspace, str(stream)),
    )
    return HeadRow(*rows[0]) if rows else None


def insert(connection: apsw.Connection, row: HeadRow) -> HeadRow:
    """Stores a new head and returns it with its number."""
    number = query(connection, "SELECT coalesce(max(stream_no), 0) + 1 FROM stream_heads")[0][0]
    sealed = row._replace(stream_no=number).sealed()
    connection.execute(f"INSERT INTO stream_heads ({COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", sealed)
    return sealed


MOVE = (
    "UPDATE stream_heads SET seq = ?, hash = ?, epoch = ?, owner = ?, closed = ?, erased = ?, row_digest = ? "
    "WHERE tenant_id = ? AND workspace_id = ? AND stream_no = ? "
    "AND seq = ? AND hash = ? AND epoch = ? AND owner IS ?"
)
"""Compare-and-set: changes one row where it still has the seq, hash, epoch and owner that somebody knew it with."""


def replace(connection: apsw.Connection, old: HeadRow, new: HeadRow) -> bool:
    """Puts `new` where `old` still is. False: somebody else was there."""
    sealed = new.sealed()
    connection.execute(MOVE, (*sealed[4:], old.tenant_id, old.workspace_id, old.stream_no, *old.head, old.owner))
    return connection.changes() == 1


def move(
    number: int, scope: Scope, stream: str, previous: Head, head: Head, owner: int, closed: bool, erased: int
) -> tuple[Any, ...]:
    """What `MOVE` takes to bring a stream that its owner has at `previous` to `head`."""
    columns = (*head, owner, int(closed), erased)
    digest = row_digest(number, *scope, stream, *columns)
    return (*columns, digest, *scope, number, *previous, owner)
