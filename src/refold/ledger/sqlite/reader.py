"""Reading a SQLite ledger: one read transaction on a connection of its own."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any, Self, TypeVar

import apsw

from refold.events.catalog import Catalog
from refold.events.content import PLAIN, PREFIX, SALT_SIZE, unseal
from refold.events.envelope import NO_VIEW, Event, EventRow, decode_view
from refold.events.identity import Scope, Stream
from refold.ledger.blobs import leaf
from refold.ledger.port import BlobRow, InboxItem, Snapshot, StreamHead
from refold.ledger.sqlite import heads
from refold.ledger.sqlite.connection import query, translated
from refold.ledger.sqlite.heads import SEQ_LIMIT, SHIFT, HeadRow
from refold.ledger.sqlite.schema import columns
from refold.projections import Row

R = TypeVar("R", bound=Row)

_RANGE = " FROM events WHERE id > ? AND id <= ? AND tenant_id = ? AND workspace_id = ? ORDER BY id LIMIT ?"
_WHOLE = (
    "SELECT seq, format, type, version, epoch, recorded_at, occurred_at, actor, site, cause, facts, "
    "content_digest, content, view_digest, view, hash" + _RANGE
)
FOLD_COLUMNS = "seq, type, version, recorded_at, occurred_at, actor, site, facts, view"
_FOLDING = "SELECT " + FOLD_COLUMNS + _RANGE
_DELIVERING = "SELECT seq, type, version, recorded_at, site, facts, content_digest, content" + _RANGE
_AT_ONCE = 256
_BLOBS = (
    "SELECT number, lookup, digest, bytes, view_digest, view FROM blobs "
    "WHERE id > ? AND id <= ? AND tenant_id = ? AND workspace_id = ? ORDER BY id LIMIT ?"
)
_LARGE = {
    _WHOLE: (EventRow._fields.index("content"), EventRow._fields.index("view")),
    _DELIVERING: (-1,),
    _BLOBS: (BlobRow._fields.index("stored"), BlobRow._fields.index("view")),
}
"""What may be of any size in a statement's rows."""
PAGE_BYTES = 16 * 1024 * 1024
"""Bytes after which a page ends before its limit: a thousand events may be a gigabyte."""


