"""`refold rebuild`: what is stored otherwise than it is folded is found, told by row and column, and put right."""

from __future__ import annotations

import sqlite3

import pytest

from refold.projections import ROWS
from tests.cli.conftest import Call, Sample
from tests.cli.support import on_ledger, record_run

KEYS = {"equal", "events", "rows", "differences"}


def _edit(sample: Sample, *statements: str) -> None:
    connection = sqlite3.connect(sample.path)
    for sql in statements:
        assert connection.execute(sql).rowcount > 0
    connection.commit()
    connection.close()


def test_an_untouched_ledger_is_equal_in_every_table(sample: Sample, call: Call) -> None:
    on_ledger(sample.path, lambda ledger: record_run(ledger, "other/one"))
    before = call("export", "--all").out
    answer = call("rebuild", "--json")
    assert answer.status == 0
    assert set(answer.json) >= KEYS
    assert (answer.json["equal"], answer.json["differences"], answer.json["swapped"]) == (True, [], False)
    assert call("rebuild").out.startswith("Equal")
    for row in ROWS:
        assert call("rebuild", "--projection", row.TABLE.name, "--json").json["equal"]
    assert call("export", "--all").out == before
    wrong = call("rebuild", "--projection", "nothing", "--json")
    assert (wrong.status, wrong.error["code"]) == (2, "unknown_projection")


@pytest.mark.parametrize(
    ("sql", "table", "column"),
    [
        ("UPDATE run_cost_entries SET amount = '0.2' WHERE amount IS NOT NULL", "run_cost_entries", "amount"),
        ("UPDATE tool_intents SET revision = 9 WHERE status = 'in_doubt'", "tool_intents", "revision"),
        ("UPDATE runs SET output_summary = '\x1b[2J'", "runs", "output_summary"),
        ("DELETE FROM run_steps WHERE node = 'tidy'", "run_steps", None),
        (
            "INSERT INTO audit SELECT tenant_id, workspace_id, 'scope', 9, run_id, 'x', 'x', 1, NULL, NULL, NULL"
            " FROM runs",
            "audit",
            None,
        ),
    ],
)
def test_a_difference_is_found_told_and_put_right(
    sample: Sample, call: Call, sql: str, table: str, column: str | None
) -> None:
    whole = call("show", sample.run_id, "--json").out
    _edit(sample, sql)
    answer = call("rebuild", "--json")
    assert (answer.status, answer.json["equal"], answer.json["different"]) == (5, False, 1)
    (difference,) = answer.json["differences"]
    assert (difference["table"], difference["column"]) == (table, column)
    assert call("rebuild", "--projection", table, "--json").status == 5
    assert call("rebuild", "--projection", "approvals", "--json").status == 0
    people = call("rebuild")
    assert people.out.startswith("Unequal")
    assert people.out.replace("\n", "").isprintable()
    swapped = call("rebuild", "--swap", "--json")
    assert (swapped.status, swapped.json["equal"], swapped.json["swapped"]) == (0, False, True)
    assert call("rebuild", "--json").json["equal"]
    assert call("show", sample.run_id, "--json").out == whole
    _edit(sample, "UPDATE runs SET workflow = 'again'")
    assert call("rebuild", "--swap").status == 0
    assert call("rebuild").status == 0
    assert call("cancel", sample.run_id, "--basis", "it can be written").status == 0


def test_many_differences_are_counted_and_some_are_told(sample: Sample, call: Call) -> None:
    _edit(sample, *(f"UPDATE {table} SET seq = seq + 100" for table in ("run_steps", "run_cost_entries")))
    answer = call("rebuild", "--json").json
    assert answer["different"] == len(answer["differences"]) == 7
    assert {each["column"] for each in answer["differences"]} == {"seq"}


def test_tables_of_other_code_are_not_compared(sample: Sample, call: Call) -> None:
    _edit(sample, "UPDATE ledger SET projections = 'other'")
    refused = call("rebuild", "--json")
    assert (refused.status, refused.error["code"]) == (6, "schema_outdated")
    assert call("rebuild", "--ledger", "nothing.db", "--json").error["code"] == "ledger_missing"
