"""Rebuilding: every projection folded from the events alone, in a scratch copy, and compared with the stored row by
row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import apsw

from refold.ledger.sqlite.connection import query
from refold.ledger.sqlite.refolding import Names, refold_into
from refold.ledger.sqlite.schema import columns
from refold.ledger.sqlite.store import SqliteStore
from refold.projections import ROWS, Row

Progress = Callable[[int, int], None]
"""Told the events folded and in all."""

_SHOWN = 100


class Difference(NamedTuple):
    """A row that is not what its events make of it. `stored` or `rebuilt` None: there is no such row."""

    table: str
    key: tuple[Any, ...]
    column: str | None
    stored: Any
    rebuilt: Any


class Rebuild(NamedTuple):
    """What a rebuild found. `differences` holds the first 100 rows that differ, `differing` counts all."""

    events: int
    rows: int
    differing: int
    differences: list[Difference]

    @property
    def equal(self) -> bool:
        return self.differing == 0


async def rebuild(store: SqliteStore, tables: Sequence[type[Row]] = ROWS, progress: Progress | None = None) -> Rebuild:
    """Folds the whole ledger again and compares `tables`; changes nothing. Raises BrokenFold, UnknownEvent,
    LedgerDamaged.

    The scratch copy is a temporary database that the system removes when this process ends, however it ends: what is
    erased later must not survive in a forgotten copy.
    """
    with store.access.reading() as read:
        total = query(read, "SELECT coalesce(sum(seq), 0) FROM stream_heads")[0][0]
        scratch = apsw.Connection("")
        try:
            for pragma in ("synchronous = OFF", "journal_mode = OFF", "foreign_keys = OFF", "cache_size = -65536"):
                query(scratch, f"PRAGMA {pragma}")
            names: Names = {row: row.TABLE.name for row in ROWS}
            scratch.execute("BEGIN")
            events = refold_into(
                read, scratch, names, None if progress is None else lambda done: progress(done, total), store.catalog
            )
            found = [_compare(read, scratch, row) for row in tables]
        finally:
            scratch.close()
    return Rebuild(
        events,
        sum(rows for rows, _, _ in found),
        sum(differing for _, differing, _ in found),
        [each for _, _, differences in found for each in differences][:_SHOWN],
    )


def _compare(stored: apsw.Connection, rebuilt: apsw.Connection, row: type[Row]) -> tuple[int, int, list[Difference]]:
    """Walks both tables in the order of their key: rows seen, how many differ, the first of those."""
    width = 2 + len(row.TABLE.key)
    left, right = _ordered(stored, row), _ordered(rebuilt, row)
    one, other = next(left, None), next(right, None)
    rows = differing = 0
    differences: list[Difference] = []
    while one is not None or other is not None:
        rows += 1
        keys = [None if each is None else each[:width] for each in (one, other)]
        first = min(key for key in keys if key is not None)
        mine, theirs = (one if keys[0] == first else None), (other if keys[1] == first else None)
        if mine != theirs:
            differing += 1
            if len(differences) < _SHOWN:
                differences.append(_difference(row, first, mine, theirs))
        if mine is not None:
            one = next(left, None)
        if theirs is not None:
            other = next(right, None)
    return rows, differing, differences


def _difference(
    row: type[Row], key: tuple[Any, ...], stored: tuple[Any, ...] | None, rebuilt: tuple[Any, ...] | None
) -> Difference:
    if stored is None or rebuilt is None:
        return Difference(row.TABLE.name, key, None, stored is not None, rebuilt is not None)
    names = ("tenant_id", "workspace_id", *_key_first(row))
    place = next(place for place, pair in enumerate(zip(stored, rebuilt, strict=True)) if pair[0] != pair[1])
    return Difference(row.TABLE.name, key, names[place], stored[place], rebuilt[place])


def _key_first(row: type[Row]) -> tuple[str, ...]:
    key = row.TABLE.key
    return (*key, *(name for name in columns(row) if name not in key))


def _ordered(connection: apsw.Connection, row: type[Row]) -> Iterator[tuple[Any, ...]]:
    listed = ", ".join(f'"{name}"' for name in _key_first(row))
    order = ", ".join(("tenant_id", "workspace_id", *row.TABLE.key))
    cursor = connection.cursor()
    yield from cursor.execute(f"SELECT tenant_id, workspace_id, {listed} FROM {row.TABLE.name} ORDER BY {order}")
