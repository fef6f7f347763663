"""Every projection equals what the folds make of the events alone, row for row and column for column."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import msgspec

from refold.events.catalog import CATALOG
from refold.events.envelope import Event, StreamRef
from refold.events.identity import Scope, Stream
from refold.ledger.sqlite.reader import decode_rows
from refold.projections import ROWS, Row, fold, new_state
from refold.projections.intents import Intents
from refold.projections.rows import IntentRow
from tests.invariants.checks.reading import EVENTS, HEADS, reading, rows

Table = dict[tuple[Any, ...], tuple[Any, ...]]


def check(path: Path) -> None:
    with reading(path) as connection:
        wanted = folded(connection)
        for table in ROWS:
            found = _stored(connection, table)
            for key in sorted(found.keys() | wanted[table].keys(), key=repr):
                stored, made = found.get(key), wanted[table].get(key)
                assert stored == made, f"{table.TABLE.name} {key}: stored {stored}, folded {made}"


def folded(connection: apsw.Connection) -> dict[type[Row], Table]:
    """All tables of a ledger, made from its events."""
    tables: dict[type[Row], Table] = defaultdict(dict)
    touching: list[tuple[str, int, StreamRef, Event]] = []
    for scope, stream, events in _streams(connection):
        state = new_state(scope, stream)
        for event in events:
            if hasattr(event.facts, "intent_id") and hasattr(event.facts, "revision"):
                touching.append((event.facts.intent_id, event.facts.revision, state.ref, event))
        fold(state, events)
        for row in state.take():
            _put(tables, scope, row)
    for scope, row in _intents(touching):
        _put(tables, scope, row)
    return tables


def _intents(touching: list[tuple[str, int, StreamRef, Event]]) -> Iterator[tuple[Scope, IntentRow]]:
    """Intents in the order of their own revisions, whichever streams those stand in."""
    intents = Intents()
    scopes: dict[str, Scope] = {}
    for intent, _, ref, event in sorted(touching, key=lambda each: each[:2]):
        intents.apply(event, str(ref.stream), ref.stream.run_id)
        scopes[intent] = ref.scope
    for intent, row in intents.rows.items():
        yield scopes[intent], row


def _put(tables: dict[type[Row], Table], scope: Scope, row: Row) -> None:
    key = (*scope, *(getattr(row, name) for name in row.TABLE.key))
    tables[type(row)][key] = msgspec.structs.astuple(row)


def _streams(connection: apsw.Connection) -> Iterator[tuple[Scope, Stream, list[Event]]]:
    for number, tenant, workspace, name, *_ in rows(connection, HEADS):
        stream = Stream.parse(name)
        stored = [row[:-2] for row in rows(connection, EVENTS, number)]
        yield Scope(tenant, workspace), stream, decode_rows(stored, CATALOG, stream)


def _stored(connection: apsw.Connection, table: type[Row]) -> Table:
    names = ", ".join(f'"{name}"' for name in table.__struct_fields__)
    key = ", ".join(("tenant_id", "workspace_id", *table.TABLE.key))
    width = 2 + len(table.TABLE.key)
    found = rows(connection, f"SELECT {key}, {names} FROM {table.TABLE.name}")
    return {row[:width]: row[width:] for row in found}
