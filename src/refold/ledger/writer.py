"""The writer of one stream: assigns seq, time and hash in memory, folds, and hands finished batches to the group
commit.
"""

from __future__ import annotations

import asyncio
import json
import os
import struct
from collections import OrderedDict
from collections.abc import Callable
from types import TracebackType
from typing import Any, NamedTuple, Self

import msgspec

from refold import seam
from refold.clock import Clock
from refold.errors import RefoldError
from refold.events import values
from refold.events.catalog.run import TERMINAL
from refold.events.content import seal
from refold.events.envelope import FORMAT, NO_TIME, Chain, Event, EventRow, Head
from refold.events.identity import Scope, Stream, keyed_digest, name_digest, scope_digest
from refold.events.redaction import Redactor
from refold.events.values import NotRecordable
from refold.ids import Ids
from refold.ledger.blobs import leaf
from refold.ledger.drafts import Draft, Sealed, redact_json, seal_draft
from refold.ledger.errors import Fenced, StreamClosed, StreamFull
from refold.ledger.group import GroupCommit
from refold.ledger.port import MAX_SEQ, BlobRow, Committed, IntentMove, Outcome, Snapshot, Store, StreamBatch
from refold.ledger.snapshots import take_snapshot
from refold.projections import INTENT_EVENTS, FoldState, Intents, Row, fold, freeze, thaw
from refold.projections.rows import IntentRow, ToolCallRow
from refold.projections.runs import InvalidTransition

SNAPSHOT_EVERY = 2000
"""Events between snapshots of a stream's open state."""
_REMEMBERED_PARTS = 4096


class Part(NamedTuple):
    """A value stored as a numbered blob of its run. `shown` is the value with secrets replaced; `leaf` its digest in
    lists.
    """

    number: int
    leaf: bytes
    shown: Any


