"""Folding a whole ledger again gives the rows that the commits wrote."""

from __future__ import annotations

import asyncio
from pathlib import Path

import apsw
import pytest

from refold.events.catalog import governance, run, tool
from refold.events.identity import Stream
from refold.ledger.drafts import Draft
from refold.ledger.errors import LedgerDamaged
from refold.ledger.ledger import ScopedLedger, open_ledger
from refold.ledger.sqlite.refolding import Refolding, make_tables
from refold.ledger.writer import StreamWriter
from refold.projections import ROWS, BrokenFold
from refold.projections.rows import IntentRow
from tests.ledger.maintenance_support import Markers, all_rows, annex_facts, rebuilt_rows, rich_run, stored_rows


def test_rebuilt_rows_equal_the_stored_ones_in_every_table(tmp_path: Path) -> None:
    async def write() -> None:
        async with await open_ledger(tmp_path / "l.db") as ledger:
            for name in ("a/b", "a/c", "b/b"):
                run_id = await rich_run(ledger.scope(name), Markers(1), big=False)
                await annex_facts(ledger.scope(name), run_id, Markers(2))

    asyncio.run(write())
    stored = stored_rows(tmp_path / "l.db")
    assert [table for table, rows in stored.items() if not rows] == []
    assert rebuilt_rows(tmp_path / "l.db") == stored


async def _open_run(scope: ScopedLedger) -> StreamWriter:
    made = await scope.create(Draft(run.RunCreated(workflow="w", effect_domain="d", lineage_root="root")))
    assert isinstance(made, StreamWriter)
    made.append(Draft(run.RunStarted()))
    return made


def _claimed(step: str, key: str, attempt: int = 1) -> tool.Claim:
    return tool.Claim(step_id=step, tool="send", key=key, fingerprint="00", effect_domain="d", attempt=attempt)


async def _pass_intents_around(path: Path) -> list[str]:
    """Two runs hand two intents to and fro, so that neither stream can be folded to its end before the other."""
    async with await open_ledger(path) as ledger:
        scope = ledger.scope()
        second, first = await _open_run(scope), await _open_run(scope)
        for number in range(2):
            intent, other = (first, second) if number == 0 else (second, first)
            name, revision = f"int_{number}", 1
            for turn, writer in enumerate((intent, other, intent)):
                await writer.adopt_intents(name)
                call = f"tc_{number}_{turn}"
                claim = _claimed(f"st_{number}_{turn}", f"key_{number}", turn + 1)
                for facts in (
                    tool.ToolDispatched(intent_id=name, tool_call_id=call, revision=revision, claim=claim),
                    tool.ToolFailed(intent_id=name, tool_call_id=call, revision=revision + 1, how="answered"),
                ):
                    writer.append(Draft(facts))
                    await writer.barrier()
                revision += 2
        await first.close()
        await second.close()
        return [str(first.stream), str(second.stream)]


def test_intents_that_go_to_and_fro_between_streams_are_folded_in_the_order_of_their_revisions(tmp_path: Path) -> None:
    asyncio.run(_pass_intents_around(tmp_path / "l.db"))
    stored = stored_rows(tmp_path / "l.db")
    assert [row[2 + IntentRow.__struct_fields__.index("revision")] for row in stored["tool_intents"]] == [6, 6]
    assert rebuilt_rows(tmp_path / "l.db") == stored


def test_a_revision_that_is_missing_everywhere_is_a_broken_fold_that_names_its_event(tmp_path: Path) -> None:
    streams = asyncio.run(_pass_intents_around(tmp_path / "l.db"))
    with apsw.Connection(str(tmp_path / "l.db")) as connection:
        connection.execute(
            "UPDATE events SET facts = replace(CAST(facts AS TEXT), ?, ?) WHERE type = 'tool.dispatched'",
            ('"revision":3', '"revision":9'),
        )
    with pytest.raises(BrokenFold) as caught:
        rebuilt_rows(tmp_path / "l.db")
    assert caught.value.facts["stream"] in streams
    assert caught.value.facts["type"] == "tool.dispatched"


def test_a_stream_whose_tail_is_cut_is_damage_and_not_a_shorter_history(tmp_path: Path) -> None:
    streams = asyncio.run(_pass_intents_around(tmp_path / "l.db"))
    with apsw.Connection(str(tmp_path / "l.db")) as connection:
        connection.execute("DELETE FROM events WHERE id = (SELECT max(id) FROM events)")
    with pytest.raises(LedgerDamaged) as caught:
        rebuilt_rows(tmp_path / "l.db")
    assert caught.value.facts["stream"] in streams


def test_catching_up_folds_only_what_came_since(tmp_path: Path) -> None:
    path = tmp_path / "l.db"
    names = {row: row.TABLE.name for row in ROWS}

    async def write() -> None:
        async with await open_ledger(path) as ledger:
            scope = ledger.scope()
            mark = Markers(3)
            run_id = await rich_run(scope, mark, big=False)
            made = await _open_run(scope)
            await made.barrier()
            scratch = apsw.Connection(":memory:")
            make_tables(scratch, names)
            read = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
            refolding = Refolding(scratch, names)
            assert refolding.catch_up(read) == made.head.seq + (await scope.run_head(run_id)).seq
            made.append(Draft(run.RunSucceeded()))
            await made.barrier()
            await annex_facts(scope, run_id, mark)
            assert refolding.catch_up(read) == 1 + 2  # run.succeeded, and two events in the annex
            assert refolding.catch_up(read) == 0
            assert all_rows(scratch) == stored_rows(path)
            read.close()

    asyncio.run(write())


def test_a_stream_whose_intents_went_on_elsewhere_can_be_opened_and_written_again(tmp_path: Path) -> None:
    async def write() -> None:
        async with await open_ledger(tmp_path / "l.db") as ledger:
            scope = ledger.scope()
            run_id = await rich_run(scope, Markers(4), closed=False, big=False)
            await annex_facts(scope, run_id, Markers(5))
            async with await scope.writer(Stream.annex(run_id)) as annex:
                annex.append(Draft(governance.FeedbackAdded(feedback_id="fb_2", source="person")))
            async with await scope.writer(Stream.run(run_id)) as writer:
                writer.append(Draft(run.RunSucceeded()))

    asyncio.run(write())
    assert rebuilt_rows(tmp_path / "l.db") == stored_rows(tmp_path / "l.db")
