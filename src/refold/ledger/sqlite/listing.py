"""Lists for people: pages of runs and tool calls by keyset, and the sums that stand beside them.

A page costs what it shows, however long the list is: it begins behind the last row of the page before, never at an
offset.
"""

from __future__ import annotations

import decimal
from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import NamedTuple

from refold.ledger.sqlite.connection import query, translated
from refold.ledger.sqlite.reader import SqliteReader

_EXACT = decimal.Context(prec=400)
"""Sums keep every digit that an amount of money can have; the bound keeps a hostile `1E+999999` from filling memory."""

_UNFINISHED = "status NOT IN ('succeeded', 'failed')"
_FINISHED = ("succeeded", "failed")


class Listed(NamedTuple):
    """A run in a list, and the seq at which its stream stands."""

    run_id: str
    head_seq: int


class Charges(NamedTuple):
    """What a run's metered calls cost: exact sums by currency, and how many calls have no known price."""

    amounts: dict[str, Decimal]
    entries: int
    unpriced: int


async def runs_page(
    reader: SqliteReader,
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
    with translated(reader.path):
        rows = query(reader.connection, f"{sql} ORDER BY r.run_id DESC LIMIT ?", (*values, limit))
    return [Listed(*row) for row in rows]


async def calls_page(
    reader: SqliteReader,
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
        sql += f" AND {_UNFINISHED}"  # Word for word the partial index's condition, or SQLite does not use it.
    with translated(reader.path):
        rows = query(reader.connection, f"{sql} ORDER BY tool_call_id LIMIT ?", (*values, limit))
    return [row[0] for row in rows]


async def charges_of(reader: SqliteReader, run_ids: Sequence[str]) -> dict[str, Charges]:
    """The charges of many runs, in one pass over their cost entries."""
    if not run_ids:
        return {}
    sql = (
        "SELECT run_id, currency, amount FROM run_cost_entries "
        f"WHERE tenant_id = ? AND workspace_id = ? AND run_id IN ({', '.join('?' * len(run_ids))})"
    )
    with translated(reader.path):
        return sum_charges(run_ids, reader.connection.execute(sql, (*reader.scope, *run_ids)))


def sum_charges(run_ids: Iterable[str], entries: Iterable[tuple[str, str | None, str | None]]) -> dict[str, Charges]:
    """Sums (run, currency, amount) by run and currency; currencies are never added together, unpriced is never zero."""
    amounts: dict[str, dict[str, Decimal]] = {run_id: {} for run_id in run_ids}
    counts = dict.fromkeys(amounts, 0)
    unpriced = dict.fromkeys(amounts, 0)
    for run_id, currency, amount in entries:
        counts[run_id] += 1
        if amount is None or currency is None:
            unpriced[run_id] += 1
            continue
        sums = amounts[run_id]
        sums[currency] = _EXACT.add(sums.get(currency, Decimal(0)), Decimal(amount))
    return {run_id: Charges(amounts[run_id], counts[run_id], unpriced[run_id]) for run_id in amounts}


def amount_text(amount: Decimal) -> str:
    """An amount with all its digits and without an exponent, where that is readable at all."""
    return format(amount, "f") if -100 < amount.adjusted() < 100 else str(amount)
