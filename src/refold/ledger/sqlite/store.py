"""The SQLite adapter: one file, one writing connection a process, turns between processes, readers beside."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path

import apsw

from refold.clock import Clock
from refold.events.catalog import CATALOG, Catalog
from refold.events.content import ContentDamaged
from refold.events.envelope import GENESIS
from refold.events.identity import Scope, Stream
from refold.ids import Ids
from refold.ledger.blobs import leaf
from refold.ledger.errors import BeyondHead, RunNotFound, StreamClosed, StreamOwned
from refold.ledger.loading import load
from refold.ledger.port import Acquired, InboxItem, Outcome, StreamBatch, StreamRecord
from refold.ledger.sqlite import heads
from refold.ledger.sqlite.access import Access
from refold.ledger.sqlite.committing import run_commit
from refold.ledger.sqlite.connection import query
from refold.ledger.sqlite.heads import SHIFT, HeadRow
from refold.ledger.sqlite.reader import ReaderPool, SqliteReader
from refold.ledger.sqlite.recovering import unowned_runs
from refold.projections import FoldState
from refold.projections.rows import IntentRow, RunRow

POLL = 0.05
"""Seconds between looks for commits of other processes: the floor under every wake-up."""


class SqliteStore:
    """A ledger in one SQLite file. `Store` says what the methods promise."""

    def __init__(
        self, path: Path, clock: Clock, ids: Ids, *, vfs: str | None = None, catalog: Catalog = CATALOG
    ) -> None:
        self.path = path
        self.clock = clock
        self.ids = ids
        self.catalog = catalog
        self.access = Access(path, clock, vfs)
        self._secrets: dict[str, bytes] = {}
        self._news = asyncio.Event()

    @property
    def pool(self) -> ReaderPool:
        return self.access.pool

    # Reading

    def reader(self, scope: Scope) -> SqliteReader:
        return SqliteReader(scope, self.pool, self.catalog, self.secret)

    def secret(self, scope: Scope) -> bytes:
        known = self._secrets.get(scope.tenant)
        if known is None:
            known = self._secrets[scope.tenant] = self._read_secret(scope.tenant) or self._make_secret(scope.tenant)
        return known

    def _read_secret(self, tenant: str, connection: apsw.Connection | None = None) -> bytes | None:
        if connection is None:
            with self.access.reading() as connection:
                return self._read_secret(tenant, connection)
        rows = query(
            connection,
            "SELECT secret, row_digest FROM secrets WHERE tenant_id = ? AND workspace_id = '*' AND name = 'digests'",
            (tenant,),
        )
        if not rows:
            return None
        secret, digest = rows[0]
        if heads.row_digest(tenant, secret) != digest:
            raise ContentDamaged(
                f"The secret of tenant {tenant} is damaged; no digest of it can be checked.", tenant=tenant
            )
        found: bytes = secret
        return found

    def _make_secret(self, tenant: str) -> bytes:
        fresh = sha256(self.ids.random(32)).digest()

        def make(connection: apsw.Connection) -> bytes:
            there = self._read_secret(tenant, connection)
            if there is None:
                connection.execute(
                    "INSERT INTO secrets VALUES (?, '*', 'digests', ?, ?)",
                    (tenant, fresh, heads.row_digest(tenant, fresh)),
                )
            return there or fresh

        return self.access.in_turn(make)

    async def find_part(self, stream_no: int, scope: Scope, lookup: bytes) -> tuple[int, bytes] | None:
        with self.access.reading() as connection:
            rows = query(
                connection,
                "SELECT number, digest, view_digest FROM blobs "
                "WHERE tenant_id = ? AND workspace_id = ? AND stream_no = ? AND lookup = ?",
                (*scope, stream_no, lookup),
            )
        return (rows[0][0], leaf(rows[0][1], rows[0][2])) if rows else None

    async def next_blob(self, scope: Scope, stream_no: int) -> int:
        """The number that the stream's next blob gets."""
        with self.access.reading() as connection:
            last = query(
                connection,
                "SELECT max(id) FROM blobs WHERE id > ? AND id <= ? AND tenant_id = ? AND workspace_id = ?",
                (stream_no << SHIFT, stream_no << SHIFT | heads.SEQ_LIMIT, *scope),
            )[0][0]
        return 1 if last is None else (last & heads.SEQ_LIMIT) + 1

    async def intents(self, scope: Scope, ids: Sequence[str]) -> list[IntentRow]:
        async with self.reader(scope) as reader:
            return [row for each in ids for row in await reader.rows(IntentRow, {"intent_id": each})]

    async def load(self, scope: Scope, stream: Stream) -> FoldState:
        async with self.reader(scope) as reader:
            return await load(reader, stream)

    def all_streams(self) -> tuple[list[StreamRecord], str | None]:
        with self.access.reading() as connection:
            # From the table itself: SQLite would take what it can from the index, and a flip in the table would go
            # unseen.
            found = [
                HeadRow(*row) for row in query(connection, f"SELECT {heads.COLUMNS} FROM stream_heads NOT INDEXED")
            ]
            numbers = {row.stream_no for row in found}
            stray = next((name for table in ("events", "blobs") if (name := _stray(connection, table, numbers))), None)
        return sorted(
            StreamRecord(str(row.tenant_id), str(row.workspace_id), str(row.stream), row.seq, row.intact)
            for row in found
        ), stray

    def structure(self) -> str | None:
        """What SQLite finds wrong with the trees that hold the proven tables, None when nothing: keys out of order,
        an index that disagrees with its table. A reader that scans may see every row and one that looks a row up may
        not.
        """
        with self.access.reading() as connection:
            for table in ("stream_heads", "events", "blobs"):
                found = query(connection, f"PRAGMA integrity_check({table})")
                if found != [("ok",)]:
                    return f"{table}: {found[0][0]}"
        return None

    # Writing

    async def acquire(self, scope: Scope, stream: Stream, *, create: bool = False) -> Acquired:
        def take(connection: apsw.Connection) -> Acquired:
            me = self.access.incarnation.register(connection)
            row = heads.find(connection, scope, stream)
            if row is None:
                if not create:
                    raise _no_stream(scope, stream)
                row = heads.insert(connection, HeadRow(0, *scope, str(stream), 0, GENESIS, 1, me, 0, 0, b""))
                return Acquired(row.stream_no, row.head)
            if row.closed:
                raise StreamClosed(f"{stream} has ended and takes no more events.", stream=str(stream))
            if (
                row.owner is not None
                and row.owner != me
                and self.access.incarnation.is_dead(connection, row.owner) is None
            ):
                raise StreamOwned(
                    f"{stream} is being written by process {row.owner} of this ledger.", stream=str(stream)
                )
            mine = row._replace(owner=me, epoch=row.epoch + 1)
            heads.replace(connection, row, mine)
            return Acquired(mine.stream_no, mine.head)

        return await self.access.write(take)

    async def release(self, scope: Scope, stream: Stream, epoch: int) -> None:
        def let_go(connection: apsw.Connection) -> None:
            row = heads.find(connection, scope, stream)
            if row is not None and row.epoch == epoch and row.owner == self.access.incarnation.number:
                heads.replace(connection, row, row._replace(owner=None))

        await self.access.write(let_go)

    async def owned_elsewhere(self, scope: Scope, stream: Stream) -> bool:
        with self.access.reading() as connection:
            row = heads.find(connection, scope, stream)
            if row is None or row.owner is None:
                return False
            me = self.access.incarnation
            return row.owner != me.number and me.is_dead(connection, row.owner) is None

    async def renew(self) -> None:
        """Renews this process's lease where it is due."""
        if self.access.incarnation.number is not None:
            await self.access.write(self.access.incarnation.register)

    async def move_cursor(self, scope: Scope, name: str, stream: Stream, seq: int) -> None:
        def move(connection: apsw.Connection) -> None:
            row = heads.find(connection, scope, stream)
            if row is None:
                raise _no_stream(scope, stream)
            if not 0 <= seq <= row.seq:
                raise BeyondHead(
                    f"{stream} stands at seq {row.seq}; a cursor cannot stand at {seq}.", stream=str(stream), seq=seq
                )
            connection.execute(
                "INSERT INTO cursors VALUES (?, ?, ?, ?, ?, ?) "
                "ON CONFLICT DO UPDATE SET seq = excluded.seq, updated_at = excluded.updated_at",
                (*scope, name, str(stream), seq, self.clock.now()),
            )

        await self.access.write(move)

    async def post(self, scope: Scope, stream: Stream, item: InboxItem) -> bool:
        def put(connection: apsw.Connection) -> bool:
            if heads.find(connection, scope, stream) is None:
                raise _no_stream(scope, stream)
            connection.execute(
                "INSERT INTO inbox VALUES (?, ?, ?, ?, ?, ?, ?, ?, NULL) ON CONFLICT DO NOTHING",
                (*scope, str(stream), item.key, item.kind, item.payload, item.actor, item.posted_at),
            )
            return connection.changes() == 1

        fresh = await self.access.write(put)
        self._tell()
        return fresh

    async def commit(self, batches: Sequence[StreamBatch]) -> list[Outcome]:
        outcomes = await run_commit(self.access, batches)
        self._tell()
        return outcomes

    async def unowned_runs(self, scope: Scope, after: str, limit: int) -> list[RunRow]:
        def look(connection: apsw.Connection) -> list[RunRow]:
            return unowned_runs(connection, self.access.incarnation, scope, after, limit)

        # In the turn: to see whether a process lives, its lock is tried, and two who try at once would see each other.
        return await self.access.threaded(lambda: self.access.alone(look))

    # Watching and ending

    def _tell(self) -> None:
        # Everybody who waits holds the old event; who comes later gets the new one.
        news, self._news = self._news, asyncio.Event()
        news.set()

    async def changed(self) -> None:
        try:
            async with asyncio.timeout(POLL):
                await self._news.wait()
        except TimeoutError:
            return  # Other processes do not tell; whoever waits looks for himself.

    async def close(self) -> None:
        self.access.close()


def _no_stream(scope: Scope, stream: Stream) -> RunNotFound:
    return RunNotFound(f"There is no stream {stream} in scope {scope}.", stream=str(stream), scope=str(scope))


def _stray(connection: apsw.Connection, table: str, numbers: set[int]) -> str | None:
    """The first row of a table whose stream does not exist. Skips from stream to stream: one look-up each."""
    last = 0
    while True:
        rows = query(connection, f"SELECT id FROM {table} WHERE id >= ? ORDER BY id LIMIT 1", (last,))
        if not rows:
            first = query(connection, f"SELECT id FROM {table} WHERE id < 0 LIMIT 1")
            return f"{table} with id {first[0][0]}" if first else None
        number = rows[0][0] >> SHIFT
        if number not in numbers:
            return f"{table} of stream number {number}"
        last = (number + 1) << SHIFT
