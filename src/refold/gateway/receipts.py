"""What the record holds of an intent: its receipt, and the arguments it was claimed with."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from refold.events.differences import differences
from refold.events.envelope import Event
from refold.events.identity import Stream
from refold.gateway.outcomes import fields_of, read_fields
from refold.ledger.errors import Erased
from refold.ledger.ledger import ScopedLedger
from refold.ledger.port import Reader
from refold.projections.rows import IntentRow, ToolCallRow


class Receipt(NamedTuple):
    """The event that ended an intent, and its content."""

    event: Event
    fields: dict[str, bytes]


async def receipt_event(reader: Reader, row: IntentRow) -> Event:
    """The event that a row names as its receipt: of its run's stream, or of the annex when a doubt was resolved there.

    Raises Erased when neither has it.
    """
    run_id, seq = row.receipt_run_id or row.owner_run_id, row.receipt_seq or 0
    for stream in (Stream.run(run_id), Stream.annex(run_id)):
        for event in await reader.events(stream, seq - 1, seq):
            if getattr(event.facts, "intent_id", None) == row.intent_id:
                return event
    raise Erased(f"The receipt of intent {row.intent_id} is not there.", intent_id=row.intent_id)


async def read_receipt(scope: ScopedLedger, row: IntentRow) -> Receipt:
    """Raises Erased, ContentDamaged, ArtifactDamaged."""
    async with scope.reader() as reader:
        event = await receipt_event(reader, row)
        run_id = row.receipt_run_id or row.owner_run_id
        return Receipt(event, await read_fields(reader, scope.ledger.files, run_id, event))


async def changed_path(scope: ScopedLedger, row: IntentRow, encoded: bytes) -> str:
    """Where the arguments of a call first differ from those that its intent was claimed with; `?` when those were
    erased.
    """
    async with scope.reader() as reader:
        calls = await reader.rows(ToolCallRow, {"run_id": row.owner_run_id, "intent_id": row.intent_id})
        events = await reader.events(Stream.run(row.owner_run_id), calls[0].seq - 1, calls[0].seq) if calls else []
    try:
        claimed = fields_of(events[0])["arguments"] if events else None
    except Erased:
        claimed = None
    if claimed is None:
        return "?"
    found = next(differences(msgspec.json.decode(claimed), msgspec.json.decode(encoded)), None)
    return "" if found is None else found[0]
