"""Replay kind 5 for one run: its tables are folded again from its events and compared with the stored ones.

Nothing is executed and nothing is written. An intent that other runs touched as well is not compared: only a rebuild of
the whole ledger has all of its events.
"""

from __future__ import annotations

from collections import defaultdict
from hashlib import sha256
from typing import Any, NamedTuple

from refold.events.envelope import Event, Head
from refold.events.identity import Stream
from refold.ledger.ledger import ScopedLedger
from refold.ledger.port import Reader
from refold.projections import ROWS, Row, fold, new_state
from refold.projections.intents import INTENT_EVENTS, Intents
from refold.projections.rows import AuditRow, IntentRow
from refold.replay.present import row_json, to_json

Key = tuple[Any, ...]
Tables = dict[type[Row], dict[Key, Row]]


class Divergence(NamedTuple):
    """A row that is stored otherwise than it is folded. `kind` is its table; None stands for a row that is missing."""

    seq: int | None
    step: str | None
    kind: str
    recorded: dict[str, Any] | None
    attempted: dict[str, Any] | None
    first_difference: str


class ProjectionReplay(NamedTuple):
    """What folding a run again showed. `state_digest` is over the folded rows: the same events give the same digest."""

    head_before: Head
    head_after: Head
    events: int
    rows: int
    divergences: list[Divergence]
    state_digest: str

    @property
    def equal(self) -> bool:
        return not self.divergences


async def replay_projections(scope: ScopedLedger, run_id: str) -> ProjectionReplay:
    """Folds a run and its annex again and compares. Raises RunNotFound, UnknownEvent, BrokenFold."""
    run, annex = Stream.run(run_id), Stream.annex(run_id)
    before = await scope.run_head(run_id)
    async with scope.reader() as reader:
        events = 0
        folded: Tables = {table: {} for table in ROWS}
        touches: dict[str, list[tuple[Event, Stream]]] = defaultdict(list)
        for stream in (run, annex):
            events += await _fold(reader, stream, folded, touches)
        stored = {table: await _stored(reader, table, run_id) for table in ROWS if table is not IntentRow}
        stored[IntentRow] = await _intents(reader, touches, folded[IntentRow])
    divergences = [
        _divergence(table, stored[table].get(key), folded[table].get(key))
        for table in ROWS
        for key in sorted(stored[table].keys() | folded[table].keys(), key=repr)
        if stored[table].get(key) != folded[table].get(key)
    ]
    after = await scope.run_head(run_id)
    rows = sum(map(len, folded.values()))
    return ProjectionReplay(before, after, events, rows, divergences, _digest(folded))


async def _fold(reader: Reader, stream: Stream, tables: Tables, touches: dict[str, list[tuple[Event, Stream]]]) -> int:
    """Folds a stream into `tables`, collects the events that touch intents, and says how many events there were."""
    state = new_state(reader.scope, stream)
    while page := await reader.folding(stream, state.open.seq):
        fold(state, page)
        for row in state.take():
            tables[type(row)][row.identity()] = row
        for event in page:
            if event.type in INTENT_EVENTS:
                touches[event.facts.intent_id].append((event, stream))
    return state.open.seq


async def _intents(
    reader: Reader, touches: dict[str, list[tuple[Event, Stream]]], folded: dict[Key, Row]
) -> dict[Key, Row]:
    """Folds the intents that these events alone made, and returns their stored rows."""
    found: dict[Key, Row] = {}
    intents = Intents()
    for intent_id, events in touches.items():
        events.sort(key=lambda each: int(each[0].facts.revision))
        stored = await reader.rows(IntentRow, {"intent_id": intent_id})
        ours = [event.facts.revision for event, _ in events] == list(range(1, len(events) + 1))
        if not ours or (stored and stored[0].revision > len(events)):
            continue
        for event, stream in events:
            row = intents.apply(event, str(stream), stream.run_id)
        folded[row.identity()] = row
        found.update({each.identity(): each for each in stored})
    return found


async def _stored(reader: Reader, table: type[Row], run_id: str) -> dict[Key, Row]:
    owners: list[dict[str, Any]] = [{"run_id": run_id}]
    if table is AuditRow:  # Other streams may speak about the run; its own two are what was folded.
        owners = [{"stream": str(stream)} for stream in (Stream.run(run_id), Stream.annex(run_id))]
    return {row.identity(): row for owner in owners async for row in reader.each(table, owner)}


def _divergence(table: type[Row], stored: Row | None, folded: Row | None) -> Divergence:
    known = stored or folded
    difference = "the row is not stored" if stored is None else "the row is stored, and no event makes it"
    if stored is not None and folded is not None:
        names = table.__struct_fields__
        difference = next(name for name in names if getattr(stored, name) != getattr(folded, name))
    return Divergence(
        getattr(known, "seq", None),
        getattr(known, "step_id", None) or getattr(known, "run_step_id", None),
        table.TABLE.name,
        None if stored is None else row_json(stored),
        None if folded is None else row_json(folded),
        difference,
    )


def _digest(tables: Tables) -> str:
    digest = sha256()
    for table, rows in tables.items():
        for key in sorted(rows, key=repr):
            digest.update(table.TABLE.name.encode() + b"\0" + to_json(row_json(rows[key])) + b"\n")
    return digest.hexdigest()