class SqliteReader:
    """One consistent state of a scope. Used as a context manager; the connection goes back to its pool at the end."""

    def __init__(self, scope: Scope, pool: ReaderPool, catalog: Catalog, secret: Callable[[Scope], bytes]) -> None:
        self.scope = scope
        self._secret = secret
        self._pool = pool
        self._catalog = catalog
        self._connection: apsw.Connection | None = None
        self._numbers: dict[Stream, int | None] = {}

    async def __aenter__(self) -> Self:
        self.open()
        return self

    async def __aexit__(self, *exc: object) -> None:
        self.close()

    def open(self) -> None:
        self._connection = self._pool.take()
        self._connection.execute("BEGIN")

    def close(self) -> None:
        if self._connection is not None:
            connection, self._connection = self._connection, None
            self._pool.give(connection)

    @property
    def secret(self) -> bytes:
        return self._secret(self.scope)

    @property
    def path(self) -> Path:
        """The ledger's file."""
        return self._pool.path

    @property
    def connection(self) -> apsw.Connection:
        if self._connection is None:
            raise RuntimeError("the reader is not open: use it in `async with`")
        return self._connection

    def head_row(self, stream: Stream) -> HeadRow | None:
        with translated(self._pool.path):
            return heads.find(self.connection, self.scope, stream)

    async def head(self, stream: Stream) -> StreamHead | None:
        row = self.head_row(stream)
        return None if row is None else row.public()

    async def heads(self, after: Stream | None = None, limit: int = 1000) -> list[StreamHead]:
        with translated(self._pool.path):
            rows = query(
                self.connection,
                f"SELECT {heads.COLUMNS} FROM stream_heads WHERE tenant_id = ? AND workspace_id = ? AND stream > ? "
                "ORDER BY stream LIMIT ?",
                (*self.scope, "" if after is None else str(after), limit),
            )
        return [HeadRow(*row).public() for row in rows]

    async def runs_beginning(self, prefix: str) -> list[str]:
        """Ids of at most two runs that begin so, found by their streams: a run's row may be what is missing."""
        with translated(self._pool.path):
            rows = query(
                self.connection,
                "SELECT stream FROM stream_heads WHERE tenant_id = ? AND workspace_id = ? "
                "AND stream >= ? AND stream < ? AND instr(stream, '/') = 0 LIMIT 2",
                (*self.scope, prefix, prefix + "\x7f"),
            )
        return [row[0] for row in rows]

    def _number(self, stream: Stream) -> int | None:
        if stream not in self._numbers:
            row = self.head_row(stream)
            self._numbers[stream] = None if row is None else row.stream_no
        return self._numbers[stream]

    def _range(self, sql: str, stream: Stream, after: int, upto: int | None, limit: int) -> list[Any]:
        number = self._number(stream)
        if number is None:
            return []
        # Kept within the stream's range of ids: a number outside it would be a place in another stream.
        base = number << SHIFT
        first = base | min(max(after, 0), SEQ_LIMIT)
        last = base | (SEQ_LIMIT if upto is None else min(max(upto, 0), SEQ_LIMIT))
        with translated(self._pool.path):
            values = (first, last, *self.scope, limit)
            if sql not in _LARGE:
                return query(self.connection, sql, values)
            return _page(self.connection.execute(sql, values), _LARGE[sql])

    async def raw_events(
        self, stream: Stream, after: int = 0, upto: int | None = None, limit: int = 1000
    ) -> list[EventRow]:
        return list(map(EventRow._make, self._range(_WHOLE, stream, after, upto, limit)))

    async def proving(self, stream: Stream, after: int = 0, limit: int = 1000) -> list[tuple[Any, ...]]:
        return self._range(_WHOLE, stream, after, None, limit)

    async def events(self, stream: Stream, after: int = 0, upto: int | None = None, limit: int = 1000) -> list[Event]:
        return decode_rows(self._range(_WHOLE, stream, after, upto, limit), self._catalog, stream)

    async def folding(self, stream: Stream, after: int = 0, upto: int | None = None, limit: int = 1000) -> list[Event]:
        return decode_for_fold(self._range(_FOLDING, stream, after, upto, limit), self._catalog, stream)

    async def delivering(
        self, stream: Stream, after: int = 0, upto: int | None = None, limit: int = 1000
    ) -> list[tuple[Event, bytes | None, bytes | None]]:
        decode = self._catalog.decode
        found = []
        for seq, type_, version, at, site, facts, digest, content in self._range(
            _DELIVERING, stream, after, upto, limit
        ):
            known = decode(type_, version, facts, stream, seq)
            found.append((Event(seq, type_, at, None, "", site, known, NO_VIEW), digest, content))
        return found

    async def blob(self, stream: Stream, number: int) -> BlobRow | None:
        found = await self.blobs(stream, number - 1, 1)
        return found[0] if found and found[0].number == number else None

    async def blobs(self, stream: Stream, after: int = 0, limit: int = 1000) -> list[BlobRow]:
        return [BlobRow(*row) for row in self._range(_BLOBS, stream, after, None, limit)]

    async def leaves(self, stream: Stream, after: int = 0, limit: int = 1000) -> list[tuple[int, bytes]]:
        """Numbers of a run's blobs, and what stands for each in part lists; their bytes are not read."""
        sql = (
            "SELECT number, digest, view_digest FROM blobs "
            "WHERE id > ? AND id <= ? AND tenant_id = ? AND workspace_id = ? ORDER BY id LIMIT ?"
        )
        rows = self._range(sql, stream, after, None, limit)
        return [(number, leaf(digest, view_digest)) for number, digest, view_digest in rows]

    async def rows(
        self,
        table: type[R],
        where: Mapping[str, Any] | None = None,
        after: tuple[Any, ...] | None = None,
        limit: int = 1000,
        order: tuple[str, ...] | None = None,
    ) -> list[R]:
        names = tuple(where or ())
        order = order or table.TABLE.key
        sql = _select(table, names, order, after is not None)
        values = (*self.scope, *(where or {}).values(), *(after or ()), limit)
        with translated(self._pool.path):
            found = query(self.connection, sql, values)
        make = row_maker(table)
        return [make(row) for row in found]

    async def each(
        self, table: type[R], where: Mapping[str, Any] | None = None, order: tuple[str, ...] | None = None
    ) -> AsyncIterator[R]:
        sql = _select(table, tuple(where or ()), order or table.TABLE.key, False)
        make = row_maker(table)
        with translated(self._pool.path):
            cursor = self.connection.execute(sql, (*self.scope, *(where or {}).values(), -1))
        try:
            while True:
                with translated(self._pool.path):
                    page = list(islice(cursor, _AT_ONCE))
                if not page:
                    return
                for row in page:
                    yield make(row)
        finally:
            cursor.close(True)

    async def cursor(self, name: str, stream: Stream) -> int:
        with translated(self._pool.path):
            rows = query(
                self.connection,
                "SELECT seq FROM cursors WHERE tenant_id = ? AND workspace_id = ? AND name = ? AND stream = ?",
                (*self.scope, name, str(stream)),
            )
        return rows[0][0] if rows else 0

    async def snapshots(self, stream: Stream) -> list[Snapshot]:
        with translated(self._pool.path):
            rows = query(
                self.connection,
                "SELECT seq, hash, fingerprint, state_digest, state FROM snapshots "
                "WHERE tenant_id = ? AND workspace_id = ? AND stream = ? ORDER BY seq DESC",
                (*self.scope, str(stream)),
            )
        return [Snapshot(*row) for row in rows]

    async def inbox(self, stream: Stream) -> list[InboxItem]:
        with translated(self._pool.path):
            rows = query(
                self.connection,
                "SELECT key, kind, payload, actor, posted_at, delivered_seq FROM inbox "
                "WHERE tenant_id = ? AND workspace_id = ? AND stream = ? AND delivered_seq IS NULL ORDER BY rowid",
                (*self.scope, str(stream)),
            )
        return [InboxItem(*row) for row in rows]

    async def posted(self) -> list[Stream]:
        with translated(self._pool.path):
            rows = query(
                self.connection,
                "SELECT DISTINCT stream FROM inbox WHERE tenant_id = ? AND workspace_id = ? AND delivered_seq IS NULL",
                self.scope,
            )
        return [Stream.parse(name) for (name,) in rows]


