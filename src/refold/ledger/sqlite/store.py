"""The SQLite adapter: one file, one writing connection a process, turns between processes, readers beside."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeVar

import apsw

from refold.clock import Clock
from refold.events.catalog import CATALOG, Catalog
from refold.events.content import ContentDamaged
from refold.events.envelope import GENESIS, Head, StreamRef
from refold.events.identity import Scope, Stream
from refold.ids import Ids
from refold.ledger import snapshots
from refold.ledger.blobs import leaf
from refold.ledger.errors import CommitUnknown, Fenced, LedgerFailing, RunNotFound, StreamClosed, StreamOwned
from refold.ledger.port import Acquired, Committed, InboxItem, Lost, Outcome, StreamBatch
from refold.ledger.sqlite import commit, heads, schema
from refold.ledger.sqlite.connection import PAGE_SIZE, check_place, connect, must_exist, query, translate, translated
from refold.ledger.sqlite.heads import SHIFT, HeadRow
from refold.ledger.sqlite.incarnation import Incarnation
from refold.ledger.sqlite.lockfile import open_lock_file
from refold.ledger.sqlite.reader import ReaderPool, SqliteReader
from refold.ledger.sqlite.refolding import fold_alone, take_up_intents
from refold.projections import FoldState, new_state
from refold.projections.fingerprint import fingerprint
from refold.projections.rows import IntentRow

T = TypeVar("T")
POLL = 0.05
"""Seconds between looks for commits of other processes."""
_PAGE = 2000

# Connections of a forked parent: closing them in the child would run SQLite's clean-up on the parent's files.
_inherited: list[Any] = []


class SqliteStore:
    """A ledger in one SQLite file. `Store` says what the methods promise."""

    def __init__(
        self, path: Path, clock: Clock, ids: Ids, *, vfs: str | None = None, catalog: Catalog = CATALOG
    ) -> None:
        self.path = path
        self.clock = clock
        self.ids = ids
        self.catalog = catalog
        self._vfs = vfs
        self._secrets: dict[str, bytes] = {}
        self._changed = asyncio.Event()
        self._connect()

    def _connect(self) -> None:
        self._pid = os.getpid()
        self.lock = open_lock_file(str(self.path))
        self.incarnation = Incarnation(self.lock, self.clock)
        self._thread: ThreadPoolExecutor | None = None
        self._writing: apsw.Connection | None = None
        self._pool = ReaderPool(self.path, lambda: connect(self.path, self._vfs, write=False))
        self._seen: int | None = None

    @property
    def pool(self) -> ReaderPool:
        self._after_fork()
        return self._pool

    def _after_fork(self) -> None:
        if self._pid != os.getpid():
            _inherited.extend((self._writing, self._thread, self.lock, *self._pool.abandon()))
            self._connect()

    def _writer(self) -> apsw.Connection:
        if self._writing is None:
            self._writing = connect(self.path, self._vfs, write=True)
            schema.require_current(self._writing, self.path)
        return self._writing

    def in_turn(self, work: Callable[[apsw.Connection], T]) -> T:
        """Runs `work` in a write transaction of its own, in this process's turn."""
        self._after_fork()
        with self.lock.turn(), translated(self.path):
            connection = self._writer()
            connection.execute("BEGIN IMMEDIATE")
            try:
                result = work(connection)
                connection.execute("COMMIT")
            except BaseException:
                self.incarnation.rolled_back()
                if not connection.getautocommit():
                    connection.execute("ROLLBACK")
                raise
        self._changed.set()
        return result

    # Reading

    def reader(self, scope: Scope) -> SqliteReader:
        return SqliteReader(scope, self.pool, self.catalog, self.secret)

    def secret(self, scope: Scope) -> bytes:
        known = self._secrets.get(scope.tenant)
        if known is None:
            known = self._secrets[scope.tenant] = self._read_secret(scope.tenant) or self._make_secret(scope.tenant)
        return known

    def _read_secret(self, tenant: str, connection: apsw.Connection | None = None) -> bytes | None:
        pooled = connection is None
        using = self.pool.take() if connection is None else connection
        try:
            with translated(self.path):
                if pooled:
                    using.execute("BEGIN")
                rows = query(
                    using,
                    "SELECT secret, row_digest FROM secrets WHERE tenant_id = ? AND workspace_id = '*' AND name = 'digests'",
                    (tenant,),
                )
        finally:
            if pooled:
                self.pool.give(using)
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

        return self.in_turn(make)

    async def find_part(self, stream_no: int, scope: Scope, lookup: bytes) -> tuple[int, bytes] | None:
        connection = self.pool.take()
        try:
            with translated(self.path):
                connection.execute("BEGIN")
                rows = query(
                    connection,
                    "SELECT number, digest, view_digest FROM blobs "
                    "WHERE tenant_id = ? AND workspace_id = ? AND stream_no = ? AND lookup = ?",
                    (*scope, stream_no, lookup),
                )
        finally:
            self.pool.give(connection)
        return (rows[0][0], leaf(rows[0][1], rows[0][2])) if rows else None

    async def next_blob(self, scope: Scope, stream_no: int) -> int:
        """The number that the stream's next blob gets."""
        connection = self.pool.take()
        try:
            with translated(self.path):
                connection.execute("BEGIN")
                rows = query(
                    connection,
                    "SELECT max(id) FROM blobs WHERE id > ? AND id <= ?",
                    (stream_no << SHIFT, stream_no << SHIFT | heads.SEQ_LIMIT),
                )
        finally:
            self.pool.give(connection)
        return 1 if rows[0][0] is None else (rows[0][0] & heads.SEQ_LIMIT) + 1

    async def intents(self, scope: Scope, ids: Sequence[str]) -> list[IntentRow]:
        async with self.reader(scope) as reader:
            return [row for each in ids for row in await reader.rows(IntentRow, {"intent_id": each})]

    async def load(self, scope: Scope, stream: Stream) -> FoldState:
        async with self.reader(scope) as reader:
            return await load(reader, stream)

    def all_streams(self) -> tuple[list[HeadRow], str | None]:
        """Every head row of every scope, in order, unchecked; and a name for events or blobs that no head stands for, if any."""
        connection = self.pool.take()
        try:
            with translated(self.path):
                connection.execute("BEGIN")
                found = [
                    HeadRow(*row)
                    for row in connection.execute(
                        f"SELECT {heads.COLUMNS} FROM stream_heads ORDER BY tenant_id, workspace_id, stream"
                    )
                ]
                numbers = {row.stream_no for row in found}
                return found, next(
                    (name for table in ("events", "blobs") if (name := _stray(connection, table, numbers))),
                    None,
                )
        finally:
            self.pool.give(connection)

    # Writing

    async def acquire(self, scope: Scope, stream: Stream, *, create: bool = False) -> Acquired:
        def take(connection: apsw.Connection) -> Acquired:
            me = self.incarnation.register(connection)
            row = heads.find(connection, scope, stream)
            if row is None:
                if not create:
                    raise RunNotFound(
                        f"There is no stream {stream} in scope {scope}.", stream=str(stream), scope=str(scope)
                    )
                row = heads.insert(connection, HeadRow(0, *scope, str(stream), 0, GENESIS, 1, me, 0, 0, b""))
                return Acquired(row.stream_no, row.head)
            if row.closed:
                raise StreamClosed(f"{stream} has ended and takes no more events.", stream=str(stream))
            if row.owner is not None and row.owner != me and self.incarnation.is_dead(connection, row.owner) is None:
                raise StreamOwned(
                    f"{stream} is being written by process {row.owner} of this ledger.", stream=str(stream)
                )
            mine = row._replace(owner=me, epoch=row.epoch + 1)
            heads.replace(connection, row, mine)
            return Acquired(mine.stream_no, mine.head)

        return await self._threaded(lambda: self.in_turn(take))

    async def release(self, scope: Scope, stream: Stream, epoch: int) -> None:
        def let_go(connection: apsw.Connection) -> None:
            row = heads.find(connection, scope, stream)
            if row is not None and row.epoch == epoch and row.owner == self.incarnation.number:
                heads.replace(connection, row, row._replace(owner=None))

        await self._threaded(lambda: self.in_turn(let_go))

    async def renew(self) -> None:
        """Renews this process's lease where it is due."""
        if self.incarnation.number is not None:
            await self._threaded(lambda: self.in_turn(self.incarnation.register))

    async def post(self, scope: Scope, stream: Stream, item: InboxItem) -> bool:
        def put(connection: apsw.Connection) -> bool:
            if heads.find(connection, scope, stream) is None:
                raise RunNotFound(
                    f"There is no stream {stream} in scope {scope}.", stream=str(stream), scope=str(scope)
                )
            connection.execute(
                "INSERT INTO inbox VALUES (?, ?, ?, ?, ?, ?, ?, ?, NULL) ON CONFLICT DO NOTHING",
                (*scope, str(stream), item.key, item.kind, item.payload, item.actor, item.posted_at),
            )
            return connection.changes() == 1

        return await self._threaded(lambda: self.in_turn(put))

    async def commit(self, batches: Sequence[StreamBatch]) -> list[Outcome]:
        self._after_fork()
        # When nobody else writes, the commit runs right here: a hand-off to a thread costs as much as the commit.
        if self.lock.try_turn():
            return self._commit_and_leave(batches)
        return await self._threaded(lambda: self._wait_and_commit(batches))

    def _wait_and_commit(self, batches: Sequence[StreamBatch]) -> list[Outcome]:
        self.lock.take_turn()
        return self._commit_and_leave(batches)

    def _commit_and_leave(self, batches: Sequence[StreamBatch]) -> list[Outcome]:
        try:
            return self._commit(list(batches), retry=True)
        finally:
            self.lock.leave()
            self._changed.set()

    def _commit(self, batches: list[StreamBatch], retry: bool) -> list[Outcome]:
        try:
            connection = self._writer()
            connection.execute("BEGIN IMMEDIATE")
        except apsw.Error as error:
            return [Lost(translate(error, self.path)) for _ in batches]
        except Exception as error:
            return [Lost(error) for _ in batches]
        try:
            owner = self.incarnation.register(connection)
            outcomes = commit.write_batches(connection, self.path, batches, owner)
        except apsw.Error as error:
            self.incarnation.rolled_back()
            if not connection.getautocommit():
                connection.execute("ROLLBACK")
            return [Lost(translate(error, self.path)) for _ in batches]
        except BaseException as error:
            connection.execute("ROLLBACK")
            if not isinstance(error, Exception):
                raise
            return [Lost(error) for _ in batches]
        try:
            connection.execute("COMMIT")
        except apsw.Error as error:
            return self._find_out(batches, outcomes, error, retry)
        return outcomes

    def _find_out(
        self, batches: list[StreamBatch], outcomes: list[Outcome], error: apsw.Error, retry: bool
    ) -> list[Outcome]:
        """COMMIT failed: whether it took effect is not known, and is read from the heads on a new connection."""
        self.incarnation.rolled_back()
        try:
            self._drop_writer()
            connection = self._writer()
            fates = commit.resolve(connection, batches)
            if "committed" in fates:
                # The call that failed may have been the fsync: only a full checkpoint makes these bytes durable for certain.
                query(connection, "PRAGMA wal_checkpoint(FULL)")
        except Exception as later:
            unknown = CommitUnknown(
                f"A commit to {self.path.name} failed ({error}), and the ledger cannot be read: {later}."
            )
            return [Lost(unknown) for _ in batches]
        result: list[Outcome] = []
        for batch, outcome, fate in zip(batches, outcomes, fates, strict=True):
            if isinstance(outcome, Lost):
                result.append(outcome)
            elif fate == "committed":
                number = batch.stream_no
                if number is None:
                    row = heads.find(connection, batch.scope, batch.stream)
                    number = 0 if row is None else row.stream_no
                result.append(Committed(number))
            elif fate == "fenced":
                result.append(Lost(Fenced(f"{batch.stream} was written by another process during a failed commit.")))
            elif retry:
                result.extend(self._commit([batch], retry=False))
            else:
                result.append(Lost(translate(error, self.path)))
        return result

    def _drop_writer(self) -> None:
        if self._writing is not None:
            connection, self._writing = self._writing, None
            try:
                connection.close(True)
            except apsw.Error as error:
                raise LedgerFailing(f"The connection to {self.path.name} cannot be closed: {error}.") from error

    async def _threaded(self, work: Callable[[], T]) -> T:
        self._after_fork()
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, thread_name_prefix="refold-writer")
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    # Watching and ending

    async def changed(self) -> None:
        self._changed.clear()
        while not self._changed.is_set():
            version = self._data_version()
            if self._seen is not None and version != self._seen:
                self._seen = version
                return
            self._seen = version
            try:
                await asyncio.wait_for(self._changed.wait(), POLL)
            except TimeoutError:
                continue

    def _data_version(self) -> int:
        connection = self.pool.take()
        try:
            connection.execute("BEGIN")
            found: int = query(connection, "PRAGMA data_version")[0][0]
            return found
        finally:
            self.pool.give(connection)

    async def close(self) -> None:
        self._after_fork()
        if self._thread is not None:
            self._thread.shutdown(wait=True)
            self._thread = None
        with self.lock.turn():
            self._pool.close()
            if self._writing is not None:
                self._writing.close()
                self._writing = None
        self.incarnation.end()
        self.lock.close()


