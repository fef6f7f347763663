"""Importing again, going on after an interruption, files that were cut, and records that were changed."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from random import Random
from typing import Any

import pytest
from benchmarks.generate_session import write_session

from refold.events.catalog.run import RunCreated
from refold.events.catalog.tool import ToolResolved
from refold.events.identity import Stream
from refold.interop.importers import ImportConflict, Progress, import_paths
from refold.ledger.drafts import Draft
from refold.ledger.errors import Fenced, StreamOwned
from refold.ledger.ledger import Existing, Ledger, open_ledger
from refold.projections.rows import ToolCallRow
from tests.interop.support import (
    HEADER,
    answer,
    call,
    heads_of,
    imported,
    in_ledger,
    line,
    result,
    shared,
    small_session,
    text,
    told_of,
    user,
    write,
)
from tests.invariants.checks import check_all


def test_importing_twice_changes_no_head(tmp_path: Path) -> None:
    path = write(tmp_path / "s.jsonl", small_session())
    first = imported(tmp_path, path).runs[0]
    before = heads_of(tmp_path)
    second = imported(tmp_path, path).runs[0]
    assert heads_of(tmp_path) == before
    assert (second.run_id, second.created, second.added) == (first.run_id, False, 0)
    assert (second.events, second.inferences, second.tool_calls, second.unanswered, second.charges) == (
        first.events,
        first.inferences,
        first.tool_calls,
        first.unanswered,
        first.charges,
    )


def test_the_same_session_under_another_name_is_the_same_run(tmp_path: Path) -> None:
    first = imported(tmp_path, write(tmp_path / "s.jsonl", small_session())).runs[0]
    assert imported(tmp_path, write(tmp_path / "moved.jsonl", small_session())).runs[0].run_id == first.run_id
    other = imported(tmp_path, tmp_path / "s.jsonl", scope="t/other").runs[0]
    assert (other.created, other.run_id != first.run_id) == (True, True)


def test_a_file_cut_after_any_line_keeps_what_came_before_and_is_completed_by_the_whole(tmp_path: Path) -> None:
    records = small_session()
    whole = write(tmp_path / "whole.jsonl", records)
    direct = imported(tmp_path, whole, scope="t/direct").runs[0]
    expected = told_of(tmp_path, direct.run_id, "t/direct")
    for count in range(1, len(records)):
        scope = f"t/cut{count}"
        part = imported(tmp_path, write(tmp_path / "cut.jsonl", records[:count]), scope=scope).runs[0]
        assert part.errors == []
        assert told_of(tmp_path, part.run_id, scope) == expected[: part.events]
        rest = imported(tmp_path, whole, scope=scope).runs[0]
        assert (rest.run_id, rest.created, rest.added) == (part.run_id, False, direct.events - part.events)
        assert told_of(tmp_path, rest.run_id, scope) == expected
        assert (rest.inferences, rest.unanswered, rest.charges) == (
            direct.inferences,
            direct.unanswered,
            direct.charges,
        )
    check_all(tmp_path / "ledger.db")


def test_a_file_cut_at_any_byte_names_the_line_and_is_completed_by_the_whole(tmp_path: Path) -> None:
    whole = write(tmp_path / "whole.jsonl", small_session())
    data = whole.read_bytes()
    direct = imported(tmp_path, whole, scope="t/direct").runs[0]
    expected = told_of(tmp_path, direct.run_id, "t/direct")
    first = data.index(b"\n") + 2
    for round_, place in enumerate(sorted(Random(7).sample(range(first, len(data) - 1), 25))):
        scope = f"t/{round_}"
        cut = tmp_path / "cut.jsonl"
        cut.write_bytes(data[:place])
        (part,) = imported(tmp_path, cut, scope=scope).runs
        ends_whole = data[place - 1 : place] == b"\n" or data[place : place + 1] == b"\n"
        assert [problem.line for problem in part.errors] == ([] if ends_whole else [data[:place].count(b"\n") + 1]), (
            place
        )
        assert told_of(tmp_path, part.run_id, scope) == expected[: part.events]
        rest = imported(tmp_path, whole, scope=scope).runs[0]
        assert rest.errors == []
        assert told_of(tmp_path, rest.run_id, scope) == expected, place


def test_a_shorter_copy_of_what_is_there_changes_nothing(tmp_path: Path) -> None:
    records = small_session()
    whole = imported(tmp_path, write(tmp_path / "s.jsonl", records)).runs[0]
    before = heads_of(tmp_path)
    shorter = imported(tmp_path, write(tmp_path / "s.jsonl", records[:5])).runs[0]
    assert heads_of(tmp_path) == before
    assert (shorter.events, shorter.errors) == (whole.events, [])


@pytest.mark.parametrize("place", range(len(small_session())))
def test_a_changed_earlier_record_is_a_conflict_that_names_it_and_writes_nothing(tmp_path: Path, place: int) -> None:
    records = small_session()
    imported(tmp_path, write(tmp_path / "s.jsonl", records))
    before = heads_of(tmp_path)
    changed = [dict(record) for record in records]
    changed[place]["timestamp"] = "2026-01-02T03:59:59.999Z"
    grown = [*changed, user(50, "more")]
    with pytest.raises(ImportConflict) as caught:
        imported(tmp_path, write(tmp_path / "s.jsonl", grown))
    assert (caught.value.code, caught.value.exit_status) == ("import_conflict", 6)
    assert (caught.value.facts["line"], caught.value.facts["record"]) == (place + 1, place + 1)
    assert heads_of(tmp_path) == before


def test_a_record_that_is_gone_is_a_conflict(tmp_path: Path) -> None:
    records = small_session()
    imported(tmp_path, write(tmp_path / "s.jsonl", records))
    with pytest.raises(ImportConflict) as caught:
        imported(tmp_path, write(tmp_path / "s.jsonl", [*records[:3], *records[4:]]))
    assert caught.value.facts["line"] == 4


def test_a_session_that_grows_after_its_doubt_was_settled_goes_on(tmp_path: Path) -> None:
    records = [HEADER, answer(1, call("c", "pay"), stop="toolUse")]
    (run,) = imported(tmp_path, write(tmp_path / "s.jsonl", records)).runs

    async def look_into_it(ledger: Ledger) -> None:
        scope = ledger.scope("t/w")
        async with scope.reader() as reader:
            (row,) = await reader.rows(ToolCallRow, {"run_id": run.run_id})
        async with await scope.writer(Stream.run(str(run.run_id))) as writer:
            facts = ToolResolved(
                intent_id=str(row.intent_id),
                tool_call_id=row.tool_call_id,
                revision=2,
                resolution="did_not_happen",
                by="person",
            )
            writer.append(Draft(facts, content={"basis": "looked"}))

    in_ledger(tmp_path, look_into_it)
    grown = [*records, result(2, "c", "paid after all"), answer(3, text("done"))]
    (again,) = imported(tmp_path, write(tmp_path / "s.jsonl", grown)).runs
    assert (again.errors, again.unanswered, again.added) == ([], 0, 4)
    check_all(tmp_path / "ledger.db")


def test_a_process_that_died_right_after_the_run_was_created_is_taken_up(tmp_path: Path) -> None:
    async def only_create(ledger: Ledger) -> str:
        run_id = ledger.ids.new("run")
        facts = RunCreated("pi session", run_id, run_id, origin="imported", subject_kind="session")
        made = await ledger.scope("t/w").create(Draft(facts, content={"input": HEADER}), run_id, "import/pi/5e55")
        assert not isinstance(made, Existing)
        await made.close()
        return run_id

    run_id = in_ledger(tmp_path, only_create)
    (run,) = imported(tmp_path, write(tmp_path / "s.jsonl", small_session())).runs
    assert (run.run_id, run.created, run.errors) == (run_id, False, [])
    assert [event[1] for event in told_of(tmp_path, run_id)][:4] == [
        "run.created",
        "run.started",
        "run.paused",
        "signal.received",
    ]


def test_two_imports_of_one_growing_file_do_not_both_write(tmp_path: Path) -> None:
    records = small_session()
    path = write(tmp_path / "s.jsonl", records[:4])
    imported(tmp_path, path)
    write(path, records)

    async def both(ledger: Ledger) -> list[Any]:
        scope = ledger.scope("t/w")
        return await asyncio.gather(*(import_paths(scope, "pi", [path]) for _ in range(2)), return_exceptions=True)

    outcomes = in_ledger(tmp_path, both)
    assert all(not isinstance(each, BaseException) or isinstance(each, StreamOwned | Fenced) for each in outcomes), (
        outcomes
    )
    direct = imported(tmp_path, path, scope="t/direct").runs[0]
    (run,) = imported(tmp_path, path).runs
    assert told_of(tmp_path, run.run_id) == told_of(tmp_path, direct.run_id, "t/direct")


def _dies(folder: Path, path: Path, after: int) -> None:
    """A child process imports and is killed by SIGKILL at its `after`th report of progress."""
    child = os.fork()
    if child == 0:
        try:
            seen = [0]

            def stop(_: Progress) -> None:
                seen[0] += 1
                if seen[0] == after:
                    os.kill(os.getpid(), signal.SIGKILL)

            async def run() -> None:
                async with await open_ledger(folder / "ledger.db") as ledger:
                    await import_paths(ledger.scope("t/w"), "pi", [path], stop)

            asyncio.run(run())
        finally:
            os._exit(3)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status), "the import ended before it was to be killed"


def test_an_import_that_is_killed_again_and_again_ends_as_if_it_never_was(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    write_session(path, 4_500_000, seed=3)
    for after in (1, 1, 2):
        _dies(tmp_path, path, after)
    (run,) = imported(tmp_path, path).runs
    assert (run.created, run.errors) == (False, [])
    direct = imported(tmp_path, path, scope="t/direct").runs[0]
    assert 0 < run.added < direct.events == run.events
    assert told_of(tmp_path, run.run_id) == told_of(tmp_path, direct.run_id, "t/direct")
    check_all(tmp_path / "ledger.db")


def test_the_recorded_session_cut_anywhere_is_completed(tmp_path: Path) -> None:
    path = shared("pi-sessions/before-compaction.jsonl")
    data = path.read_bytes()
    places = [Random(11).randrange(len(data)), data.index(b'"compaction"') + 5000, len(data) - 1]
    direct = imported(tmp_path, path, scope="t/direct").runs[0]
    expected = told_of(tmp_path, direct.run_id, "t/direct")
    for place in places:
        cut = tmp_path / "cut.jsonl"
        cut.write_bytes(data[:place])
        report = imported(tmp_path, cut, scope=f"t/{place}")
        if place < len(data) - 1:
            assert [problem.line for problem in report.runs[0].errors] == [data[:place].count(b"\n") + 1]
        rest = imported(tmp_path, path, scope=f"t/{place}").runs[0]
        assert told_of(tmp_path, rest.run_id, f"t/{place}") == expected


def test_blank_lines_and_windows_line_ends_change_nothing(tmp_path: Path) -> None:
    records = small_session()
    imported(tmp_path, write(tmp_path / "s.jsonl", records))
    before = heads_of(tmp_path)
    odd = tmp_path / "odd.jsonl"
    odd.write_bytes(b"\xef\xbb\xbf" + b"\n\r\n".join(line(record).strip() for record in records))
    (run,) = imported(tmp_path, odd).runs
    assert (run.added, run.errors) == (0, [])
    assert heads_of(tmp_path) == before