class ReaderPool:
    """Idle read connections of one process."""

    def __init__(self, path: Path, opener: Callable[[], apsw.Connection]) -> None:
        self.path = path
        self._opener = opener
        self._idle: list[apsw.Connection] = []
        self.lent: list[apsw.Connection] = []
        """Connections that readers have now."""

    def take(self) -> apsw.Connection:
        connection = self._idle.pop() if self._idle else self._opener()
        self.lent.append(connection)
        return connection

    def give(self, connection: apsw.Connection) -> None:
        self.lent.remove(connection)
        if connection.in_transaction:  # SQLite ends it by itself when reading the file fails.
            connection.execute("ROLLBACK")
        if len(self._idle) < 4:
            self._idle.append(connection)
        else:
            connection.close()

    def close(self) -> None:
        """Closes the idle connections."""
        while self._idle:
            self._idle.pop().close()


def decode_rows(rows: Sequence[tuple[Any, ...]], catalog: Catalog, stream: Stream) -> list[Event]:
    """Whole stored rows as events. Raises UnknownEvent naming stream, seq, type and version."""
    events = []
    for row in rows:
        stored = EventRow._make(row)
        seq, type_ = stored.seq, stored.type
        facts = catalog.decode(type_, stored.version, stored.facts, stream, seq)
        view = NO_VIEW if stored.view is None else decode_view(unseal(stored.view))
        events.append(
            Event(
                seq,
                type_,
                stored.recorded_at,
                stored.occurred_at,
                stored.actor,
                stored.site,
                facts,
                view,
                stored,
            )
        )
    return events


def decode_for_fold(rows: Sequence[tuple[Any, ...]], catalog: Catalog, stream: Stream) -> list[Event]:
    """Rows of the columns that folds need, as events without their stored form."""
    decode = catalog.decode
    events = []
    for seq, type_, version, recorded_at, occurred_at, actor, site, facts, view in rows:
        if view is None:
            shown = NO_VIEW
        elif view[SALT_SIZE:PREFIX] == PLAIN:  # Nearly all views; a call less is a tenth of the decoding.
            shown = decode_view(view[PREFIX:])
        else:
            shown = decode_view(unseal(view))
        known = decode(type_, version, facts, stream, seq)
        events.append(Event(seq, type_, recorded_at, occurred_at, actor, site, known, shown))
    return events


def _page(cursor: apsw.Cursor, large: tuple[int, ...]) -> list[Any]:
    """The rows of a page, fewer than its statement's limit when they are large; none only where there are none."""
    rows: list[Any] = []
    held = 0
    for row in cursor:
        rows.append(row)
        for place in large:
            value = row[place]
            if type(value) is bytes:  # A damaged row may hold anything.
                held += len(value)
        if held >= PAGE_BYTES:
            cursor.close(True)
            break
    return rows


@cache
def _select(table: type[Row], where: tuple[str, ...], order: tuple[str, ...], after: bool) -> str:
    listed = ", ".join(f'"{name}"' for name in columns(table))
    conditions = "".join(f' AND "{name}" = ?' for name in where)
    if after:
        conditions += f" AND ({', '.join(order)}) > ({', '.join('?' * len(order))})"
    return (
        f"SELECT {listed} FROM {table.TABLE.name} WHERE tenant_id = ? AND workspace_id = ?{conditions} "
        f"ORDER BY {', '.join(order)} LIMIT ?"
    )


@cache
def row_maker(table: type[R]) -> Callable[[Sequence[Any]], R]:
    """What builds a row struct from a stored row: booleans are integers in SQLite."""
    booleans = [place for place, name in enumerate(columns(table)) if table.__annotations__.get(name) in ("bool", bool)]
    if not booleans:
        return lambda row: table(*row)

    def make(row: Sequence[Any]) -> R:
        values = list(row)
        for place in booleans:
            values[place] = bool(values[place])
        return table(*values)

    return make
