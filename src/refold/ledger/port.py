"""The ledger's port: what every store must do, and nothing about how.

A `Store` is opened once a process. There is no function that takes a run's id without a scope. Reading happens in a
`Reader`: one consistent state of a scope for as long as it is open. Writing happens in batches that `commit` makes
durable, stream by stream, by compare-and-set on the head.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

from refold.events.envelope import Event, EventRow, Head
from refold.events.identity import Scope, Stream
from refold.projections import FoldState, Row
from refold.projections.rows import IntentRow, RunRow

R = TypeVar("R", bound=Row)


MAX_SEQ = (1 << 32) - 1
"""Events that one stream can hold."""

LEASE = 60_000_000
"""Microseconds that a process may own streams without renewing its lease."""


class StreamHead(NamedTuple):
    """A stream as its head row shows it. `owner` is the incarnation that holds it, None when nobody does; `intact` is
    False when the row is not what was written.
    """

    stream: Stream
    head: Head
    closed: bool
    erased: bool
    owner: int | None
    intact: bool = True


class BlobRow(NamedTuple):
    """A numbered blob of a run: a part of a growing request, or an artifact. `stored` is salted like all content;
    where the bytes are in a file, it is the salt alone.

    `lookup` is the HMAC by which an equal part is found again, None for artifacts. `view` is its redacted form where
    the scan found a secret in it.
    """

    number: int
    lookup: bytes | None
    digest: bytes
    stored: bytes | None
    view_digest: bytes | None = None
    view: bytes | None = None


class Snapshot(NamedTuple):
    """A fold's open state at a seq of a stream, bound to the chain by the hash there and to the code by the
    fingerprint.
    """

    seq: int
    hash: bytes
    fingerprint: str
    state_digest: bytes
    state: bytes


class InboxItem(NamedTuple):
    """Something that somebody else wants the owner of a stream to deliver. `key` deduplicates within the stream."""

    key: str
    kind: str
    payload: bytes
    actor: str
    posted_at: int
    delivered_seq: int | None = None


class IntentMove(NamedTuple):
    """An intent as a batch leaves it, and the revision that it builds on: 0 where it makes the intent."""

    before: int
    row: tuple[Any, ...]


class StreamBatch(NamedTuple):
    """What one writer has ready for one commit."""

    scope: Scope
    stream: Stream
    stream_no: int | None
    """The store's number of the stream; None: the commit creates it."""
    previous: Head
    head: Head
    closed: bool
    events: Sequence[EventRow]
    blobs: Sequence[BlobRow]
    rows: Sequence[tuple[type[Row], tuple[Any, ...]]]
    """Of every table but that of intents."""
    intents: Sequence[IntentMove]
    snapshot: Snapshot | None
    delivered: Sequence[tuple[str, int]]
    """Inbox keys and the seq at which each was delivered."""


class StreamRecord(NamedTuple):
    """One stream of any scope, for work on the whole ledger. Names as they are stored: of a changed row they may be
    anything.
    """

    tenant: str
    workspace: str
    stream: str
    seq: int
    intact: bool


class Committed(NamedTuple):
    """The batch is durable."""

    stream_no: int


class Lost(NamedTuple):
    """The batch is not there and will not be: `error` says why (Fenced, IntentMoved, LedgerFull, a key that is
    taken...).
    """

    error: Exception


Outcome = Committed | Lost


class Acquired(NamedTuple):
    """The right to write to a stream."""

    stream_no: int
    head: Head


