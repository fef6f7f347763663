"""Every look-up that a table has an index for goes through it, whatever the scope holds besides."""

from __future__ import annotations

import asyncio

import apsw
import pytest

from refold.ledger.sqlite.reader import _select
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


@pytest.fixture(scope="module")
def connection(tmp_path_factory: pytest.TempPathFactory) -> apsw.Connection:
    path = tmp_path_factory.mktemp("plans") / "ledger.db"

    async def make() -> None:
        async with await open_simulated(path):
            pass

    asyncio.run(make())
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
