"""Rows of `tool_intents` in a commit: compare-and-set by revision, since several streams may touch one intent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import apsw

from refold.errors import RefoldError
from refold.events.identity import Scope, Stream
from refold.ledger.errors import IntentMoved, KeyConflict
from refold.ledger.port import IntentMove
from refold.ledger.sqlite.connection import query
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


def move(connection: apsw.Connection, scope: Scope, stream: Stream, moves: Sequence[IntentMove]) -> None:
    """Writes each intent where it stands at the revision that its move builds on. Raises IntentMoved, KeyConflict."""
    for before, row in moves:
        if before:
            connection.execute(_UPDATE, (*scope, *row, before))
            if connection.changes() != 1:
                raise _moved(connection, scope, stream, row)
        else:
            try:
                connection.execute(_INSERT, (*scope, *row))
            except apsw.ConstraintError:
                raise _taken(connection, scope, stream, row) from None


def _taken(connection: apsw.Connection, scope: Scope, stream: Stream, row: tuple[Any, ...]) -> RefoldError:
    found = query(
        connection,
        "SELECT intent_id FROM tool_intents WHERE tenant_id = ? AND workspace_id = ? AND idempotency_key = ?",
        (*scope, row[_KEY]),
    )
    if not found or found[0][0] == row[0]:
        return _moved(connection, scope, stream, row)
    return KeyConflict(
        f"Intent {found[0][0]} has the idempotency key with which {stream} claims {row[0]}.",
        intent_id=found[0][0],
        stream=str(stream),
    )


def _moved(connection: apsw.Connection, scope: Scope, stream: Stream, row: tuple[Any, ...]) -> IntentMoved:
    found = query(
        connection,
        "SELECT revision FROM tool_intents WHERE tenant_id = ? AND workspace_id = ? AND intent_id = ?",
        (*scope, row[0]),
    )
    stands = f"it is at revision {found[0][0]}" if found else "it is not there"
    return IntentMoved(
        f"{stream} cannot bring intent {row[0]} to revision {row[_REVISION]}: {stands}.",
        intent_id=row[0],
        stream=str(stream),
    )