class StreamWriter:
    """The one writer of a stream. Made by `ScopedLedger`; an async context manager that commits and releases at its
    end.

    Anything that makes a commit fail (`Fenced`, a full disk) drops all that this writer had in memory: it raises from
    then on, and the stream is opened again to go on.
    """

    def __init__(
        self,
        scope: Scope,
        stream: Stream,
        stream_no: int | None,
        head: Head,
        state: FoldState,
        *,
        store: Store,
        group: GroupCommit,
        clock: Clock,
        ids: Ids,
        redactor: Redactor,
        next_blob: int,
        fingerprint: str,
    ) -> None:
        self.scope = scope
        self.stream = stream
        self.secret = store.secret(scope)
        self._chain = Chain(scope_digest(self.secret, scope), stream)
        self._stream_no = stream_no
        self._state = state
        self._store, self._group, self._clock, self._ids, self._redactor = store, group, clock, ids, redactor
        self._fingerprint = fingerprint
        self._durable = head  # what the store has
        self._sent = head  # what the commit under way will have
        self._head = head  # what is in memory
        self._next_blob = next_blob
        self._durable_blobs = self._sent_blobs = next_blob - 1  # the last number, likewise
        self._snapshot_seq = head.seq - head.seq % SNAPSHOT_EVERY
        self._events: list[EventRow] = []
        self._blobs: list[BlobRow] = []
        self._delivered: list[tuple[str, int]] = []
        self._intents = Intents()
        self._touched: dict[str, tuple[int, IntentRow]] = {}  # Each with the revision before this batch's first.
        # Without the values: four thousand messages would be most of an import's memory. `None` = shown as it is.
        self._parts: OrderedDict[bytes, tuple[int, bytes, Any]] = OrderedDict()
        self._knows_all_parts = head.seq == 0
        self._finding_part = asyncio.Lock()
        self._closed = False
        self._error: Exception | None = None
        self._released = False
        self._pid = os.getpid()
        self.appended: Callable[[Event], None] | None = None
        """Told of every event that was appended, by whomever."""

    @property
    def head(self) -> Head:
        """The last event in memory; durable only after `barrier`."""
        return self._head

    @property
    def state(self) -> FoldState:
        """A copy of the stream's fold up to `head`: whoever changes it changes neither rows nor snapshots."""
        return thaw(self._state.ref, freeze(self._state))

    def awaits(self, tool_call_id: str) -> bool:
        """Whether a tool call of this stream is open: it has no outcome yet."""
        return tool_call_id in self._state.open.calls

    def open_calls(self) -> list[ToolCallRow]:
        """Copies of the rows of tool calls that may still change: a failed one may be made again."""
        return [msgspec.structs.replace(call) for call in self._state.open.calls.values()]

    @property
    def alive(self) -> bool:
        """Whether this writer still has its stream: neither lost nor released."""
        return self._error is None and not self._released and self._pid == os.getpid()

    @property
    def closed(self) -> bool:
        """Whether the stream has its terminal event."""
        return self._closed

    def name(self, text: str) -> str:
        """What stands in facts for a name that a model or a file made up."""
        return name_digest(self.secret, text)

    def digest(self, purpose: str, data: bytes) -> str:
        """A keyed digest for facts, as hex."""
        return keyed_digest(self.secret, purpose, data).hex()

    def append(self, draft: Draft, *, delivers: str | None = None) -> Event:
        """Adds an event to the open batch and returns it; durable after the next `barrier`.

        `delivers`, here or in the draft, is the key of the inbox item that this event turns into a fact. Raises
        StreamClosed, NotRecordable, BrokenFold, InvalidTransition - and then nothing was added.
        """
        self.check()
        if self._closed:
            raise StreamClosed(f"{self.stream} has ended and takes no more events.", stream=str(self.stream))
        seam.reach("stream.append")
        sealed = seal_draft(draft, self._redactor, self._ids)
        facts = sealed.facts
        previous = self._head
        seq = previous.seq + 1
        if seq > MAX_SEQ:
            raise StreamFull(f"{self.stream} holds {MAX_SEQ} events and no more fit.", stream=str(self.stream))
        now = self._clock.now()
        name, version = facts.EVENT_TYPE, facts.EVENT_VERSION
        if name == "run.created" and (seq != 1 or self.stream.kind != "run"):
            raise InvalidTransition(
                f"{self.stream} is at seq {previous.seq} and cannot be created.", stream=str(self.stream)
            )
        try:
            digest = self._hash(draft, sealed, now)
        except (ValueError, struct.error) as error:
            raise NotRecordable(
                f"The envelope of {name} cannot be recorded: {error}.", path="$", type=name, reason=str(error)
            ) from error
        row = EventRow(
            seq,
            FORMAT,
            name,
            version,
            previous.epoch,
            now,
            draft.occurred_at,
            draft.actor,
            draft.site,
            draft.cause,
            sealed.facts_bytes,
            sealed.content_digest,
            sealed.content,
            sealed.view_digest,
            sealed.view_bytes,
            digest,
        )
        event = Event(seq, name, now, draft.occurred_at, draft.actor, draft.site, facts, sealed.view, row)
        touches = name in INTENT_EVENTS
        if touches:
            self._intents.check(event, self._state.stream_name)
        before = self._state.pending
        try:
            fold(self._state, (event,))
        except RefoldError:
            self._state.forget_after(before)
            raise
        if touches:
            intent = self._intents.bring(event, self._state.run_id)
            self._touched.setdefault(intent.intent_id, (intent.revision - 1, intent))
        self._events.append(row)
        self._head = Head(seq, digest, previous.epoch)
        delivers = delivers or draft.delivers
        if delivers is not None:
            self._delivered.append((delivers, seq))
        if name in TERMINAL and self.stream.kind == "run":
            self._closed = True
        self._group.add(self)
        if self.appended is not None:
            self.appended(event)
        return event

    def _hash(self, draft: Draft, sealed: Sealed, now: int) -> bytes:
        """The hash of the next event. Raises ValueError, struct.error for what an envelope cannot hold."""
        previous, cause, occurred_at = self._head, draft.cause, draft.occurred_at
        if cause is not None and cause < 1:
            raise ValueError(f"its cause is {cause}, which is no seq")
        if occurred_at == NO_TIME:
            raise ValueError(f"its time of occurrence is {NO_TIME}, which stands for none")
        return self._chain.hash(
            previous.hash,
            previous.seq + 1,
            sealed.facts.EVENT_TYPE.encode(),
            sealed.facts.EVENT_VERSION,
            previous.epoch,
            now,
            occurred_at,
            draft.actor.encode(),
            draft.site.encode(),
            cause,
            sealed.facts_bytes,
            sealed.content_digest,
            sealed.view_digest,
        )

    async def part(self, value: Any) -> Part:
        """Stores a value as a numbered blob of the run, once: an equal value gets the number it already has."""
        encoded = values.encode(value)
        lookup = keyed_digest(self.secret, "part", encoded)
        known = self._parts.get(lookup)
        if known is None:
            known = await self._unremembered_part(lookup, encoded)
        else:
            self._parts.move_to_end(lookup)
        number, proof, shown = known
        return Part(number, proof, value if shown is None else shown)

    async def _unremembered_part(self, lookup: bytes, encoded: bytes) -> tuple[int, bytes, Any]:
        if self._stream_no is None or self._knows_all_parts:
            return self._remember_part(lookup, encoded, None)
        # One at a time: what the store is being asked for must not be numbered meanwhile, by an equal part.
        async with self._finding_part:
            known = self._parts.get(lookup)
            if known is None:
                found = await self._store.find_part(self._stream_no, self.scope, lookup)
                known = self._remember_part(lookup, encoded, found)
            return known

    def _remember_part(self, lookup: bytes, encoded: bytes, found: tuple[int, bytes] | None) -> tuple[int, bytes, Any]:
        shown, view, view_digest = None, None, None
        if self._redactor.suspicious(encoded):
            redacted, count = redact_json(self._redactor, encoded)
            if count:
                shown = json.loads(redacted)
                view, view_digest = self.sealed(redacted)
        if found is not None:
            number, proof = found
        else:
            stored, digest = self.sealed(encoded)
            number, proof = self._next_blob, leaf(digest, view_digest)
            self.blob(BlobRow(number, lookup, digest, stored, view_digest, view))
        self._parts[lookup] = (number, proof, shown)
        if len(self._parts) > _REMEMBERED_PARTS:
            self._forget_committed_parts()
        return number, proof, shown

    def salt(self) -> bytes:
        """A fresh salt."""
        return self._ids.random(16)

    def sealed(self, payload: bytes) -> tuple[bytes, bytes]:
        """Stored bytes and digest of a payload, under a fresh salt."""
        return seal(payload, self.salt())

    def redacted_text(self, data: bytes) -> tuple[bytes, bytes] | None:
        """Stored view and digest of a text in which the scan found secrets; None for a clean one."""
        if not self._redactor.suspicious(data):
            return None
        shown, count = self._redactor.redact(data.decode("utf-8", "replace"))
        return self.sealed(shown.encode("utf-8", "surrogatepass")) if count else None

    def blob(self, row: BlobRow) -> None:
        """Adds a blob, numbered `next_blob`, to the open batch."""
        self._blobs.append(row)
        self._next_blob = row.number + 1

    @property
    def next_blob(self) -> int:
        """The number that the run's next blob gets."""
        return self._next_blob

    async def adopt_intents(self, *intent_ids: str) -> None:
        """Reads intents as they stand, before an event of this stream touches them. This writer's own are there
        already, and those of calls that were open when it was made.
        """
        for row in await self._store.intents(self.scope, intent_ids):
            known = self._intents.rows.get(row.intent_id)
            if known is None or known.revision < row.revision:  # What is not committed yet, the store cannot know.
                self._intents.rows[row.intent_id] = row

    def intent(self, intent_id: str) -> IntentRow:
        """A copy of an open intent as it stands with everything that this writer appended. Raises KeyError."""
        return msgspec.structs.replace(self._intents.rows[intent_id])

    async def barrier(self) -> None:
        """Returns when everything appended so far is durable. Raises Fenced, LedgerFull and the like."""
        await self._group.barrier(self)

    async def close(self) -> None:
        """Commits what is open and lets others write."""
        try:
            await self.barrier()
        finally:
            if self._stream_no is not None and self.alive:
                self._released = True
                await self._store.release(self.scope, self.stream, self._head.epoch)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        if error is None or self._error is None:
            await self.close()

    # What group commit asks for.

    def is_pending(self) -> bool:
        return self._error is None and self._durable.seq != self._head.seq

    def check(self) -> None:
        if self._pid != os.getpid():
            raise Fenced(
                f"{self.stream} is written by the process that opened it, of which this one was forked.",
                stream=str(self.stream),
            )
        if self._error is not None:
            raise self._error

    def take_batch(self) -> StreamBatch | None:
        if not self._events or self._error is not None:
            return None
        snapshot: Snapshot | None = None
        if self._closed or self._head.seq - self._snapshot_seq >= SNAPSHOT_EVERY:
            snapshot = take_snapshot(self._state, self._head, self._fingerprint)
            self._snapshot_seq = self._head.seq
        batch = StreamBatch(
            self.scope,
            self.stream,
            self._stream_no,
            self._sent,
            self._head,
            self._closed,
            self._events,
            self._blobs,
            [_frozen(row) for row in self._state.take()],
            [IntentMove(before, msgspec.structs.astuple(row)) for before, row in self._touched.values()],
            snapshot,
            self._delivered,
        )
        self._sent, self._sent_blobs = self._head, self._next_blob - 1
        self._events, self._blobs, self._delivered = [], [], []
        self._touched.clear()
        self._intents.forget_closed()
        return batch

    def settle(self, outcome: Outcome) -> None:
        if isinstance(outcome, Committed):
            self._stream_no = outcome.stream_no
            self._durable, self._durable_blobs = self._sent, self._sent_blobs
            return
        self._error = outcome.error
        self._events, self._blobs, self._delivered = [], [], []
        self._parts.clear()
        self._state.take()

    def _forget_committed_parts(self) -> None:
        # A part that is not yet in the store cannot be found there; it must stay until it is.
        self._knows_all_parts = False
        for lookup in list(self._parts)[: _REMEMBERED_PARTS // 2]:
            if self._parts[lookup][0] <= self._durable_blobs:
                del self._parts[lookup]


def _frozen(row: Row) -> tuple[type[Row], tuple[Any, ...]]:
    # Rows go on changing while the commit is under way; the batch keeps them as they are now.
    return type(row), msgspec.structs.astuple(row)
