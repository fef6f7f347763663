"""The doctor names what is wrong, and never fails because of it."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import apsw
import pytest

from refold.events.catalog import run
from refold.events.identity import Stream
from refold.ledger.drafts import Draft
from refold.ledger.ledger import open_ledger
from refold.ledger.maintenance.doctor import Check, doctor
from refold.ledger.maintenance.erasure import erase_run
from refold.ledger.maintenance.orphans import GRACE, collect_orphans
from refold.ledger.sqlite.refolding import PLACES
from refold.ledger.writer import StreamWriter
from refold.testing.damage import cut_tail, flips
from tests.ledger.maintenance_support import Markers, annex_facts, rich_run

EVERY = ["sqlite", "place", "schema", "pages", "projections", "log", "heads", "secrets", "owners", "erasures"]
EVERY += ["snapshots", "artifacts", "doubts"]


def a_ledger(path: Path) -> str:
    async def write() -> str:
        async with await open_ledger(path) as ledger:
            run_id = await rich_run(ledger.scope("a/b"), Markers(1))
            await annex_facts(ledger.scope("a/b"), run_id, Markers(2))
            return run_id

    return asyncio.run(write())


def change(path: Path, *statements: str) -> None:
    connection = apsw.Connection(str(path))
    for statement in statements:
        connection.execute(statement)
    connection.close()


def ills(path: Path) -> dict[str, Check]:
    """The checks that are not ok, each with a remedy."""
    found = {check.name: check for check in asyncio.run(doctor(path)) if not check.ok}
    assert all(check.remedy for check in found.values())
    return found


def test_a_sound_ledger_passes_every_check(tmp_path: Path) -> None:
    path = tmp_path / "l.db"
    a_ledger(path)
    checks = asyncio.run(doctor(path))
    assert [check.name for check in checks] == EVERY
    assert [check for check in checks if not check.ok] == []


def test_an_open_ledger_is_examined_while_it_is_written(tmp_path: Path) -> None:
    async def examine() -> None:
        async with await open_ledger(tmp_path / "l.db") as ledger:
            made = await ledger.scope().create(Draft(run.RunCreated("w", "d", "root")))
            assert isinstance(made, StreamWriter)
            checks = {check.name: check for check in await doctor(ledger)}
            assert [name for name, check in checks.items() if not check.ok] == []
            assert checks["owners"].facts["owned"] == 1
            made.append(Draft(run.RunStarted()))
            await made.close()

    asyncio.run(examine())


@pytest.mark.parametrize(
    ("statement", "name", "fact"),
    [
        ("INSERT INTO migrations VALUES (999, 'future', 'x', 0)", "schema", "newer_schema"),
        ("UPDATE migrations SET checksum = 'x'", "schema", "migration_changed"),
        ("PRAGMA application_id = 5", "schema", "not_a_ledger"),
        ("DELETE FROM migrations", "schema", "0001_foundation"),
        ("UPDATE ledger SET projections = 'other'", "projections", "other"),
        (f"CREATE TABLE {PLACES} (x)", "projections", PLACES),
        ("UPDATE stream_heads SET seq = seq - 1 WHERE stream_no = 1", "heads", "run_"),
        ("UPDATE secrets SET secret = randomblob(32)", "secrets", "'a'"),
        ("UPDATE snapshots SET seq = seq + 100", "snapshots", "run_"),
        ("UPDATE stream_heads SET erased = 1 WHERE stream_no = 1", "erasures", "run_"),
        ("UPDATE stream_heads SET owner = 77 WHERE stream_no = 2", "owners", "annex"),
        ("DROP TABLE tool_intents", "doubts", "no such table"),
    ],
)
def test_what_is_wrong_in_the_tables_is_named_by_the_check_for_it(
    tmp_path: Path, statement: str, name: str, fact: str
) -> None:
    path = tmp_path / "l.db"
    a_ledger(path)
    change(path, "PRAGMA foreign_keys = OFF", statement)
    found = ills(path)
    assert name in found
    assert fact in repr(found[name].facts)


def test_what_cannot_be_opened_is_reported_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no database at all, and long enough to have a header " * 4)
    assert ills(tmp_path / "text")["open"].facts["code"] == "not_a_ledger"
    assert ills(tmp_path / "nothing")["open"].facts["code"] == "ledger_missing"
    assert ills(tmp_path / "no folder" / "nothing")["open"].facts["code"] == "ledger_missing"
    assert ills(tmp_path)["open"].facts["code"] == "not_a_ledger"
    assert [each.name for each in tmp_path.iterdir()] == ["text"]


def test_damaged_pages_are_reported_wherever_they_are(tmp_path: Path) -> None:
    path = tmp_path / "l.db"
    a_ledger(path)
    seen = 0
    for flip in flips(path, ["runs_lineage_root", "run_steps", "sqlite_schema"], 60, seed=5):
        with flip.applied():
            seen += any(not check.ok for check in asyncio.run(doctor(path)))
    assert seen > 5
    cut_tail(path, 3 * 8192)
    assert ills(path).keys() & {"open", "pages"}


def test_the_streams_of_a_process_that_was_killed_are_reported_and_nobody_elses(tmp_path: Path) -> None:
    path = tmp_path / "l.db"
    a_ledger(path)
    code = (
        "import asyncio, os, sys\n"
        "from refold.ledger.ledger import open_ledger\n"
        "from refold.ledger.drafts import Draft\n"
        "from refold.events.catalog import run\n"
        "async def main():\n"
        "    ledger = await open_ledger(sys.argv[1])\n"
        "    made = await ledger.scope().create(Draft(run.RunCreated('w', 'd', 'root')))\n"
        "    print(made.stream, flush=True)\n"
        "    os._exit(9)\n"
        "asyncio.run(main())\n"
    )
    stream = subprocess.run([sys.executable, "-c", code, path], stdout=subprocess.PIPE, text=True).stdout.strip()
    left = ills(path)["owners"].facts["left"]
    assert left == [{"stream": f"default/default {stream}", "why": "its process is gone"}]

    async def take_over() -> None:
        async with await open_ledger(path) as ledger:
            await (await ledger.scope().writer(Stream.parse(stream))).close()

    asyncio.run(take_over())
    assert ills(path) == {}


def test_an_erasure_that_a_reader_holds_up_is_reported_until_it_is_finished(tmp_path: Path) -> None:
    path = tmp_path / "l.db"
    run_id = a_ledger(path)
    reading = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    reading.execute("BEGIN")
    reading.execute("SELECT count(*) FROM events").fetchall()

    async def erase() -> None:
        async with await open_ledger(path) as ledger:
            await erase_run(ledger.scope("a/b"), run_id, "basis", "admin")

    asyncio.run(erase())
    assert ills(path)["erasures"].facts["pending"] == [run_id]
    checks = {check.name: check for check in asyncio.run(doctor(path))}
    assert checks["log"].facts["held_by_a_reader"]
    reading.close()
    asyncio.run(erase())
    assert ills(path) == {}


def test_orphans_are_collected_past_their_grace_and_nothing_else_is(tmp_path: Path) -> None:
    path = tmp_path / "l.db"
    run_id = a_ledger(path)
    (kept,) = (tmp_path / "l.db-artifacts").rglob("art_*")
    old, young = kept.with_name("art_old"), kept.with_name("art_young.part")
    foreign = tmp_path / "l.db-artifacts" / "notes.txt"
    for each in (old, young, foreign):
        each.write_bytes(b"12345")
    long_ago = old.stat().st_mtime - 2 * GRACE
    for each in (old, kept, foreign):
        os.utime(each, (long_ago, long_ago))
    check = ills(path)["artifacts"]
    assert (check.facts["orphans"], check.facts["orphan_bytes"]) == (1, 5)

    async def collect(grace: float) -> list[str]:
        async with await open_ledger(path) as ledger:
            return [each.storage_key for each in await collect_orphans(ledger, grace)]

    assert asyncio.run(collect(GRACE)) == [f"a/b/{run_id}/art_old"]
    assert ills(path) == {}
    assert asyncio.run(collect(0)) == [f"a/b/{run_id}/art_young.part"]
    assert sorted(each.name for each in kept.parent.iterdir()) == [kept.name]
    assert foreign.exists()
    kept.unlink()
    assert ills(path)["artifacts"].facts["missing"] == [f"a/b/{run_id}/{kept.name}"]
