"""The gateway of one run: every effect on the outside world goes through `Gateway.perform`.

What is written before what, and what the next process finds if this one is killed there, is the protocol of
`docs/decisions/0006-tool-gateway.md`. The claim table is `claims.py`; how an attempt ended is `endings.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from weakref import WeakKeyDictionary, WeakValueDictionary

from refold.clock import Clock
from refold.events.envelope import Event
from refold.events.identity import Stream
from refold.events.values import Registry
from refold.gateway.claims import Found, Move, decide
from refold.gateway.endings import Failure, Unknown
from refold.gateway.errors import ChangedCall
from refold.gateway.identity import Identity, checked_key, derived_key, fingerprint, given_key
from refold.gateway.inbox import intent_of
from refold.gateway.outcomes import fields_of
from refold.gateway.receipts import changed_path, read_receipt, receipt_event
from refold.gateway.records import Call, CallRecords
from refold.gateway.sending import Sender
from refold.gateway.sweeping import doubt_abandoned_stream
from refold.gateway.twins import Flight, Twins
from refold.ids import Ids
from refold.ledger.drafts import Draft
from refold.ledger.errors import Erased
from refold.ledger.ledger import Ledger, ScopedLedger
from refold.ledger.writer import StreamWriter
from refold.projections.rows import IntentRow

_CLAIMING: WeakKeyDictionary[Ledger, WeakValueDictionary[tuple[Any, str], asyncio.Lock]] = WeakKeyDictionary()
"""Keys that are being claimed in this process: its own runs take turns instead of losing commits to each other."""


class Gateway:
    """The tool calls of one run. `domain` is the run's effect domain, `types` the App's registry, `site_path` where
    the run stands in its parent's code.

    `waiting` says which calls wait, and for what: `in_doubt`, `twin` or `in_progress`.
    """

    def __init__(
        self,
        scope: ScopedLedger,
        writer: StreamWriter,
        domain: str,
        clock: Clock,
        ids: Ids,
        types: Registry | None = None,
        site_path: str = "",
    ) -> None:
        self._site_path = site_path
        self._scope, self._writer, self._domain, self._clock, self._types = scope, writer, domain, clock, types
        self._run_id = writer.stream.run_id
        self._records = CallRecords(scope, writer, domain, clock, types)
        self._twins = Twins(scope, writer)
        self._sender = Sender(scope, writer, self._records, self._twins, clock, types, self._waits)
        run = writer.state.open.run
        # A site is taken at most once, unless the run was opened before or its sites are another run's as well.
        self._looks_up = writer.head.epoch > 1 or (run is not None and run.source_run_id is not None)
        self.waiting: dict[str, str] = {}
        self.on_wait: Callable[[], None] = lambda: None
        """Called when a call has begun to wait."""

    # What the runtime uses

    async def perform(self, call: Call) -> list[Draft]:
        """Makes a call, or finds out what became of it. Returns the events of its outcome, the delivery first.

        Before anything leaves, the claim is durable. Raises ChangedCall; BadKey for a key that cannot be one; and
        what a commit can be lost to (Fenced, KeyConflict, ...): then the run is opened again and resumed.
        """
        identity = self._identify(call)
        flight = Flight(call.tool_call_id, call.intent_id, identity, claimed=call.recorded)
        if _has_twins(call, identity):
            self._twins.add(flight)
        try:
            return await self._perform(call, flight)
        finally:
            flight.over = True
            self.waiting.pop(call.tool_call_id, None)

    def content(self, event: Event) -> dict[str, bytes]:
        """The content of an outcome that this gateway made, for `outcome`: also what is in an artifact by now."""
        fields = fields_of(event)
        artifact_id = getattr(event.facts, "artifact_id", None)
        if artifact_id is not None:
            fields["result"] = self._records.fresh.pop(artifact_id)
        return fields

    def undelivered(self, tool_call_id: str) -> None:
        """Says that a call's outcome went on record and did not reach the code, which was cancelled meanwhile.

        To be said again in each process that resumes the run: the next equal call takes the answer.
        """
        self._twins.undelivered(tool_call_id)

    @property
    def probing(self) -> bool:
        """Whether a probe is being asked for the first time about a doubt: it may end it at once."""
        return bool(self._sender.ways_out.asking)

    def adopt(self, intent_id: str) -> None:
        """Records what people decide about a doubt on which no call of this process waits."""
        self._sender.ways_out.adopt(intent_id)

    def wake(self) -> None:
        """Looks at once at whatever calls wait for."""
        self._sender.ways_out.wake()

    def ended(self) -> None:
        """The run's end is durable: nothing that its calls may still answer can be put on record."""
        self._sender.forget_attempts()

    def close(self) -> None:
        """Stops watching for resolutions."""
        self._sender.ways_out.close()

    # Finding

    def _identify(self, call: Call) -> Identity:
        secret, tool = self._writer.secret, call.tool
        asked = fingerprint(secret, tool.name, tool.version, call.encoded)
        if call.key is not None:
            return Identity("caller", given_key(secret, tool.name, checked_key(call.key)), call.key, asked)
        text = tool.business_key(call.arguments)
        if text is not None:
            return Identity("business", given_key(secret, tool.name, text), text, asked)
        return Identity("derived", derived_key(secret, self._domain, self._site_path + call.site), None, asked)

    async def _perform(self, call: Call, flight: Flight) -> list[Draft]:
        if _has_twins(call, flight.identity) and not call.recorded:
            answered = await self._after_twins(call, flight)
            if answered is not None:
                return answered
        while True:
            async with self._claiming(flight.identity.key):
                found = await self._find(call, flight)
                move = decide(found)
                if move is Move.ATTEMPT and call.unwanted():
                    return [self._unsent(call, flight, None if found is None else found.row)]
                if move is Move.ATTEMPT:
                    current = await self._sender.claim(call, flight, *_held(found))
            if move is Move.ATTEMPT:
                drafts = await self._sender.attempt(call, flight, current)
            else:
                assert found is not None
                drafts = await self._follow(move, call, flight, found.row)
            if drafts is not None:
                return drafts

    async def _after_twins(self, call: Call, flight: Flight) -> list[Draft] | None:
        while (twin := await self._twins.earlier(flight)) is not None:
            with self._waits(call, "in_doubt" if self._twins.is_doubt(twin) else "twin"):
                await self._scope.ledger.store.changed()
        row = await self._twins.unclaimed_answer(flight)
        return None if row is None else await self._replay(call, flight, row)

    async def _find(self, call: Call, flight: Flight) -> Found | None:
        row = intent_of(self._writer, flight.intent_id) if flight.claimed else None
        if row is None or row.owner_run_id != self._run_id:
            row = await self._look_up(flight)
        if row is None:
            return None
        mine = flight.claimed and row.intent_id == flight.intent_id and row.owner_run_id == self._run_id
        ours = row.owner_run_id == self._run_id
        deadline = self._clock.now() + call.tool.timeout_us
        return Found(
            row,
            flight.identity.fingerprint,
            mine=mine,
            out_here=mine and self._sender.has_out(row),
            owner_lives=ours or await self._scope.is_written(Stream.run(row.owner_run_id)),
            same_domain=row.effect_domain == self._domain,
            key_is_good=row.key_expires_us is None or deadline <= row.key_expires_us,
            may_retry=row.status == "failed" and await self._may_retry(call, row),
            effect=call.tool.effect,
        )

    async def _look_up(self, flight: Flight) -> IntentRow | None:
        if flight.identity.kind == "derived" and not self._looks_up and not flight.claimed:
            return None
        async with self._scope.reader() as reader:
            rows = await reader.rows(IntentRow, {"idempotency_key": flight.identity.key})
        return rows[0] if rows else None

    async def _may_retry(self, call: Call, row: IntentRow) -> bool:
        """Whether a failure on record allows another call to try: it has attempts of its own."""
        if call.tool.retry.attempts == 1:
            return False
        async with self._scope.reader() as reader:
            try:
                return bool((await receipt_event(reader, row)).facts.retryable)
            except Erased:
                return False

    async def _follow(self, move: Move, call: Call, flight: Flight, row: IntentRow) -> list[Draft] | None:
        """What is done about a call that is not made now. None: look again."""
        match move:
            case Move.JOIN:
                return await self._sender.join(call, flight, row)
            case Move.DOUBT if row.owner_run_id == self._run_id:
                await self._sender.doubt(call, row)
            case Move.DOUBT:
                await doubt_abandoned_stream(self._scope, row.owner_run_id)
            case Move.AWAIT_WAY_OUT:
                return await self._sender.way_out(call, flight, None)
            case Move.WAIT:
                reason = "in_doubt" if row.status in ("in_doubt", "abandoned") else "in_progress"
                with self._waits(call, reason):
                    await self._scope.ledger.store.changed()
            case Move.REPLAY:
                return await self._replay(call, flight, row)
            case Move.CONFLICT:
                return await self._conflict(call, flight, row)
            case Move.IN_PROGRESS | Move.UNKNOWN:
                return [self._not_now(move, call, flight, row)]
        return None

    async def _replay(self, call: Call, flight: Flight, row: IntentRow) -> list[Draft]:
        try:
            receipt = await read_receipt(self._scope, row)
        except Erased:
            why = f"{call.tool.name} was called under this key, and its answer was erased."
            return [self._records.refused(call, flight.identity, "receipt_erased", why, intent_id=row.intent_id)]
        self._twins.replayed(row.intent_id, call.tool_call_id)
        return [self._records.replayed(call, flight.identity, row, receipt)]

    async def _conflict(self, call: Call, flight: Flight, row: IntentRow) -> list[Draft]:
        tool = call.tool
        if (row.tool, row.tool_version) == (tool.name, tool.version):
            path = await changed_path(self._scope, row, call.encoded)
        else:
            path = "version"
        if flight.identity.kind == "derived":
            raise ChangedCall(
                f"At {call.site} the code calls {tool.name} otherwise than is on record; they differ at {path}.",
                site=call.site,
                tool=tool.name,
                path=path,
                intent_id=row.intent_id,
            )
        why = f"This key of {tool.name} stands for another call; they differ at {path}."
        return [self._records.refused(call, flight.identity, "conflict", why, path=path, owner=row.owner_run_id)]

    def _not_now(self, move: Move, call: Call, flight: Flight, row: IntentRow) -> Draft:
        facts: dict[str, Any] = {"owner": row.owner_run_id, "intent_id": row.intent_id}
        if move is Move.UNKNOWN:
            why = f"It is not known whether {call.tool.name} happened under this key."
            return self._records.refused(call, flight.identity, "outcome_unknown", why, **facts)
        if row.deadline_us is not None:
            facts["deadline_us"] = row.deadline_us
        why = f"Another run is calling {call.tool.name} under this key."
        return self._records.refused(call, flight.identity, "in_progress", why, **facts)

    def _unsent(self, call: Call, flight: Flight, row: IntentRow | None) -> Draft:
        """The outcome of a call that the code gave up before this attempt of it."""
        why = f"{call.tool.name} was not wanted any more before it was sent."
        if row is None or not (flight.claimed and row.owner_run_id == self._run_id):
            return self._records.refused(call, flight.identity, "canceled", why)
        before: Failure | Unknown = Failure("not_sent", "canceled", why, False)
        if row.status == "dispatched":
            before = Unknown("canceled", why)  # An earlier attempt of a tool that may be repeated.
        return self._records.failed(call, row, before, False, 0)

    # Waiting

    @contextmanager
    def _waits(self, call: Call, reason: str) -> Iterator[None]:
        self.waiting[call.tool_call_id] = reason
        self.on_wait()
        try:
            yield
        finally:
            self.waiting.pop(call.tool_call_id, None)

    def _claiming(self, key: str) -> asyncio.Lock:
        locks = _CLAIMING.setdefault(self._scope.ledger, WeakValueDictionary())
        return locks.setdefault((self._scope.scope, key), asyncio.Lock())


def _has_twins(call: Call, identity: Identity) -> bool:
    return call.tool.effect == "unsafe" and identity.kind == "derived"


def _held(found: Found | None) -> tuple[IntentRow | None, bool]:
    """What a call that is to be made has found, and whether it holds that itself."""
    return (None, False) if found is None else (found.row, found.mine)
