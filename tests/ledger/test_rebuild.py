"""Rebuilding finds every row that is not what its events make of it, and changes nothing."""

from __future__ import annotations

import asyncio
from pathlib import Path

import apsw
import pytest

from refold.ledger.ledger import open_ledger
from refold.ledger.maintenance.rebuild import Rebuilt, rebuild
from refold.projections.rows import StepRow
from refold.replay.projection_only import ProjectionReplay, replay_projections
from tests.ledger.building import one_of_everything, open_simulated


@pytest.fixture
def built(tmp_path: Path) -> tuple[Path, str]:
    path = tmp_path / "ledger.db"

    async def build() -> str:
        async with await open_simulated(path) as ledger:
            await one_of_everything(ledger.scope("acme/lab"), turns=2)
            return await one_of_everything(ledger.scope(), turns=3)

    return path, asyncio.run(build())


def rebuilt(path: Path, projection: str | None = None) -> Rebuilt:
    return asyncio.run(rebuild(path, projection))


def replayed(path: Path, run_id: str) -> ProjectionReplay:
    async def run() -> ProjectionReplay:
        async with await open_ledger(path, create=False) as ledger:
            return await replay_projections(ledger.scope(), run_id)

    return asyncio.run(run())


def change(path: Path, sql: str) -> None:
    with apsw.Connection(str(path)) as connection:
        connection.execute(sql)


def test_stored_projections_equal_their_rebuild(built: tuple[Path, str]) -> None:
    path, run_id = built
    whole = rebuilt(path)
    assert whole.equal
    assert whole.events > 40
    assert whole.rows > 30
    one = replayed(path, run_id)
    assert one.equal
    assert one.head_before == one.head_after
    assert one == replayed(path, run_id), "done twice, it gives the same"


@pytest.mark.parametrize(
    ("sql", "table", "column"),
    [
        ("UPDATE runs SET status = 'failed' WHERE tenant_id = 'default'", "runs", "status"),
        (
            "UPDATE run_steps SET output_summary = 'x' WHERE tenant_id = 'default' AND type = 'llm'",
            "run_steps",
            "output_summary",
        ),
        ("UPDATE run_cost_entries SET amount = '9' WHERE tenant_id = 'default'", "run_cost_entries", "amount"),
        ("DELETE FROM approval_decisions WHERE tenant_id = 'default'", "approval_decisions", None),
        ("DELETE FROM feedback WHERE tenant_id = 'default'", "feedback", None),
    ],
)
def test_a_changed_row_is_found_by_both(built: tuple[Path, str], sql: str, table: str, column: str | None) -> None:
    path, run_id = built
    change(path, sql)
    whole = rebuilt(path)
    assert not whole.equal
    assert {(each.table, each.column) for each in whole.differences} == {(table, column)}
    one = replayed(path, run_id)
    assert {each.kind for each in one.divergences} == {table}


def test_a_changed_intent_is_found_by_the_rebuild(built: tuple[Path, str]) -> None:
    path, _ = built
    change(path, "UPDATE tool_intents SET settled = 7")
    assert {each.column for each in rebuilt(path).differences} == {"settled"}


def test_a_row_that_no_event_makes_is_found(built: tuple[Path, str]) -> None:
    path, run_id = built
    change(
        path,
        "INSERT INTO run_steps SELECT tenant_id, workspace_id, 'st_extra', "
        + ", ".join(f'"{name}"' for name in StepRow.__struct_fields__[1:])
        + " FROM run_steps WHERE tenant_id = 'default' LIMIT 1",
    )
    assert [(each.table, each.stored is None, each.folded is None) for each in rebuilt(path).differences] == [
        ("run_steps", False, True)
    ]
    assert [each.attempted for each in replayed(path, run_id).divergences] == [None]


def test_only_the_named_table_is_compared(built: tuple[Path, str]) -> None:
    path, _ = built
    change(path, "UPDATE run_steps SET status = 'x'")
    assert rebuilt(path, "runs").equal
    assert not rebuilt(path).equal
