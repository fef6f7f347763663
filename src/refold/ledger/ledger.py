"""The ledger as the rest of refold uses it: open it, choose a scope, create runs, write streams, read, follow."""

from __future__ import annotations

import asyncio
import logging
import os
import weakref
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from refold.clock import Clock, SystemClock
from refold.errors import RefoldError
from refold.events.catalog import CATALOG, Catalog
from refold.events.catalog.run import RunCreated
from refold.events.envelope import GENESIS, Event, Head
from refold.events.identity import Scope, Stream, keyed_digest
from refold.events.redaction import Redactor
from refold.ids import Ids, SystemIds
from refold.ledger.artifacts import ArtifactFiles
from refold.ledger.drafts import Draft
from refold.ledger.errors import BeyondHead, CaptureModeUnavailable, KeyConflict, RunNotFound, StreamOwned
from refold.ledger.group import GroupCommit
from refold.ledger.lookups import each_event, run_head
from refold.ledger.port import LEASE, InboxItem, Reader, Store
from refold.ledger.writer import StreamWriter
from refold.projections import FoldState, new_state
from refold.projections.fingerprint import fingerprint
from refold.projections.rows import RunRow

_log = logging.getLogger("refold.ledger")


class Existing(msgspec.Struct, frozen=True):
    """A run that already has the key which a new one was to get."""

    run_id: str
    row: RunRow


class Ledger:
    """An open ledger. Made by `open_ledger`; an async context manager."""

    def __init__(self, store: Store, path: Path, clock: Clock, ids: Ids, redactor: Redactor) -> None:
        self.store = store
        self.path = path
        """The ledger's file."""
        self.clock = clock
        self.ids = ids
        self.redactor = redactor
        self.group = GroupCommit(store)
        self.files = ArtifactFiles.beside(path)
        self._writers: weakref.WeakValueDictionary[tuple[Scope, Stream], StreamWriter] = weakref.WeakValueDictionary()
        self._opening: set[tuple[Scope, Stream]] = set()
        self._heart: asyncio.Task[None] | None = None
        self._pid = os.getpid()

    def scope(self, scope: Scope | str = Scope()) -> ScopedLedger:  # noqa: B008 - an immutable tuple
        """The ledger as one tenant's workspace sees it. Nothing of another can be reached through it."""
        return ScopedLedger(self, Scope.parse(scope) if isinstance(scope, str) else scope.checked())

    def register(self, writer: StreamWriter) -> None:
        """Keeps the process's lease alive while the writer lives."""
        self._here()
        self._writers[writer.scope, writer.stream] = writer
        if self._heart is None or self._heart.done():  # Done: its event loop has ended, and this is another.
            self._heart = asyncio.get_running_loop().create_task(self._beat())

    def writing(self, scope: Scope, stream: Stream) -> bool:
        """Whether a writer of this process has the stream, or is being opened on it."""
        self._here()
        writer = self._writers.get((scope, stream))
        return (scope, stream) in self._opening or (writer is not None and writer.alive)

    @contextmanager
    def opening(self, scope: Scope, stream: Stream) -> Iterator[None]:
        """Opening a stream takes several turns of the event loop: others of this process, which the store does not tell
        apart, are refused from the first on, or they would fence each other. Raises StreamOwned.
        """
        if self.writing(scope, stream):
            raise StreamOwned(f"{stream} has an open writer in this process.", stream=str(stream))
        self._opening.add((scope, stream))
        try:
            yield
        finally:
            self._opening.discard((scope, stream))

    def _here(self) -> None:
        if self._pid != os.getpid():  # A forked child has neither its parent's streams nor its heart.
            self._pid = os.getpid()
            self._writers.clear()
            self._opening.clear()
            self._heart = None

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(LEASE / 3 / 1_000_000)
            try:
                await self.store.renew()
            except RefoldError as error:
                _log.warning("the lease of this process was not renewed: %s", error)

    async def close(self) -> None:
        """Commits what is open and closes the file. Writers that were not closed are released by the lease."""
        await self.group.flush()
        self._here()
        if self._heart is not None:
            self._heart.cancel()
            self._heart = None
        await self.store.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        await self.close()


