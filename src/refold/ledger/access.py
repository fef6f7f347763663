"""The record of who took what out of a ledger."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from refold.events.catalog.governance import AccessExported
from refold.events.identity import SCOPE_STREAM, Stream
from refold.ledger.drafts import Draft
from refold.ledger.errors import StreamOwned
from refold.ledger.ledger import ScopedLedger
from refold.ledger.writer import StreamWriter

_TRIES, _PAUSE = 50, 0.05


async def record_export(scope: ScopedLedger, run_ids: Sequence[str], *, actor: str) -> None:
    """Says in the scope's own stream that events of these runs are exported, of all runs when none is named. Durable
    when this returns: whoever exports calls it before the first byte leaves.
    """
    exported: list[str | None] = [*run_ids] or [None]
    async with await _when_free(scope, SCOPE_STREAM) as writer:
        for run_id in exported:
            writer.append(Draft(AccessExported(what="events", run_id=run_id), actor=actor))


async def _when_free(scope: ScopedLedger, stream: Stream) -> StreamWriter:
    """A stream that everybody writes a line to now and then: whoever has it lets go within moments."""
    for _ in range(_TRIES):
        try:
            return await scope.writer(stream)
        except StreamOwned:
            await asyncio.sleep(_PAUSE)
    return await scope.writer(stream)
