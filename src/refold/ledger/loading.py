"""The fold of a stream at its head: from the newest snapshot that can be trusted, then the events after it."""

from __future__ import annotations

from refold.events.envelope import StreamRef
from refold.events.identity import Stream
from refold.ledger import snapshots
from refold.ledger.errors import LedgerDamaged
from refold.ledger.port import Reader
from refold.projections import FoldState, fold, new_state
from refold.projections.fingerprint import fingerprint

_PAGE = 500
"""Events at once. Few enough that a page is still in the processor's cache when it is folded."""


async def load(reader: Reader, stream: Stream) -> FoldState:
    """The open state of a stream as the reader sees it; a stream that does not exist gives the empty state.

    Raises LedgerDamaged when events are missing before the head: nobody may go on writing there.
    """
    state = new_state(reader.scope, stream)
    head = await reader.head(stream)
    if head is None:
        return state
    found = await reader.snapshots(stream)
    hash_at: dict[int, bytes] = {}
    for snapshot in found:
        if snapshot.seq <= head.head.seq:
            rows = await reader.raw_events(stream, snapshot.seq - 1, snapshot.seq, 1)
            hash_at.update({row.seq: row.hash for row in rows})
    ref = StreamRef(reader.scope, stream)
    state = snapshots.choose(ref, found, hash_at, head.head.seq, fingerprint()) or state
    while page := await reader.folding(stream, state.open.seq, limit=_PAGE):
        fold(state, page)
        state.take()
    if state.open.seq != head.head.seq:
        raise LedgerDamaged(
            f"The head of {stream} stands at seq {head.head.seq}, and its last event at {state.open.seq}.",
            stream=str(stream),
            seq=state.open.seq,
        )
    return state
