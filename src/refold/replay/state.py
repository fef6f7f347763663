"""The state of a run at a moment: its tables as they stood when a given event had just been committed."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from refold.events.envelope import GENESIS
from refold.events.identity import Stream
from refold.ledger.errors import BeyondHead
from refold.ledger.ledger import ScopedLedger
from refold.ledger.lookups import run_head
from refold.ledger.port import Reader
from refold.projections import Row, fold, new_state
from refold.projections.rows import (
    ApprovalRow,
    ArtifactRow,
    CostRow,
    DecisionRow,
    RunRow,
    StepRow,
    ToolCallRow,
)
from refold.replay.present import row_json

_LISTED: tuple[tuple[str, type[Row]], ...] = (
    ("steps", StepRow),
    ("tool_calls", ToolCallRow),
    ("artifacts", ArtifactRow),
    ("costs", CostRow),
    ("approvals", ApprovalRow),
)


async def state_now(scope: ScopedLedger, run_id: str) -> dict[str, Any]:
    """{run, steps, tool_calls, artifacts, costs, approvals, head_seq, head_hash} from the tables at the head.
    Raises RunNotFound.
    """
    async with scope.reader() as reader:
        head = await run_head(reader, run_id)
        of_run = {"run_id": run_id}
        runs: list[Row] = [*await reader.rows(RunRow, of_run)]
        tables = {table: [row async for row in reader.each(table, of_run, ("seq",))] for _, table in _LISTED}
        tables[DecisionRow] = [row async for row in reader.each(DecisionRow, of_run, ("seq",))]
    return _shown({RunRow: runs, **tables}, head.head.seq, head.head.hash)


async def state_at(scope: ScopedLedger, run_id: str, seq: int) -> dict[str, Any]:
    """The same, as it was just after event `seq`, by folding events 1 to `seq`; 0 is the moment before the
    first.

    Raises RunNotFound, BeyondHead, UnknownEvent, and BrokenFold when the events do not make a whole.
    """
    async with scope.reader() as reader:
        head = await run_head(reader, run_id)
        if not 0 <= seq <= head.head.seq:
            raise BeyondHead(
                f"Run {run_id} stands at seq {head.head.seq} and has no seq {seq}.", run_id=run_id, seq=seq
            )
        rows = await _fold(reader, Stream.run(run_id), seq)
        last = await reader.raw_events(Stream.run(run_id), seq - 1, seq) if seq else []
    tables: dict[type[Row], list[Row]] = defaultdict(list)
    for row in rows:
        tables[type(row)].append(row)
    return _shown(tables, seq, last[0].hash if last else GENESIS)


async def _fold(reader: Reader, stream: Stream, upto: int | None = None) -> list[Row]:
    """Every row that the events up to a seq make, in the order of their making. Intents, which have a fold of their
    own, are not among them.
    """
    state = new_state(reader.scope, stream)
    rows: dict[tuple[object, ...], Row] = {}
    while page := await reader.folding(stream, state.open.seq, upto):
        fold(state, page)
        for row in state.take():
            rows[type(row), *row.identity()] = row
    return list(rows.values())


def _shown(tables: dict[type[Row], list[Any]], seq: int, hash_: bytes) -> dict[str, Any]:
    run = tables[RunRow]
    decisions = {row.approval_id: row_json(row) for row in tables[DecisionRow]}
    result: dict[str, Any] = {"run": row_json(run[0]) if run else None}
    for name, table in _LISTED:
        result[name] = [row_json(row) for row in sorted(tables[table], key=lambda row: int(row.seq))]
    for approval in result["approvals"]:
        approval["decision"] = decisions.get(approval["approval_id"])
    return {**result, "head_seq": seq, "head_hash": hash_.hex()}