class ScopedLedger:
    """One tenant's workspace in a ledger."""

    def __init__(self, ledger: Ledger, scope: Scope) -> None:
        self.ledger = ledger
        self.scope = scope

    @property
    def secret(self) -> bytes:
        """The tenant's secret behind all keyed digests."""
        return self.ledger.store.secret(self.scope)

    def reader(self) -> Reader:
        """One consistent state of this scope: `async with scope.reader() as r`."""
        return self.ledger.store.reader(self.scope)

    def key_digest(self, key: str) -> str:
        """What stands in facts for a caller's name of a run."""
        return keyed_digest(self.secret, "run key", key.encode("utf-8", "surrogatepass")).hex()

    async def find(self, key: str) -> Existing | None:
        """The latest run of the lineage that has this key."""
        async with self.reader() as reader:
            rows = await reader.rows(RunRow, {"key_digest": self.key_digest(key)}, order=("attempt_no",))
        return Existing(rows[-1].run_id, rows[-1]) if rows else None

    async def create(
        self, created: Draft, run_id: str | None = None, key: str | None = None
    ) -> StreamWriter | Existing:
        """Starts a run's stream with `run.created`, durable when this returns.

        With a `key` that a run of this scope has already, that run is returned if workflow and input are the same; else
        KeyConflict. Raises CaptureModeUnavailable for any capture mode but `full`.
        """
        facts = created.facts
        if not isinstance(facts, RunCreated):
            raise TypeError("the first event of a run is run.created")
        if facts.capture != "full":
            raise CaptureModeUnavailable(
                f"Capture mode {facts.capture} is not available yet, and nothing weaker was recorded instead.",
                capture=facts.capture,
            )
        if key is not None:
            facts = msgspec.structs.replace(facts, key_digest=self.key_digest(key))
            created = msgspec.structs.replace(created, facts=facts, ref=key)
            existing = await self._same_work(key, facts)
            if existing is not None:
                return existing
        stream = Stream.run(run_id or self.ledger.ids.new("run"))
        writer = self._writer(stream, None, Head(0, GENESIS, 1), new_state(self.scope, stream), next_blob=1)
        writer.append(created)
        try:
            await writer.barrier()
        except KeyConflict:
            existing = None if key is None else await self._same_work(key, facts)
            if existing is None:
                raise
            return existing
        self.ledger.register(writer)
        return writer

    async def _same_work(self, key: str, facts: RunCreated) -> Existing | None:
        existing = await self.find(key)
        if existing is None:
            return None
        async with self.reader() as reader:
            first = (await reader.events(Stream.run(existing.run_id), limit=1))[0].facts
        if (first.workflow, first.input_digest) != (facts.workflow, facts.input_digest):
            what = "input" if first.workflow == facts.workflow else "workflow"
            raise KeyConflict(
                f"Key {key!r} belongs to run {existing.run_id}, which has another {what}.",
                key=key,
                run_id=existing.run_id,
            )
        return existing

    async def writer(self, stream: Stream) -> StreamWriter:
        """Opens a stream for writing with a new epoch; an annex or the scope's stream is made when it is new.

        Raises RunNotFound, StreamClosed, StreamOwned (its writer lives, in this process or another).
        """
        with self.ledger.opening(self.scope, stream):
            return await self._opened_writer(stream)

    async def _opened_writer(self, stream: Stream) -> StreamWriter:
        if stream.kind == "annex":
            await self.run_head(stream.run_id)
        store = self.ledger.store
        acquired = await store.acquire(self.scope, stream, create=stream.kind != "run")
        state = await store.load(self.scope, stream)
        next_blob = await store.next_blob(self.scope, acquired.stream_no)
        writer = self._writer(stream, acquired.stream_no, acquired.head, state, next_blob)
        await writer.adopt_intents(*(call.intent_id for call in state.open.calls.values() if call.intent_id))
        self.ledger.register(writer)
        return writer

    def _writer(self, stream: Stream, number: int | None, head: Head, state: FoldState, next_blob: int) -> StreamWriter:
        ledger = self.ledger
        return StreamWriter(
            self.scope,
            stream,
            number,
            head,
            state,
            store=ledger.store,
            group=ledger.group,
            clock=ledger.clock,
            ids=ledger.ids,
            redactor=ledger.redactor,
            next_blob=next_blob,
            fingerprint=fingerprint(),
        )

    async def unowned_runs(self, after: str = "", limit: int = 1000) -> list[RunRow]:
        """Runs that have not ended and that no living process writes, by id, behind the run `after`: at most `limit`.

        A dead owner counts as none, and so does one whose lease has expired. Imported runs, which nobody executes, are
        among them (`origin`). Somebody else may open one at the same moment: `writer` says who got it.
        """
        return await self.ledger.store.unowned_runs(self.scope, after, limit)

    async def is_written(self, stream: Stream) -> bool:
        """Whether a living writer, of this process or another, has the stream."""
        if self.ledger.writing(self.scope, stream):
            return True
        return await self.ledger.store.owned_elsewhere(self.scope, stream)

    async def run_head(self, run_id: str) -> Head:
        """Where a run stands. Raises RunNotFound."""
        async with self.reader() as reader:
            return (await run_head(reader, run_id)).head

    async def resolve_run(self, prefix: str) -> str:
        """The run whose id begins with `prefix`. Raises RunNotFound when none or several do.

        Nothing, or `run_` alone, names no run, even where there is only one: it is what a variable holds that
        somebody forgot to set, and the run may be about to be erased.
        """
        beginning = prefix.removeprefix("run_")
        async with self.reader() as reader:
            found = await reader.runs_beginning(f"run_{beginning}") if beginning else []
        if len(found) != 1:
            raise RunNotFound(
                f"{prefix!r} names {'more than one' if found else 'no'} run in scope {self.scope}.",
                remedy="Give more of its id." if found else None,
                run=prefix,
                scope=str(self.scope),
            )
        return found[0]

    async def posted(self) -> list[Stream]:
        """The streams to which something was posted that nobody has delivered yet."""
        async with self.reader() as reader:
            return await reader.posted()

    async def cursor(self, name: str, stream: Stream) -> int:
        """Where a named cursor stands in a stream; 0 when nobody moved it yet."""
        async with self.reader() as reader:
            return await reader.cursor(name, stream)

    async def move_cursor(self, name: str, stream: Stream, seq: int) -> None:
        """Remembers, across restarts, how far a stream was scanned under a name. Raises BeyondHead past the head."""
        await self.ledger.store.move_cursor(self.scope, name, stream, seq)

    async def post(self, run_id: str, key: str, kind: str, payload: bytes, actor: str = "") -> bool:
        """Asks the owner of a run to deliver something; False when the same key was posted before."""
        item = InboxItem(key, kind, payload, actor, self.ledger.clock.now())
        return await self.ledger.store.post(self.scope, Stream.run(run_id), item)

    async def read(self, stream: Stream, after: int = 0, upto: int | None = None) -> AsyncIterator[Event]:
        """The events of a stream in order: the one road for evidence, catch-up, state and export."""
        async with self.reader() as reader:
            async for event in each_event(reader, stream, after, upto):
                yield event

    async def follow(self, stream: Stream, after: int = 0) -> AsyncIterator[Event]:
        """The events after a position, then each further one as it is committed, until the stream is closed.

        Reads the database and nothing else, so that a reader that comes late or comes back gets what it missed, once
        each. Raises RunNotFound when there is no such run, BeyondHead for a position that the stream has not reached.
        An annex, or the scope's stream, is awaited where it does not exist yet.
        """
        if stream.kind != "scope":
            await self.run_head(stream.run_id)
        async with self.reader() as reader:
            found = await reader.head(stream)
        if after > (0 if found is None else found.head.seq):
            raise BeyondHead(f"{stream} has not reached seq {after}.", stream=str(stream), seq=after)
        while True:
            async for event in self.read(stream, after):
                yield event
                after = event.seq
            async with self.reader() as reader:
                found = await reader.head(stream)
            if found is not None and found.closed and found.head.seq == after:
                return
            if found is None or found.head.seq == after:
                await self.ledger.store.changed()


async def open_ledger(
    path: str | Path,
    *,
    create: bool = True,
    clock: Clock | None = None,
    ids: Ids | None = None,
    secrets: Iterable[str] = (),
    vfs: str | None = None,
    catalog: Catalog = CATALOG,
) -> Ledger:
    """Opens the ledger at `path` (a file, or `sqlite:///file`), or makes a new one when `create` is set.

    `secrets` are values that no view may ever show. Raises LedgerMissing, NotALedger, NewerSchema, NetworkFileSystem
    and the like.
    """
    from refold.ledger.sqlite.opening import open_store  # An adapter is loaded by whoever opens its kind of ledger.

    clock = clock or SystemClock()
    ids = ids or SystemIds(clock)
    # Its own name and not a link to it: lock file and artifacts stand beside the file itself.
    place = Path(str(path).removeprefix("sqlite:///")).resolve()
    store = open_store(place, clock, ids, create=create, vfs=vfs, catalog=catalog)
    return Ledger(store, place, clock, ids, Redactor(secrets))
