"""Putting projection rows: the same key replaces, and nothing else is ever removed for it."""

from __future__ import annotations

import apsw
import msgspec
import pytest

from refold.ledger.sqlite.schema import create_table, upsert
from refold.projections.rows import IntentRow, StepRow

STEP = StepRow("st_1", "run_1", 1, "tool", "n", "running", 5, input_summary="asked")
INTENT = IntentRow("int_1", "d", "t", 1, "unsafe", "key", "print", "claimed", 1, "run_1")


@pytest.fixture
def connection() -> apsw.Connection:
    connection = apsw.Connection(":memory:")
    for row in (StepRow, IntentRow):
        for statement in create_table(row):
            connection.execute(statement)
    return connection


def _put(connection: apsw.Connection, row: StepRow | IntentRow, workspace: str = "w") -> None:
    connection.execute(upsert(type(row)), ("t", workspace, *msgspec.structs.astuple(row)))


def test_a_row_put_again_replaces_every_column_and_leaves_other_scopes_alone(connection: apsw.Connection) -> None:
    _put(connection, STEP)
    _put(connection, STEP, "other")
    _put(connection, msgspec.structs.replace(STEP, status="succeeded", input_summary=None))
    found = connection.execute("SELECT workspace_id, status, input_summary FROM run_steps ORDER BY 1").fetchall()
    assert found == [("other", "running", "asked"), ("w", "succeeded", None)]


def test_a_row_never_removes_another_that_has_the_same_unique_value(connection: apsw.Connection) -> None:
    _put(connection, INTENT)
    _put(connection, msgspec.structs.replace(INTENT, status="dispatched"))
    with pytest.raises(apsw.ConstraintError):
        _put(connection, msgspec.structs.replace(INTENT, intent_id="int_2"))
    assert connection.execute("SELECT intent_id, status FROM tool_intents").fetchall() == [("int_1", "dispatched")]
