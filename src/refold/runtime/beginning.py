"""Where an execution of a run begins: its input, its segment and state, and what was under way around the record."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from refold.events.catalog.run import RunCreated
from refold.events.envelope import Event
from refold.events.identity import Stream
from refold.ledger.errors import RunNotFound
from refold.ledger.lookups import each_event
from refold.ledger.port import Reader
from refold.projections.rows import AuditRow, RunRow
from refold.runtime.budget import Budget
from refold.runtime.errors import NotARun
from refold.runtime.operations import Fields
from refold.runtime.record import read_fields
from refold.runtime.run import Identity
from refold.runtime.steps import Codec

_NO_INPUT = msgspec.Raw(b"null")


class Beginning(NamedTuple):
    """What `read_beginning` found. `after` is the seq from which the record is delivered."""

    run_id: str
    created: RunCreated
    key: str | None
    input: msgspec.Raw
    budget: Budget
    started: Event | None
    after: int
    segment: int
    stored_state: msgspec.Raw | None
    checkpoint: Event | None
    unconsumed: list[tuple[Event, Fields]]
    paused: str | None
    stopping: str | None

    @property
    def clock_from(self) -> int:
        """The recorded time at which the segment's clock starts."""
        begun = self.checkpoint or self.started
        assert begun is not None
        return begun.recorded_at

    def state(self, codec: Codec) -> Any:
        """The state of the last checkpoint; None in the first segment. Raises UnknownType, ValueDamaged."""
        return None if self.stored_state is None else codec.decode(self.stored_state)

    def identity(self, secret: bytes) -> Identity:
        return Identity(self.run_id, self.key, self.created.seed or "", secret, self.created.effect_domain)


async def read_beginning(reader: Reader, run_id: str, checkpoint: int) -> Beginning:
    """Reads where to begin: at the checkpoint, or at the run's start where `checkpoint` is 0.

    Raises RunNotFound, NotARun, Erased, ContentDamaged.
    """
    stream = Stream.run(run_id)
    first = await reader.events(stream, 0, limit=1)
    rows = await reader.rows(RunRow, {"run_id": run_id})
    if not first or not rows:
        raise RunNotFound(f"There is no run {run_id} in scope {reader.scope}.", run=run_id)
    created: RunCreated = first[0].facts
    if created.subject_kind != "workflow" or created.origin != "live":
        raise NotARun(
            f"Run {run_id} is {created.origin}, a {created.subject_kind}: no workflow's code made it.", run=run_id
        )
    fields = await read_fields(reader, stream, first[0])
    budget = msgspec.json.decode(fields["budget"], type=Budget) if "budget" in fields else Budget()
    begin = Beginning(
        run_id,
        created,
        first[0].view.ref,
        fields.get("input", _NO_INPUT),
        budget,
        await _started(reader, stream),
        1,
        0,
        None,
        None,
        [],
        rows[0].reason if rows[0].status == "paused" else None,
        await _stopping(reader, stream),
    )
    return await _at_checkpoint(reader, stream, begin, checkpoint) if checkpoint else begin


async def _at_checkpoint(reader: Reader, stream: Stream, begin: Beginning, seq: int) -> Beginning:
    event = (await reader.events(stream, seq - 1, seq, 1))[0]
    fields = await read_fields(reader, stream, event)
    unconsumed = []
    for each in event.facts.unconsumed:
        signal = (await reader.events(stream, each - 1, each, 1))[0]
        unconsumed.append((signal, await read_fields(reader, stream, signal)))
    return begin._replace(
        after=seq,
        segment=event.facts.segment,
        stored_state=fields["state"],
        checkpoint=event,
        unconsumed=unconsumed,
    )


async def _started(reader: Reader, stream: Stream) -> Event | None:
    """The event by which the run began. It may have been paused any number of times before."""
    async for event in each_event(reader, stream, page=16):
        if event.type == "run.started":
            return event
    return None


async def _stopping(reader: Reader, stream: Stream) -> str | None:
    rows = await reader.rows(AuditRow, {"stream": str(stream), "event": "run.stop_requested"}, limit=1)
    return rows[0].outcome if rows else None
