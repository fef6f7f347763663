"""What a report can say only after a look at more of the record than the executor reads."""

from __future__ import annotations

import msgspec

from refold.errors import RefoldError
from refold.events.identity import Stream
from refold.ledger.ledger import ScopedLedger
from refold.runtime.comparison import tree
from refold.runtime.divergence import Divergence, first_difference
from refold.runtime.record import read_fields


async def explained(scope: ScopedLedger, run_id: str, divergence: Divergence) -> Divergence:
    """The report with the path at which a request to a model differs: its messages are read only for this."""
    asked = divergence.attempted.get("asks") if isinstance(divergence.attempted, dict) else None
    if divergence.kind != "changed" or divergence.seq is None or not isinstance(asked, dict) or "messages" not in asked:
        return divergence
    stream = Stream.run(run_id)
    try:
        async with scope.reader() as reader:
            (event,) = await reader.events(stream, divergence.seq - 1, divergence.seq, 1)
            if event.type != "inference.requested":
                return divergence
            fields = await read_fields(reader, stream, event, whole=True)
    except RefoldError:
        return divergence  # Erased or damaged: what is left of it is in the report already.
    recorded = {"model": event.facts.model, "messages": [], "settings": {}, "tools": [], **tree(fields)}
    difference = first_difference(recorded, {name: asked[name] for name in recorded})
    return msgspec.structs.replace(
        divergence, recorded=recorded, first_difference=difference or divergence.first_difference
    )