async def load(reader: SqliteReader, stream: Stream) -> FoldState:
    """The fold of a stream at its head: from the newest snapshot that can be trusted, then the events after it."""
    ref = StreamRef(reader.scope, stream)
    head = await reader.head(stream)
    state = new_state(reader.scope, stream)
    if head is None:
        return state
    found = await reader.snapshots(stream)
    hash_at = {}
    for snapshot in found:
        if snapshot.seq <= head.head.seq:
            rows = await reader.raw_events(stream, snapshot.seq - 1, snapshot.seq, 1)
            hash_at.update({row.seq: row.hash for row in rows})
    state = snapshots.choose(ref, found, hash_at, head.head.seq, fingerprint()) or state
    while state.open.seq < head.head.seq:
        page = await reader.folding(stream, state.open.seq, limit=_PAGE)
        if not page:
            break
        fold_alone(state, page, reader.connection)
        state.take()
    take_up_intents(state, reader.connection)
    return state


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


def open_store(
    path: Path, clock: Clock, ids: Ids, *, create: bool, vfs: str | None = None, catalog: Catalog = CATALOG
) -> SqliteStore:
    """Opens a ledger, or makes one where there is no file and `create` is set. Raises typed errors and touches nothing else's file."""
    check_place(path)
    if not create:
        must_exist(path)
    elif not path.exists() or path.stat().st_size == 0:
        _make(path, clock, ids, vfs)
    must_exist(path)
    probe = connect(path, vfs, write=False)
    try:
        with translated(path):
            schema.check(probe, path)
    finally:
        probe.close()
    return SqliteStore(path, clock, ids, vfs=vfs, catalog=catalog)


def _make(path: Path, clock: Clock, ids: Ids, vfs: str | None) -> None:
    lock = open_lock_file(str(path))
    try:
        with lock.turn(), translated(path):
            connection = apsw.Connection(str(path), vfs=vfs)
            try:
                connection.set_busy_timeout(5000)
                connection.execute(f"PRAGMA page_size = {PAGE_SIZE}")
                query(connection, "PRAGMA journal_mode = WAL")
                connection.execute("PRAGMA synchronous = FULL")
                connection.execute("BEGIN IMMEDIATE")
                if schema.is_empty(connection):  # Otherwise another process made it while this one waited.
                    schema.create(connection, clock, ids)
                connection.execute("COMMIT")
            finally:
                connection.close()
    finally:
        lock.close()


__all__ = ["GENESIS", "Head", "SqliteStore", "load", "open_store"]
