"""Ending a run without its code: an imported session, or a run whose code is gone for good."""

from __future__ import annotations

from refold.errors import RefoldError
from refold.events.catalog.run import RunCanceled
from refold.events.envelope import Head
from refold.events.identity import Stream
from refold.ledger.drafts import Draft
from refold.ledger.ledger import ScopedLedger


class CancelInDoubt(RefoldError):
    """A run whose own effect may have happened is not ended over it: ending would hide the doubt."""

    code = "cancel_in_doubt"
    exit_status = 6
    remedy = "Settle the doubt first: `refold resolve CALL` (`refold tool-calls` names it)."


async def end_without_code(scope: ScopedLedger, run_id: str, basis: str, *, actor: str) -> Head:
    """Closes a run's stream as canceled; nothing of its code runs. What it recorded stays.

    Raises RunNotFound, StreamClosed, StreamOwned (a living process has it), CancelInDoubt.
    """
    writer = await scope.writer(Stream.run(run_id))
    async with writer:
        for call in writer.open_calls():
            if not call.observed and call.status in ("dispatched", "in_doubt"):
                raise CancelInDoubt(
                    f"Tool call {call.tool_call_id} of {run_id} was sent, and we do not know whether it happened.",
                    run_id=run_id,
                    tool_call_id=call.tool_call_id,
                )
        writer.append(Draft(RunCanceled(), content={"basis": basis}, input=basis, actor=actor))
        await writer.barrier()
    return writer.head
