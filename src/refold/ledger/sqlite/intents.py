"""Rows of `tool_intents` in a commit: compare-and-set by revision, since several streams may touch one intent."""

from __future__ import annotations

from collections.abc import Sequence

import apsw

from refold.errors import RefoldError
from refold.events.identity import Scope
from refold.ledger.errors import IntentMoved, KeyConflict
from refold.ledger.port import IntentMove, StreamBatch
from refold.ledger.sqlite.connection import changed_all, query
from refold.ledger.sqlite.schema import columns
from refold.projections.intents import CLAIMED
from refold.projections.rows import IntentRow

_NAMES = columns(IntentRow)
_PLACES = {name: f"?{place}" for place, name in enumerate(_NAMES, 3)}  # Behind tenant and workspace.
_BEFORE = f"?{3 + len(_NAMES)}"

_LISTED = ", ".join(_NAMES)
_MARKS = ", ".join(_PLACES.values())
_INSERT = f"INSERT INTO tool_intents (tenant_id, workspace_id, {_LISTED}) VALUES (?1, ?2, {_MARKS})"
# What the claim says is left out: SQLite writes the indexes of every column that a statement names.
_CHANGES = ", ".join(f"{name} = {_PLACES[name]}" for name in _NAMES if name not in CLAIMED)
_UPDATE = (
    f"UPDATE tool_intents SET {_CHANGES} "
    f"WHERE tenant_id = ?1 AND workspace_id = ?2 AND intent_id = {_PLACES['intent_id']} AND revision = {_BEFORE}"
)
_KEY = _NAMES.index("idempotency_key")
_REVISION = _NAMES.index("revision")


class Stale(Exception):
    """An intent does not stand at the revision that a move builds on."""


def move(connection: apsw.Connection, moves: Sequence[tuple[str, str, IntentMove]]) -> None:
    """Writes each intent (tenant, workspace, move) where it stands at the revision that the move builds on.

    Raises Stale, or SQLite's ConstraintError where a new one's id or key is taken; `refusal` then says what is wrong.
    """
    if not moves:
        return
    new = [(tenant, workspace, *each.row) for tenant, workspace, each in moves if not each.before]
    connection.executemany(_INSERT, new)
    old = [(tenant, workspace, *each.row, each.before) for tenant, workspace, each in moves if each.before]
    if not changed_all(connection, _UPDATE, old):
        raise Stale


def refusal(connection: apsw.Connection, batch: StreamBatch) -> RefoldError | None:
    """What keeps the intents of a batch from being written, in the state in which it was tried. None: nothing."""
    for before, row in batch.intents:
        found = query(
            connection,
            "SELECT revision FROM tool_intents WHERE tenant_id = ? AND workspace_id = ? AND intent_id = ?",
            (*batch.scope, row[0]),
        )
        stands = found[0][0] if found else 0
        if stands != before:
            return IntentMoved(
                f"{batch.stream} brings intent {row[0]} from revision {before} to {row[_REVISION]}, and it stands at "
                f"{stands}.",
                intent_id=row[0],
                stream=str(batch.stream),
            )
        if not before and (other := _with_key(connection, batch.scope, row[_KEY])) is not None:
            return KeyConflict(
                f"Intent {other} has the idempotency key with which {batch.stream} claims {row[0]}.",
                intent_id=other,
                stream=str(batch.stream),
            )
    return None


def _with_key(connection: apsw.Connection, scope: Scope, key: str) -> str | None:
    found = query(
        connection,
        "SELECT intent_id FROM tool_intents WHERE tenant_id = ? AND workspace_id = ? AND idempotency_key = ?",
        (*scope, key),
    )
    return found[0][0] if found else None
