"""Case 30: a caller changed the state that he had been given, and the snapshot kept the change. Here what is given out
is the caller's own: no snapshot, no writer, no other caller and no table sees what he does to it.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from refold.events.catalog.inference import InferenceCompleted, InferenceRequested
from refold.events.catalog.run import RunSucceeded
from refold.events.identity import Stream
from refold.ledger.conformance.snapshots import check_a_caller_who_changes_a_state_changes_his_copy
from refold.ledger.drafts import Draft
from refold.ledger.ledger import Ledger
from refold.ledger.writer import StreamWriter
from refold.projections import FoldState, fold, freeze, new_state
from refold.projections.rows import StepRow
from refold.replay.state import state_at, state_now
from tests.cases.support import LEDGER, begin, in_ledger
from tests.ledger.maintenance_support import rebuilt_rows, stored_rows
from tests.ledger.places import SqlitePlace
from tests.replay.support import doubtful


def test_case_30_a_caller_who_changes_a_loaded_state_changes_his_copy(tmp_path: Path) -> None:
    asyncio.run(check_a_caller_who_changes_a_state_changes_his_copy(SqlitePlace(tmp_path)))


def _vandalise(state: FoldState) -> None:
    """What a careless caller does to whatever he can reach."""
    assert state.open.run is not None
    state.open.run.status = "succeeded"
    state.open.run.workflow = "changed by a caller"
    for step in state.open.steps.values():
        step.node = "changed by a caller"
        state.put(step)
    state.open.steps["st_invented"] = StepRow("st_invented", state.run_id, 1, "pure", "invented", "running", 0)
    state.open.calls.clear()
    state.open.seq = 99


async def _open_steps(ledger: Ledger) -> StreamWriter:
    writer = await begin(ledger.scope())
    for number in range(3):
        writer.append(Draft(InferenceRequested(f"st_{number}", "m", "p")))
    await writer.barrier()
    return writer


def test_case_30_changing_a_writers_state_changes_neither_its_rows_nor_its_snapshot(tmp_path: Path) -> None:
    async def work(ledger: Ledger) -> Stream:
        writer = await _open_steps(ledger)
        before = freeze(writer.state)
        _vandalise(writer.state)
        assert freeze(writer.state) == before
        for number in range(3):
            writer.append(Draft(InferenceCompleted(f"st_{number}", "stop")))
            _vandalise(writer.state)
        writer.append(Draft(RunSucceeded()))
        await writer.close()  # Takes a snapshot.
        return writer.stream

    stream = in_ledger(tmp_path, work)
    assert stored_rows(tmp_path / LEDGER) == rebuilt_rows(tmp_path / LEDGER)

    async def check(ledger: Ledger) -> None:
        scope = ledger.scope()
        whole = fold(new_state(scope.scope, stream), [event async for event in scope.read(stream)])
        async with scope.reader() as reader:
            (snapshot,) = await reader.snapshots(stream)
        assert snapshot.state == freeze(whole), "the snapshot is the fold of the events"

    in_ledger(tmp_path, check)


def test_case_30_changing_an_intent_that_a_writer_gave_out_changes_no_row(tmp_path: Path) -> None:
    async def work(ledger: Ledger) -> None:
        teller = await doubtful(ledger.scope())
        (intent,) = [call.intent_id for call in teller.writer.state.open.calls.values()]
        assert intent is not None
        row = teller.writer.intent(intent)
        row.status, row.revision, row.tool = "changed by a caller", 99, "changed by a caller"
        assert teller.writer.intent(intent).revision == 1
        teller.answer(next(call for call, ids in teller.ids.items() if ids[2] == intent))
        await teller.writer.close()

    in_ledger(tmp_path, work)
    assert stored_rows(tmp_path / LEDGER) == rebuilt_rows(tmp_path / LEDGER)


def test_case_30_two_callers_share_nothing(tmp_path: Path) -> None:
    async def work(ledger: Ledger) -> None:
        scope = ledger.scope()
        writer = await _open_steps(ledger)
        one, other = [await ledger.store.load(scope.scope, writer.stream) for _ in range(2)]
        kept = freeze(other)
        _vandalise(one)
        assert freeze(other) == kept
        assert freeze(await ledger.store.load(scope.scope, writer.stream)) == kept
        async with scope.reader() as reader:
            for row in await reader.rows(StepRow):
                row.node = "changed by a caller"
            assert {row.node for row in await reader.rows(StepRow)} == {"m"}
        await writer.close()

    in_ledger(tmp_path, work)


def test_case_30_a_state_shown_to_people_is_theirs(tmp_path: Path) -> None:
    async def work(ledger: Ledger) -> None:
        scope = ledger.scope()
        writer = await _open_steps(ledger)
        run_id, seq = writer.stream.run_id, writer.head.seq
        for state in (await state_now(scope, run_id), await state_at(scope, run_id, seq)):
            state["run"]["status"] = "changed by a caller"
            state["steps"].clear()
        again = await state_now(scope, run_id)
        assert again == await state_at(scope, run_id, seq)
        assert (again["run"]["status"], len(again["steps"])) == ("running", 3)
        await writer.close()

    in_ledger(tmp_path, work)
