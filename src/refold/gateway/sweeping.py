"""Finding calls that were out when their process died, and saying so on record."""

from __future__ import annotations

from refold.clock import Clock
from refold.events.catalog.tool import ToolDoubted
from refold.events.identity import Stream
from refold.gateway.claims import may_repeat
from refold.gateway.inbox import intent_of
from refold.ledger.drafts import Draft
from refold.ledger.errors import RunNotFound, StreamClosed, StreamOwned
from refold.ledger.ledger import ScopedLedger
from refold.ledger.writer import StreamWriter
from refold.projections.rows import IntentRow, ToolCallRow


async def sweep(scope: ScopedLedger) -> list[IntentRow]:
    """Puts into doubt every call of the scope that is out, may not be repeated, and whose run no living process has.

    Returns their intents. Runs that somebody has are left alone; nothing waits for them.
    """
    async with scope.reader() as reader:
        rows = [row async for row in reader.each(IntentRow, {"status": "dispatched"})]
    found: list[IntentRow] = []
    for run_id in dict.fromkeys(row.owner_run_id for row in rows if not _may_repeat(row, scope.ledger.clock)):
        found += await doubt_abandoned_stream(scope, run_id)
    return found


async def doubt_abandoned_stream(scope: ScopedLedger, run_id: str) -> list[IntentRow]:
    """The same for one run. Empty when a living process has it, or it has ended."""
    try:
        writer = await scope.writer(Stream.run(run_id))
    except (StreamOwned, StreamClosed, RunNotFound):
        return []
    async with writer:
        return doubt_open_calls(writer, scope.ledger.clock)


async def left_out(scope: ScopedLedger) -> list[ToolCallRow]:
    """Calls of the scope that are out, may not be repeated, and whose run no living process has: they are in doubt,
    though nobody has put that on record yet. Changes nothing.
    """
    async with scope.reader() as reader:
        rows = [row async for row in reader.each(IntentRow, {"status": "dispatched"})]
    rows = [row for row in rows if not row.observed and not _may_repeat(row, scope.ledger.clock)]
    found: list[ToolCallRow] = []
    for run_id in sorted({row.owner_run_id for row in rows}):
        if not await scope.is_written(Stream.run(run_id)):
            async with scope.reader() as reader:
                for row in rows:
                    wanted = {"run_id": run_id, "intent_id": row.intent_id, "status": "dispatched"}
                    found += await reader.rows(ToolCallRow, wanted) if row.owner_run_id == run_id else []
    return found


def doubt_open_calls(writer: StreamWriter, clock: Clock) -> list[IntentRow]:
    """Puts the open calls of a stream that was just taken over into doubt, where they may not be repeated."""
    found: list[IntentRow] = []
    for call in writer.state.open.calls.values():
        row = None if call.intent_id is None else intent_of(writer, call.intent_id)
        if row is None or row.status != "dispatched" or row.owner_run_id != call.run_id or _may_repeat(row, clock):
            continue
        writer.append(
            Draft(
                ToolDoubted(
                    intent_id=row.intent_id, tool_call_id=call.tool_call_id, revision=row.revision + 1, why="crash"
                )
            )
        )
        found.append(writer.intent(row.intent_id))
    return found


def _may_repeat(row: IntentRow, clock: Clock) -> bool:
    expires = row.key_expires_us
    return may_repeat("pure", row.effect, key_is_good=expires is None or clock.now() < expires)
