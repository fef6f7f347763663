"""Every look-up that a table has an index for goes through it, whatever the scope holds besides."""

from __future__ import annotations

import asyncio

import apsw
import pytest

from refold.ledger.maintenance.migration import fold_again
from refold.ledger.sqlite.reader import _select
from refold.ledger.sqlite.recovering import _SELECT as UNOWNED
from refold.projections import ROWS, Row
from tests.ledger.building import open_simulated

LOOKUPS = [
    pytest.param(row, fields, id=f"{row.TABLE.name}-{'-'.join(fields)}")
    for row in ROWS
    for fields in sorted(
        {
            row.TABLE.key,
            row.TABLE.key[:1],
            *row.TABLE.unique,
            *row.TABLE.indexes,
            *(each[:1] for each in (*row.TABLE.unique, *row.TABLE.indexes)),
            *(fields for fields, condition in row.TABLE.partial if condition.endswith("NOT NULL")),
        }
    )
]


@pytest.fixture(scope="module", params=["new", "migrated"])
def connection(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> apsw.Connection:
    path = tmp_path_factory.mktemp("plans") / "ledger.db"

    async def make() -> None:
        async with await open_simulated(path):
            pass

    asyncio.run(make())
    if request.param == "migrated":
        asyncio.run(fold_again(path))
    return apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)


@pytest.mark.parametrize(("row", "fields"), LOOKUPS)
def test_a_look_up_reads_only_the_rows_that_it_asks_for(
    connection: apsw.Connection, row: type[Row], fields: tuple[str, ...]
) -> None:
    order = ("seq",) if "seq" in row.__struct_fields__ else row.TABLE.key
    sql = _select(row, fields, order, False)
    values = ("t", "w", *("x" for _ in fields), -1)
    (plan, *_) = [step[3] for step in connection.execute(f"EXPLAIN QUERY PLAN {sql}", values)]
    assert plan.startswith("SEARCH"), plan
    by_key = all(f"{field}=?" in plan for field in row.TABLE.key)
    assert by_key or all(f"{field}=?" in plan for field in fields), plan


def test_runs_without_an_owner_are_sought_among_those_that_have_not_ended(connection: apsw.Connection) -> None:
    plan = [step[3] for step in connection.execute(f"EXPLAIN QUERY PLAN {UNOWNED}", ("t", "w", ""))]
    assert plan[0].startswith("SEARCH r USING INDEX runs"), plan
    assert "_open_run_id" in plan[0], plan
    assert len(plan) == 2, plan


def test_the_planner_is_told_of_the_indexes_that_are_there(connection: apsw.Connection) -> None:
    told = {name for (name,) in connection.execute("SELECT idx FROM sqlite_stat1")}
    folded = {row.TABLE.name for row in ROWS}
    indexes = connection.execute("SELECT name, tbl_name FROM sqlite_schema WHERE type = 'index'").fetchall()
    assert told == folded | {name for name, table in indexes if table in folded}
