"""Case 42: the page that shows a run's evidence raised an error, and did so exactly for the runs whose evidence was
missing. Here what is missing is a `fail` item that names it. Rows, blobs, events, the annex and files are taken away
one by one and together, runs are left half-written, statuses are made up: there are always thirteen items, a bundle,
and an answer of the command.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import apsw
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from refold.ledger.ledger import Ledger
from refold.projections import ROWS
from refold.replay.evidence import evidence
from refold.replay.items import RULES, evidence_items
from tests.cases.support import LEDGER, edit, in_ledger
from tests.cli.conftest import Call
from tests.replay.support import begin, every_event

KEYS = [key for key, _ in RULES]
STATUSES = ("pass", "warning", "fail", "not_applicable")
READY = "replay_ready"

TABLES = [row.TABLE.name for row in ROWS]
GONE = [f"DELETE FROM {table}" for table in (*TABLES, "events", "blobs", "snapshots", "inbox")]
HALF = [f"DELETE FROM {table} WHERE rowid % 2 = 0" for table in ("events", "blobs")]
ANNEX = [
    "DELETE FROM stream_heads WHERE stream LIKE '%/annex'",
    "DELETE FROM events WHERE id >> 32 IN (SELECT stream_no FROM stream_heads WHERE stream LIKE '%/annex')",
]
UNKNOWN = [
    "UPDATE runs SET status = 'dreaming', reason = 'moonlight'",
    "UPDATE run_steps SET status = 'dreaming', type = 'dream'",
    "UPDATE run_step_tool_calls SET status = 'dreaming'",
    "UPDATE tool_intents SET status = 'dreaming'",
    "UPDATE run_artifacts SET store = 'cloud'",
    "UPDATE run_artifacts SET blob = 4000",
    "UPDATE run_artifacts SET sha256 = NULL",
    "UPDATE run_cost_entries SET amount = 'much', currency = 'gold'",
    "UPDATE run_cost_entries SET amount = NULL, currency = NULL",
    "UPDATE runs SET input_seq = 4000, output_seq = -1",
    "UPDATE runs SET created_at = 9223372036854775807, started_at = -9223372036854775808",
    "UPDATE events SET type = 'moon.rose' WHERE seq % 3 = 0",
    "UPDATE events SET version = 99 WHERE seq % 5 = 0",
    "UPDATE events SET facts = x'00ff' WHERE seq % 7 = 0",
    "UPDATE events SET recorded_at = 9223372036854775807",
    "UPDATE events SET content = NULL, view = NULL",
    "UPDATE events SET content = zeroblob(17) WHERE content IS NOT NULL",
    "UPDATE events SET view = zeroblob(3) WHERE view IS NOT NULL",
    "UPDATE blobs SET bytes = NULL",
    "UPDATE blobs SET bytes = zeroblob(5)",
    "UPDATE stream_heads SET seq = seq + 5",
    "UPDATE stream_heads SET closed = 1 - closed",
    "UPDATE stream_heads SET hash = zeroblob(32)",
]
FILES = ["file removed", "file emptied", "folder removed"]
DAMAGE = [*GONE, *HALF, *ANNEX, *UNKNOWN, *FILES]
PROVEN = {*HALF, ANNEX[1], "DELETE FROM events", "DELETE FROM blobs", "DELETE FROM runs", *FILES, *UNKNOWN[-12:]}
"""What takes away or changes something that a replay needs, so that at least the last item must fail."""


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    folder = tmp_path_factory.mktemp("whole")

    async def work(ledger: Ledger) -> str:
        parent = await begin(ledger.scope())
        await parent.writer.close()
        return (await every_event(ledger.scope())).run_id

    return folder, in_ledger(folder, work)


def _damage(folder: Path, what: str) -> None:
    files = [each for each in (folder / f"{LEDGER}-artifacts").rglob("*") if each.is_file()]
    if what == "file removed":
        files[0].unlink()
    elif what == "file emptied":
        files[0].write_bytes(b"")
    elif what == "folder removed":
        shutil.rmtree(folder / f"{LEDGER}-artifacts")
    else:
        with closing(apsw.Connection(str(folder / LEDGER))) as connection:
            connection.execute("PRAGMA foreign_keys = OFF")
            connection.execute(what)


def _whole_answers(items: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    assert [item["key"] for item in items] == KEYS
    for item in items:
        assert item["status"] in STATUSES, item
        assert item["summary"], item
        assert item["status"] != "fail" or item["missing"], f"{item['key']} fails and does not say what is missing"
    return {item["key"]: item for item in items}


def _examined(folder: Path, run_id: str) -> dict[str, dict[str, Any]]:
    """The items, the same ones in the bundle, and the bundle itself."""

    async def work(ledger: Ledger) -> list[dict[str, Any]]:
        async with ledger.scope().reader() as reader:
            items = await evidence_items(reader, run_id, ledger.files)
        bundle = await evidence(ledger.scope(), run_id)
        assert bundle["evidence_items"] == items
        return items

    return _whole_answers(in_ledger(folder, work))


@pytest.mark.parametrize("what", DAMAGE)
def test_case_42_whatever_is_missing_is_an_item_that_fails_and_never_an_error(
    whole: tuple[Path, str], tmp_path: Path, what: str
) -> None:
    folder, run_id = whole
    copy = shutil.copytree(folder, tmp_path / "copy")
    _damage(copy, what)
    items = _examined(copy, run_id)
    if what in PROVEN:
        assert items[READY]["status"] == "fail", items[READY]


@settings(max_examples=40, deadline=None, derandomize=True)
@given(st.lists(st.sampled_from(DAMAGE), min_size=2, max_size=5, unique=True))
def test_case_42_several_things_that_are_missing_together_are_no_error_either(
    whole: tuple[Path, str], tmp_path_factory: pytest.TempPathFactory, damage: list[str]
) -> None:
    folder, run_id = whole
    copy = shutil.copytree(folder, tmp_path_factory.mktemp("copies") / "copy")
    for what in sorted(damage, key=lambda each: each == "folder removed"):
        if "file" not in what or any(each.is_file() for each in (copy / f"{LEDGER}-artifacts").rglob("*")):
            _damage(copy, what)
    _examined(copy, run_id)


def test_case_42_a_run_that_is_half_written_at_any_event_has_its_thirteen_items(tmp_path: Path) -> None:
    """Left as a process leaves it that died after each of its commits: whole to there, and open."""

    async def work(ledger: Ledger) -> None:
        scope = ledger.scope()
        teller = await begin(scope)
        stories: list[Callable[[], Any]] = [
            teller.inference,
            lambda: teller.dispatch("mail"),
            lambda: teller.answer(next(iter(teller.ids))),
            lambda: teller.dispatch("pay", observed=True, decided=False),
            lambda: teller.cost(None, "1.00", "EUR"),
        ]
        for story in stories:
            before = teller.writer.head.seq
            story()
            await teller.writer.barrier()
            assert teller.writer.head.seq > before
            async with scope.reader() as reader:
                items = _whole_answers(await evidence_items(reader, teller.run_id, ledger.files))
            assert items[READY]["status"] == "fail"
            assert "end of the run" in items[READY]["missing"]
            assert (await evidence(scope, teller.run_id))["head_seq"] == teller.writer.head.seq
        await teller.writer.close()

    in_ledger(tmp_path, work)


def test_case_42_a_stream_cut_at_any_event_has_its_thirteen_items(whole: tuple[Path, str], tmp_path: Path) -> None:
    folder, run_id = whole
    copy = shutil.copytree(folder, tmp_path / "copy")

    async def head(ledger: Ledger) -> int:
        return (await ledger.scope().run_head(run_id)).seq

    number = f"(SELECT stream_no FROM stream_heads WHERE stream = '{run_id}')"
    for left in range(in_ledger(copy, head) - 1, -1, -4):
        assert edit(copy, f"DELETE FROM events WHERE id >> 32 = {number} AND seq > ?", left) > 0
        items = _examined(copy, run_id)
        assert items["trace_timeline"]["status"] == "fail"
        assert items[READY]["status"] == "fail"


@pytest.mark.parametrize("what", ["DELETE FROM runs", "DELETE FROM events", "DELETE FROM run_steps", "folder removed"])
def test_case_42_the_command_answers_for_a_run_with_missing_evidence(
    whole: tuple[Path, str], tmp_path: Path, call: Call, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    folder, run_id = whole
    copy = shutil.copytree(folder, tmp_path / "copy")
    _damage(copy, what)
    monkeypatch.setenv("REFOLD_LEDGER", str(copy / LEDGER))
    answer = call("evidence", run_id, "--json")
    assert answer.status == 0, answer.err
    assert _whole_answers(answer.json["evidence_items"])[READY]["status"] == "fail" or what == "DELETE FROM run_steps"
    shown = call("evidence", run_id)
    assert shown.status == 0, shown.err
    assert all(key in shown.out for key in KEYS)