class Reader(Protocol):
    """One consistent state of a scope, from the first read until it is closed. An async context manager."""

    scope: Scope

    @property
    def secret(self) -> bytes:
        """The tenant's secret behind the keyed digests."""
        ...

    async def __aenter__(self) -> Reader: ...

    async def __aexit__(self, *exc: object) -> None: ...

    async def head(self, stream: Stream) -> StreamHead | None:
        """The stream's head; None when it does not exist in this scope."""
        ...

    async def heads(self, after: Stream | None = None, limit: int = 1000) -> list[StreamHead]:
        """The scope's streams in the order of their names."""
        ...

    async def raw_events(
        self, stream: Stream, after: int = 0, upto: int | None = None, limit: int = 1000
    ) -> list[EventRow]:
        """Events with after < seq <= upto, in order, as they are stored: at most `limit`, and fewer, but not none, when
        they are large. So are the pages of the next two, and those of blobs.
        """
        ...

    async def proving(self, stream: Stream, after: int = 0, limit: int = 1000) -> Sequence[tuple[Any, ...]]:
        """The same for a proof, which reads every event there is: columns in `EventRow`'s order, without its names."""
        ...

    async def events(self, stream: Stream, after: int = 0, upto: int | None = None, limit: int = 1000) -> list[Event]:
        """The same, decoded. Raises UnknownEvent."""
        ...

    async def folding(self, stream: Stream, after: int = 0, upto: int | None = None, limit: int = 1000) -> list[Event]:
        """The same for a fold: decoded, without content and stored form."""
        ...

    async def delivering(
        self, stream: Stream, after: int = 0, upto: int | None = None, limit: int = 1000
    ) -> list[tuple[Event, bytes | None, bytes | None]]:
        """The same for code that runs again: decoded, without view and stored form, each with the digest of its content
        and the content as it is stored.
        """
        ...

    async def blob(self, stream: Stream, number: int) -> BlobRow | None: ...

    async def blobs(self, stream: Stream, after: int = 0, limit: int = 1000) -> list[BlobRow]: ...

    async def leaves(self, stream: Stream, after: int = 0, limit: int = 1000) -> list[tuple[int, bytes]]:
        """Numbers of a run's blobs, and what stands for each in part lists; their bytes are not read."""
        ...

    async def rows(
        self,
        table: type[R],
        where: Mapping[str, Any] | None = None,
        after: tuple[Any, ...] | None = None,
        limit: int = 1000,
        order: tuple[str, ...] | None = None,
    ) -> list[R]:
        """Rows whose columns equal `where`, ordered by `order` (default: the table's key), after the given position."""
        ...

    def each(
        self, table: type[R], where: Mapping[str, Any] | None = None, order: tuple[str, ...] | None = None
    ) -> AsyncIterator[R]:
        """The same rows one by one: selected and sorted once, however many there are, and never all in memory."""
        ...

    async def runs_beginning(self, prefix: str) -> list[str]:
        """Ids of at most two runs that begin so."""
        ...

    async def cursor(self, name: str, stream: Stream) -> int:
        """Where a named cursor stands in a stream; 0 when nobody moved it yet."""
        ...

    async def snapshots(self, stream: Stream) -> list[Snapshot]:
        """Newest first."""
        ...

    async def inbox(self, stream: Stream) -> list[InboxItem]:
        """What was posted and not yet delivered, oldest first."""
        ...

    async def posted(self) -> list[Stream]:
        """The streams whose inbox holds something that was not delivered yet."""
        ...


class Store(Protocol):
    """A database that keeps the ledger. SQLite is built in; `refold.ledger.conformance` judges any other."""

    def secret(self, scope: Scope) -> bytes:
        """The tenant's secret behind all keyed digests; made at first use."""
        ...

    def reader(self, scope: Scope) -> Reader: ...

    async def acquire(self, scope: Scope, stream: Stream, *, create: bool = False) -> Acquired:
        """Makes this process the stream's writer, with a new epoch. Raises StreamOwned, RunNotFound, StreamClosed."""
        ...

    async def release(self, scope: Scope, stream: Stream, epoch: int) -> None: ...

    async def owned_elsewhere(self, scope: Scope, stream: Stream) -> bool:
        """Whether another process that may still write owns the stream. A dead or expired one does not."""
        ...

    async def commit(self, batches: Sequence[StreamBatch]) -> list[Outcome]:
        """Makes batches durable, each whole or not at all, none failing for another's conflict.

        A batch is lost where its stream no longer stands at `previous` (Fenced), or one of its intents no longer at the
        revision that it builds on (IntentMoved).
        """
        ...

    async def intents(self, scope: Scope, ids: Sequence[str]) -> list[IntentRow]:
        """The rows of these intents as they stand, for a stream that touches them for the first time."""
        ...

    async def unowned_runs(self, scope: Scope, after: str, limit: int) -> list[RunRow]:
        """Runs that have not ended and that nobody writes, by id and behind `after`: their owner let go of them, or is
        dead, or its lease has expired. A run that this process owns is not among them.
        """
        ...

    async def find_part(self, stream_no: int, scope: Scope, lookup: bytes) -> tuple[int, bytes] | None:
        """Number and leaf digest of a committed part with this HMAC."""
        ...

    async def load(self, scope: Scope, stream: Stream) -> FoldState:
        """The fold of a stream at its head: newest trustworthy snapshot, then the tail."""
        ...

    async def post(self, scope: Scope, stream: Stream, item: InboxItem) -> bool:
        """Puts an item into a stream's inbox; False when its key was there already. Wakes those who wait in
        `changed`.
        """
        ...

    async def move_cursor(self, scope: Scope, name: str, stream: Stream, seq: int) -> None:
        """Puts a named cursor, which survives restarts, to a seq that was scanned. Raises BeyondHead, RunNotFound."""
        ...

    async def next_blob(self, scope: Scope, stream_no: int) -> int:
        """The number that the stream's next blob gets."""
        ...

    async def renew(self) -> None:
        """Renews this process's lease where it is due."""
        ...

    def all_streams(self) -> tuple[list[StreamRecord], str | None]:
        """Every stream of every scope, in order; and a name for events or blobs that belong to none, if
        there are any.
        """
        ...

    def structure(self) -> str | None:
        """What the database itself finds wrong with the tables that are proven; None when nothing."""
        ...

    async def changed(self) -> None:
        """Returns when something may have been committed or posted by any process: by this one, at once; by another,
        after the poll interval.
        """
        ...

    async def close(self) -> None: ...
