"""Which runs wait for somebody to go on with them."""

from __future__ import annotations

from functools import cache

import apsw

from refold.events.identity import Scope
from refold.ledger.sqlite.incarnation import Incarnation
from refold.ledger.sqlite.reader import row_maker
from refold.ledger.sqlite.schema import columns
from refold.projections.rows import RunRow

# Word for word a partial index's condition, or SQLite does not use the index.
_OPEN = next(condition for fields, condition in RunRow.TABLE.partial if fields == RunRow.TABLE.key)
_SELECT = (
    f"SELECT h.owner, {', '.join(f'r.{name}' for name in columns(RunRow))} FROM runs r CROSS JOIN stream_heads h "
    "ON h.tenant_id = r.tenant_id AND h.workspace_id = r.workspace_id AND h.stream = r.run_id "
    f"WHERE r.tenant_id = ? AND r.workspace_id = ? AND r.{_OPEN} AND r.run_id > ? ORDER BY r.run_id"
)


def unowned_runs(connection: apsw.Connection, me: Incarnation, scope: Scope, after: str, limit: int) -> list[RunRow]:
    """`Store.unowned_runs`, by whoever has the turn."""

    @cache
    def lives(owner: int) -> bool:
        return me.is_dead(connection, owner) is None

    make = row_maker(RunRow)
    found: list[RunRow] = []
    for owner, *row in connection.execute(_SELECT, (*scope, after)):
        if len(found) == limit:
            break
        if owner is None or not lives(owner):
            found.append(make(row))
    return found
