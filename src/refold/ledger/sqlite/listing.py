"""Lists for people: pages of runs and tool calls by keyset, and the amounts that stand beside them.

A page costs what it shows, however long the list is: it begins behind the last row of the page before, never at an
offset.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import NamedTuple

from refold.ledger.port import Reader
from refold.ledger.sqlite.connection import query, translated
from refold.ledger.sqlite.narrow import sqlite_reader
from refold.projections.rows import ToolCallRow

# Word for word a partial index's condition, or SQLite does not use the index.
((_, _UNFINISHED),) = ToolCallRow.TABLE.partial
_FINISHED = ("succeeded", "failed")


class Listed(NamedTuple):
    """A run in a list, and the seq at which its stream stands."""

    run_id: str
    head_seq: int


async def runs_page(
    reader: Reader,
    *,
    before: str | None = None,
    status: str | None = None,
    workflow: str | None = None,
    in_doubt: bool = False,
    limit: int = 50,
) -> list[Listed]:
    """Runs of the reader's scope, the newest recorded first, that stand behind `before` (a run's id) in that order."""
    sql = (
        "SELECT r.run_id, coalesce(h.seq, 0) FROM runs r LEFT JOIN stream_heads h "
        "ON h.tenant_id = r.tenant_id AND h.workspace_id = r.workspace_id AND h.stream = r.run_id "
        "WHERE r.tenant_id = ? AND r.workspace_id = ?"
    )
    values: list[object] = [*reader.scope]
    for condition, value in (
        (" AND r.run_id < ?", before),
        (" AND r.status = ?", status),
        (" AND r.workflow = ?", workflow),
    ):
        if value is not None:
            sql += condition
            values.append(value)
    if in_doubt:
        # The inner look-up is answered by the partial index of open calls alone, however many calls there are.
        sql += (
            " AND r.run_id IN (SELECT run_id FROM run_step_tool_calls WHERE tenant_id = ? AND workspace_id = ? "
            "AND tool_call_id IN (SELECT tool_call_id FROM run_step_tool_calls "
            f"WHERE tenant_id = ? AND workspace_id = ? AND status = 'in_doubt' AND {_UNFINISHED}))"
        )
        values += (*reader.scope, *reader.scope)
    file = sqlite_reader(reader)
    with translated(file.path):
        rows = query(file.connection, f"{sql} ORDER BY r.run_id DESC LIMIT ?", (*values, limit))
    return [Listed(*row) for row in rows]


async def calls_page(
    reader: Reader,
    *,
    after: str | None = None,
    status: str | None = None,
    run_id: str | None = None,
    limit: int = 100,
) -> list[str]:
    """Ids of the scope's tool calls in the order of their making, behind `after` (a call's id) in that order."""
    sql = "SELECT tool_call_id FROM run_step_tool_calls WHERE tenant_id = ? AND workspace_id = ?"
    values: list[object] = [*reader.scope]
    for condition, value in (
        (" AND tool_call_id > ?", after),
        (" AND status = ?", status),
        (" AND run_id = ?", run_id),
    ):
        if value is not None:
            sql += condition
            values.append(value)
    if status is not None and status not in _FINISHED:
        sql += f" AND {_UNFINISHED}"
    file = sqlite_reader(reader)
    with translated(file.path):
        rows = query(file.connection, f"{sql} ORDER BY tool_call_id LIMIT ?", (*values, limit))
    return [row[0] for row in rows]


async def prices_of(reader: Reader, run_ids: Sequence[str]) -> AsyncIterator[tuple[str, str | None, str | None]]:
    """(run, currency, amount) of every cost entry of these runs, in one pass."""
    sql = (
        "SELECT run_id, currency, amount FROM run_cost_entries "
        f"WHERE tenant_id = ? AND workspace_id = ? AND run_id IN ({', '.join('?' * len(run_ids))})"
    )
    file = sqlite_reader(reader)
    with translated(file.path):
        for row in file.connection.execute(sql, (*reader.scope, *run_ids)):
            yield row
