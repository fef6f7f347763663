"""Erasing a run: nothing of what it said is left in any file, and all that it proves still holds."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import apsw
import pytest

from refold.events.catalog import governance
from refold.events.content import unseal
from refold.events.identity import Stream
from refold.ledger.drafts import Draft
from refold.ledger.errors import NotClosed, RunNotFound, StreamOwned
from refold.ledger.ledger import ScopedLedger, open_ledger
from refold.ledger.maintenance.erasure import Erasure, erase_run
from refold.ledger.verify import verify_stream
from refold.projections.rows import AuditRow, RunRow
from tests.ledger.maintenance_support import Markers, annex_facts, left_in_files, rebuilt_rows, rich_run, stored_rows

SEED = 7


def left_in_values(path: Path, mark: Markers) -> list[str]:
    """The markers in any value of any table, decompressed where it was compressed."""
    found: list[str] = []
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    tables = connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'").fetchall()
    for (table,) in tables:
        for row in connection.execute(f"SELECT * FROM {table}"):
            for value in row:
                if isinstance(value, str):
                    found += mark.found_in(value.encode())
                elif isinstance(value, bytes):
                    found += mark.found_in(value)
                    if value[16:21] == b"\x01\x28\xb5\x2f\xfd":  # Salt, codec, and what every zstd frame begins with.
                        found += mark.found_in(unseal(value))
    connection.close()
    return found


def rows_of_others(path: Path, run_id: str) -> list[Any]:
    """Every stored row of every table that is not of this run."""
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    numbers = connection.execute("SELECT stream_no FROM stream_heads WHERE stream LIKE ? || '%'", (run_id,)).fetchall()
    own = {number for (number,) in numbers}
    kept = []
    for (table,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name").fetchall():
        if table == "incarnations":
            continue
        for row in connection.execute(f"SELECT * FROM {table}").fetchall():
            mine = table in ("events", "blobs", "stream_heads") and row[0] >> (32 * (table != "stream_heads")) in own
            if not mine and not any(isinstance(value, str) and run_id in value for value in row):
                kept.append((table, row))
    connection.close()
    return kept


async def proven(scope: ScopedLedger, run_id: str) -> int:
    """How many events of a run and its annex are redacted, after both were proven."""
    redacted = 0
    async with scope.reader() as reader:
        for stream in (Stream.run(run_id), Stream.annex(run_id)):
            report = await verify_stream(reader, stream, scope.ledger.files)
            assert report.first_bad is None
            redacted += report.redacted
    return redacted


def test_nothing_that_a_run_said_is_left_in_any_file_or_value(tmp_path: Path) -> None:
    mark, path = Markers(SEED), tmp_path / "l.db"

    async def write_and_erase() -> tuple[str, Erasure]:
        async with await open_ledger(path) as ledger:
            scope = ledger.scope("a/b")
            run_id = await rich_run(scope, mark)
            await annex_facts(scope, run_id, mark)
            return run_id, await erase_run(scope, run_id, "asked for by user_9", "admin_1")

    async def prove(run_id: str) -> None:
        async with await open_ledger(path) as ledger:
            scope = ledger.scope("a/b")
            assert await proven(scope, run_id) > 10
            async with scope.reader() as reader:
                (row,) = await reader.rows(RunRow, {"run_id": run_id})
                audit = await reader.rows(AuditRow, {"run_id": run_id, "event": "content.erased"})
            assert row.key is None
            assert row.key_digest is not None
            assert [(each.actor, each.detail) for each in audit] == [("admin_1", "asked for by user_9")]

    run_id, erasure = asyncio.run(write_and_erase())
    assert len(mark.made) > 35
    assert left_in_files(path, mark) == {}
    assert left_in_values(path, mark) == []
    assert (erasure.blobs, erasure.files, erasure.already, erasure.pending) == (4, 1, False, None)
    assert rebuilt_rows(path) == stored_rows(path)
    asyncio.run(prove(run_id))


def test_before_the_erasure_the_same_search_finds_what_was_said(tmp_path: Path) -> None:
    mark, path = Markers(SEED), tmp_path / "l.db"

    async def write() -> None:
        async with await open_ledger(path) as ledger:
            run_id = await rich_run(ledger.scope(), mark)
            await annex_facts(ledger.scope(), run_id, mark)

    asyncio.run(write())
    found = left_in_values(path, mark)
    in_files = [what for each in left_in_files(path, mark).values() for what in each]
    assert sorted(set(mark.made.values()) - set(found) - set(in_files)) == []


def test_the_rows_of_other_runs_and_tenants_stay_byte_for_byte(tmp_path: Path) -> None:
    path = tmp_path / "l.db"

    async def erase() -> None:
        async with await open_ledger(path) as ledger:
            for name in ("a/b", "a/c", "b/b"):
                await annex_facts(ledger.scope(name), await rich_run(ledger.scope(name), Markers(SEED)), Markers(8))
            run_id = await rich_run(ledger.scope("a/b"), Markers(9))
            before = rows_of_others(path, run_id)
            files = {file: file.read_bytes() for file in ledger.files.root.rglob("art_*") if run_id not in str(file)}
            await erase_run(ledger.scope("a/b"), run_id, "basis", "admin")
            assert rows_of_others(path, run_id) == before
            assert {file: file.read_bytes() for file in ledger.files.root.rglob("art_*")} == files
            assert len(files) == 3

    asyncio.run(erase())


def test_an_open_run_and_an_unknown_one_are_refused_and_keep_everything(tmp_path: Path) -> None:
    mark = Markers(SEED)

    async def erase() -> None:
        async with await open_ledger(tmp_path / "l.db") as ledger:
            run_id = await rich_run(ledger.scope("a/b"), mark, closed=False, big=False)
            before = stored_rows(ledger.path)
            with pytest.raises(NotClosed):
                await erase_run(ledger.scope("a/b"), run_id, "basis", "admin")
            with pytest.raises(RunNotFound):
                await erase_run(ledger.scope("a/c"), run_id, "basis", "admin")
            assert stored_rows(ledger.path) == before

    asyncio.run(erase())
    assert "input" in left_in_values(tmp_path / "l.db", mark)


def test_erasing_again_writes_nothing_until_the_annex_says_something_new(tmp_path: Path) -> None:
    path, mark = tmp_path / "l.db", Markers(SEED)

    async def erase() -> None:
        async with await open_ledger(path) as ledger:
            scope = ledger.scope()
            run_id = await rich_run(scope, mark, big=False)
            await erase_run(scope, run_id, "first", "admin")
            before = stored_rows(path)
            assert await erase_run(scope, run_id, "second", "admin") == Erasure(0, 0, 0, True, None)
            assert stored_rows(path) == before
            async with await scope.writer(Stream.annex(run_id)) as annex:
                draft = Draft(
                    governance.FeedbackAdded(feedback_id="fb_9", source="person"),
                    content={"comment": mark("late feedback")},
                    input=mark("late feedback summary"),
                )
                annex.append(draft)
            assert await proven(scope, run_id) > 5
            assert await erase_run(scope, run_id, "third", "admin") == Erasure(1, 0, 0)
            await proven(scope, run_id)

    asyncio.run(erase())
    assert left_in_files(path, mark) == {}
    assert left_in_values(path, mark) == []
    assert rebuilt_rows(path) == stored_rows(path)


def test_while_somebody_writes_the_annex_nothing_is_erased(tmp_path: Path) -> None:
    path, mark = tmp_path / "l.db", Markers(SEED)

    async def erase() -> None:
        async with await open_ledger(path) as ledger:
            scope = ledger.scope()
            run_id = await rich_run(scope, mark, big=False)
            before = stored_rows(path)
            async with await scope.writer(Stream.annex(run_id)):
                with pytest.raises(StreamOwned):
                    await erase_run(scope, run_id, "basis", "admin")
                assert stored_rows(path) == before
            assert not (await erase_run(scope, run_id, "basis", "admin")).already

    asyncio.run(erase())
    assert left_in_values(path, mark) == []


def test_a_long_reader_leaves_the_last_step_pending_and_the_next_writer_finishes_it(tmp_path: Path) -> None:
    path, mark = tmp_path / "l.db", Markers(SEED)
    reader = apsw.Connection(str(path))  # Makes an empty file, which the ledger then is made in.
    reader.close()

    async def erase() -> str:
        async with await open_ledger(path) as ledger:
            scope = ledger.scope()
            run_id = await rich_run(scope, mark)
            reading = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
            reading.execute("BEGIN")
            reading.execute("SELECT count(*) FROM events").fetchall()
            erasure = await erase_run(scope, run_id, "basis", "admin")
            assert erasure.pending == "a reader of an older state is open"
            assert left_in_values(path, mark) == []
            assert left_in_files(path, mark) != {}
            again = await erase_run(scope, run_id, "basis", "admin")
            assert (again.already, again.pending) == (True, erasure.pending)
            reading.close()
            return run_id

    async def write_anything(run_id: str) -> None:
        async with await open_ledger(path) as ledger, await ledger.scope().writer(Stream.annex(run_id)):
            pass

    run_id = asyncio.run(erase())
    asyncio.run(write_anything(run_id))
    assert left_in_files(path, mark) == {}
