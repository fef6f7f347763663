"""Telling a run something from outside, without its code: signals, cancellations, pauses.

Killed after a post, the item is there for whoever has the run, or opens it next; it counts once, with the event that
it becomes.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from refold.events.catalog.run import RunPaused
from refold.events.content import seal, unseal
from refold.events.identity import Stream
from refold.gateway.sweeping import doubt_open_calls
from refold.ledger.drafts import Draft
from refold.ledger.errors import RunNotFound, StreamClosed, StreamOwned
from refold.ledger.ledger import ScopedLedger
from refold.ledger.port import InboxItem
from refold.projections.rows import RunRow
from refold.runtime.errors import NotARun

Kind = Literal["signal", "cancel", "pause", "resume"]
"""What is posted to a run for its executor."""


async def post(
    scope: ScopedLedger, run_id: str, kind: Kind, payload: dict[str, Any], by: str = "", id: str | None = None
) -> None:
    """Puts one item into a run's inbox; the same `id` again puts nothing. Raises RunNotFound, NotARun, StreamClosed."""
    await _must_be_open(scope, run_id)
    stored, _ = seal(msgspec.json.encode(payload), scope.ledger.ids.random(16))
    key = f"{kind}:{id}" if id is not None else scope.ledger.ids.new(kind)
    await scope.post(run_id, key, kind, stored, by)


async def post_signal(
    scope: ScopedLedger, run_id: str, name: str, encoded: bytes, *, by: str = "", id: str | None = None
) -> None:
    """Sends a signal whose value is in its stored form. Raises what `post` raises."""
    await post(scope, run_id, "signal", {"name": name, "value": msgspec.Raw(encoded)}, by, id)


async def post_cancel(scope: ScopedLedger, run_id: str, basis: str, by: str = "") -> None:
    """Tells a run to stop. Raises what `post` raises."""
    await post(scope, run_id, "cancel", {"basis": basis}, by, "cancel")


async def pause(scope: ScopedLedger, run_id: str, basis: str, by: str = "") -> bool:
    """Pauses a run: at once where nobody has it, else its owner is asked to. Whether it is on record already.

    Raises RunNotFound, NotARun, StreamClosed.
    """
    await _must_be_open(scope, run_id)
    try:
        writer = await scope.writer(Stream.run(run_id))
    except StreamOwned:
        await post(scope, run_id, "pause", {"basis": basis}, by)
        return False
    async with writer:
        doubt_open_calls(writer, scope.ledger.clock)
        writer.append(Draft(RunPaused("requested"), {"basis": basis}, input=basis, actor=by))
    return True


def payload_of(item: InboxItem) -> dict[str, Any]:
    """What an item of an inbox says; a signal's value is still encoded."""
    raw = msgspec.json.decode(unseal(item.payload), type=dict[str, msgspec.Raw])
    return {name: bytes(each) if name == "value" else msgspec.json.decode(each) for name, each in raw.items()}


async def _must_be_open(scope: ScopedLedger, run_id: str) -> None:
    async with scope.reader() as reader:
        rows = await reader.rows(RunRow, {"run_id": run_id})
    if not rows:
        raise RunNotFound(f"There is no run {run_id} in scope {scope.scope}.", run=run_id)
    row = rows[0]
    if row.origin != "live" or row.subject_kind != "workflow":
        raise NotARun(f"Run {run_id} is {row.origin}, a {row.subject_kind}: no code of it takes anything.", run=run_id)
    if row.ended_at is not None:
        raise StreamClosed(f"Run {run_id} has ended.", stream=run_id)
