"""Sending a call: claim and dispatch on record, the attempt, and what follows from how it ended."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractContextManager

from refold.clock import Clock
from refold.events.values import Registry
from refold.gateway.attempts import Attempt
from refold.gateway.calls import CurrentCall
from refold.gateway.claims import may_repeat
from refold.gateway.endings import Ending, Failure, Result, Unknown, ending_of
from refold.gateway.errors import NotSent
from refold.gateway.identity import downstream_key
from refold.gateway.inbox import intent_of
from refold.gateway.records import Call, CallRecords
from refold.gateway.twins import Flight, Twins
from refold.gateway.under_way import UnderWay
from refold.gateway.ways_out import WaysOut
from refold.ledger.drafts import Draft
from refold.ledger.ledger import ScopedLedger
from refold.ledger.writer import StreamWriter
from refold.projections.rows import IntentRow

Waits = Callable[[Call, str], AbstractContextManager[None]]
"""Says that a call waits, and for what, as long as the block lasts."""


class Sender:
    """Makes the calls of one run that are to be made."""

    def __init__(
        self,
        scope: ScopedLedger,
        writer: StreamWriter,
        records: CallRecords,
        twins: Twins,
        clock: Clock,
        types: Registry | None,
        waits: Waits,
    ) -> None:
        self._scope, self._writer, self._records, self._twins = scope, writer, records, twins
        self._clock, self._types, self._waits = clock, types, waits
        self.ways_out = WaysOut(scope, writer, records, clock)
        self._under_way = UnderWay(scope, writer)

    async def claim(self, call: Call, flight: Flight, row: IntentRow | None, mine: bool) -> CurrentCall:
        """Puts the claim, and the dispatch unless the tool marks it, on record: durable when this returns."""
        if row is not None and not mine:
            await self._writer.adopt_intents(row.intent_id)
        if not flight.claimed or not mine:
            flight.attempts_before = 0 if row is None else row.attempts
        draft, intent_id = self._records.claim(call, flight.identity, row)
        flight.intent_id, flight.claimed = intent_id, True
        if call.tool.effect == "pure":
            self._writer.append(draft)
        else:
            await self._append(draft)
        row = self._writer.intent(intent_id)
        deadline = row.deadline_us
        if deadline is None or call.tool.marks_sending:
            deadline = self._clock.now() + call.tool.timeout_us
        return CurrentCall(
            key=downstream_key(self._writer.secret, row.intent_id, row.settled),
            idempotency_key=flight.identity.text or flight.identity.key,
            tool=call.tool.name,
            attempt=row.attempts,
            deadline_us=deadline,
            clock=self._clock,
            loop=asyncio.get_running_loop(),
            check=self._check_epoch if call.tool.effect != "pure" else _nothing,
            dispatch=(lambda: self._dispatch(call, flight)) if call.tool.marks_sending else None,
        )

    async def attempt(self, call: Call, flight: Flight, current: CurrentCall) -> list[Draft] | None:
        """Makes an attempt that is on record. None: it is to be made again."""
        try:
            if current.dispatched:
                await current.prepare()
        except NotSent as error:
            ending = ending_of(error, sent=False, dispatched=True)
            return await self._ended(call, flight, None, ending, None)
        attempt = Attempt(call.tool, call.tool.decode_arguments(call.encoded, self._types), current)
        if call.tool.effect != "pure":
            self._under_way.add(flight.intent_id, current.attempt, attempt, current)
        return await self._until_it_ends(call, flight, attempt)

    async def join(self, call: Call, flight: Flight, row: IntentRow) -> list[Draft] | None:
        """Goes on with an attempt that this process has out since before the run was opened again. None: there is none,
        or it is to be made again.
        """
        found = self._under_way.find(row.intent_id, row.attempts)
        return None if found is None else await self._until_it_ends(call, flight, found.attempt)

    def has_out(self, row: IntentRow) -> bool:
        """Whether `join` would find something."""
        return self._under_way.find(row.intent_id, row.attempts) is not None

    def forget_attempts(self) -> None:
        """Lets go of every attempt of the run, whatever became of it."""
        self._under_way.forget_all()

    async def doubt(self, call: Call, row: IntentRow) -> None:
        """Says that a call was out when its process died."""
        await self._append(self._records.doubted(call, row, "crash"))

    async def way_out(self, call: Call, flight: Flight, attempt: Attempt | None) -> list[Draft] | None:
        """Waits until a doubt is settled. None: the call is to be made again."""
        if attempt is None:
            row = self._writer.intent(flight.intent_id)
            found = self._under_way.find(row.intent_id, row.attempts)
            attempt = None if found is None else found.attempt
        with self._waits(call, "in_doubt"):
            settled = await self.ways_out.first(call, flight.intent_id, attempt)
        row = self._writer.intent(flight.intent_id)
        if isinstance(settled, Result):
            return [self._records.answered(call, row, settled.value, None)]
        if isinstance(settled, Failure):
            return [self._records.failed(call, row, settled, False, None)]
        if settled.resolution == "abandon":
            self._twins.undelivered(call.tool_call_id)
            self.ways_out.adopt(flight.intent_id)
        if settled.resolution in ("happened", "abandon"):
            return [settled.draft]
        self._writer.append(settled.draft)
        return None

    async def _until_it_ends(self, call: Call, flight: Flight, attempt: Attempt) -> list[Draft] | None:
        started = self._clock.monotonic()
        try:
            ending = await attempt.until_deadline()
        except asyncio.CancelledError:
            self._cancelled(call, flight, attempt)
            raise
        return await self._ended(call, flight, attempt, ending, (self._clock.monotonic() - started) // 1000)

    async def _ended(
        self, call: Call, flight: Flight, attempt: Attempt | None, ending: Ending, spent: int | None
    ) -> list[Draft] | None:
        self._writer.check()
        row = self._writer.intent(flight.intent_id)
        if isinstance(ending, Result):
            return [self._records.answered(call, row, ending.value, spent)]
        if isinstance(ending, Unknown) and not may_repeat(call.tool.effect, row.effect, self._key_lasts(call, row)):
            await self._append(self._records.doubted(call, row, ending.why, ending.message))
            return await self.way_out(call, flight, attempt)
        made = row.attempts - flight.attempts_before
        retrying = made < call.tool.retry.attempts and (isinstance(ending, Unknown) or ending.retryable)
        draft = self._records.failed(call, row, ending, retrying, spent)
        if not retrying:
            return [draft]
        self._writer.append(draft)
        self._under_way.forget(flight.intent_id)
        await asyncio.sleep(call.tool.retry.delay(made))
        return None

    def _cancelled(self, call: Call, flight: Flight, attempt: Attempt) -> None:
        """Nobody waits for the answer any more. Of an unsafe call that is out, that is a doubt."""
        if not self._writer.alive:
            return  # The run is opened again, and goes on with this attempt.
        attempt.stop()
        row = intent_of(self._writer, flight.intent_id)
        if row is None or row.status != "dispatched" or may_repeat(call.tool.effect, row.effect, key_is_good=True):
            return
        self._writer.append(self._records.doubted(call, row, "canceled"))
        self.ways_out.adopt(row.intent_id)

    def _key_lasts(self, call: Call, row: IntentRow) -> bool:
        return row.key_expires_us is None or self._clock.now() + call.tool.timeout_us <= row.key_expires_us

    async def _dispatch(self, call: Call, flight: Flight) -> None:
        await self._append(self._records.dispatch(call, self._writer.intent(flight.intent_id)))

    async def _check_epoch(self) -> None:
        """Raises NotSent when another process has the run by now: this one was frozen, and is not to send anything."""
        async with self._scope.reader() as reader:
            head = await reader.head(self._writer.stream)
        if head is None or head.head.epoch != self._writer.head.epoch:
            raise NotSent(f"{self._writer.stream} was taken over by another process before anything was sent.")

    async def _append(self, draft: Draft) -> None:
        self._writer.append(draft)
        await self._under_way.durable()


async def _nothing() -> None:
    """A pure call sends nothing that would have to be checked."""
