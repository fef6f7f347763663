"""The ways out of a doubt, while the run that is in doubt lives: a late answer, the probe, a person."""

from __future__ import annotations

import asyncio

from refold.clock import Clock
from refold.gateway.attempts import Attempt
from refold.gateway.endings import Failure, Result, Unknown
from refold.gateway.identity import downstream_key
from refold.gateway.inbox import Resolutions, first_of
from refold.gateway.probing import PATIENCE, probe
from refold.gateway.records import Call, CallRecords, Settled
from refold.gateway.tools import Doubt
from refold.ledger.ledger import ScopedLedger
from refold.ledger.writer import StreamWriter
from refold.projections.rows import IntentRow


class WaysOut:
    """The doubts of one run that somebody waits on."""

    def __init__(self, scope: ScopedLedger, writer: StreamWriter, records: CallRecords, clock: Clock) -> None:
        self._writer, self._records, self._clock = writer, records, clock
        self._posted = Resolutions(scope, writer)
        self._woken = asyncio.Event()
        self.asking: set[str] = set()
        """Intents whose probe has been asked and has not answered for the first time."""

    async def first(self, call: Call, intent_id: str, attempt: Attempt | None) -> Settled | Result | Failure:
        """The resolution that comes first, or what the attempt itself says after all."""
        if call.tool.probe is not None:
            self.asking.add(intent_id)
        person = asyncio.ensure_future(self._posted.next(intent_id))
        asked = asyncio.ensure_future(self._probe(call, intent_id, attempt))
        late = asyncio.ensure_future(_late(attempt))
        waits = {person, asked, late}
        try:
            while True:
                done, _ = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
                row = self._writer.intent(intent_id)
                if late in done and (ending := late.result()) is not None:
                    return ending
                if person in done:
                    return self._records.posted(call, row, person.result())
                if asked in done and (found := asked.result()) is not None:
                    return found
                waits -= done
        finally:
            self.asking.discard(intent_id)
            for each in (person, asked, late):
                each.cancel()

    def adopt(self, intent_id: str) -> None:
        """Records what is decided about a doubt on which nobody waits any more."""
        self._posted.adopt(intent_id)

    def wake(self) -> None:
        """Look again now."""
        self._woken.set()
        self._woken = asyncio.Event()
        self._posted.wake()

    def close(self) -> None:
        self._posted.close()

    async def _probe(self, call: Call, intent_id: str, attempt: Attempt | None) -> Settled | None:
        if call.tool.probe is None:
            return None
        row = self._writer.intent(intent_id)

        async def until(time_us: int) -> None:
            self.asking.discard(intent_id)
            await self._until(time_us)

        answer = await probe(
            call.tool,
            self._doubt(call, row),
            clock=self._clock,
            settles_us=row.settles_us or row.deadline_us or 0,
            still_running=lambda: attempt is not None and attempt.running,
            until=until,
            patience=PATIENCE,
        )
        return None if answer is None else self._records.probed(call, self._writer.intent(intent_id), answer)

    def _doubt(self, call: Call, row: IntentRow) -> Doubt:
        return Doubt(
            downstream_key(self._writer.secret, row.intent_id, row.settled),
            call.tool.name,
            call.arguments,
            call.tool_call_id,
            row.intent_id,
            row.attempts,
            row.deadline_us,
        )

    async def _until(self, time_us: int) -> None:
        left = (time_us - self._clock.now()) / 1_000_000
        if left > 0:
            await first_of(lambda: asyncio.sleep(left), self._woken.wait)


async def _late(attempt: Attempt | None) -> Result | Failure | None:
    """What an attempt says after its deadline, if that is definite."""
    if attempt is None:
        return None
    await asyncio.wait((attempt.ending,))
    ending = attempt.ending.result()
    return None if isinstance(ending, Unknown) else ending
