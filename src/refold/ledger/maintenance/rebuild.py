"""Replay kind 5 for a whole ledger: every table is folded again from the events and compared with what is stored.

The folded tables stand in a database of their own that has no name in any folder: SQLite unlinks it as it opens it, so
that a killed rebuild leaves no text behind that an erasure would not find. Ledger and scratch are read in one
transaction, so that writers may go on meanwhile.
"""

from __future__ import annotations

import asyncio
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import apsw

from refold.errors import RefoldError
from refold.events.catalog import CATALOG, Catalog
from refold.ledger.sqlite import schema
from refold.ledger.sqlite.connection import connect, must_exist, query, translated
from refold.ledger.sqlite.refolding import Progress, refold_into
from refold.ledger.sqlite.schema import columns
from refold.projections import ROWS, Row

SHOWN = 100
"""Differences that are told one by one; all are counted."""

_NAMES = {row: f"folded_{row.TABLE.name}" for row in ROWS}


class UnknownProjection(RefoldError):
    """There is no table of this name that is folded from events."""

    code = "unknown_projection"
    exit_status = 2
    remedy = "Use one of the tables that the message lists."


class Difference(NamedTuple):
    """A row that is stored otherwise than it is folded. `stored` or `folded` is None where there is no such row;
    `column` is the first that differs, None where the row as a whole does."""

    table: str
    key: dict[str, Any]
    column: str | None
    stored: Any
    folded: Any


class Rebuilt(NamedTuple):
    """What a rebuild found: events folded, rows compared, and the first `SHOWN` of `different` rows."""

    events: int
    rows: int
    different: int
    differences: list[Difference]

    @property
    def equal(self) -> bool:
        return self.different == 0


async def rebuild(
    path: str | Path, projection: str | None = None, progress: Progress | None = None, catalog: Catalog = CATALOG
) -> Rebuilt:
    """Folds the ledger at `path` again and compares the table `projection`, or all of them. Writes nothing.

    `progress` is told how many events were folded so far, from another thread. Raises LedgerMissing, NotALedger,
    SchemaOutdated, UnknownProjection, UnknownEvent, BrokenFold, LedgerDamaged.
    """
    tables = {row.TABLE.name: row for row in ROWS}
    if projection is not None and projection not in tables:
        raise UnknownProjection(
            f"{projection!r} is no projection; there are {', '.join(tables)}.", projection=projection
        )
    chosen = ROWS if projection is None else (tables[projection],)
    place = Path(path).resolve()
    return await asyncio.to_thread(_rebuild, place, chosen, progress, catalog)


def _rebuild(path: Path, chosen: tuple[type[Row], ...], progress: Progress | None, catalog: Catalog) -> Rebuilt:
    must_exist(path)
    with translated(path), closing(connect(path, write=False)) as probe:
        schema.require_current(probe, path)
    flags = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE | apsw.SQLITE_OPEN_URI
    with translated(path), closing(apsw.Connection("", flags=flags)) as connection:
        connection.set_busy_timeout(5000)
        connection.execute("PRAGMA trusted_schema = OFF")
        connection.execute("PRAGMA journal_mode = OFF").fetchall()
        connection.execute("PRAGMA cache_size = -65536")
        # Names that the scratch does not have are looked up in what is attached: the folds read the ledger's events.
        connection.execute("ATTACH ? AS ledger_file", (f"{path.as_uri()}?mode=ro",))
        connection.execute("BEGIN")
        events = refold_into(connection, connection, _NAMES, progress, catalog)
        differences: list[Difference] = []
        rows = different = 0
        for row in chosen:
            rows += query(connection, f"SELECT count(*) FROM {_NAMES[row]}")[0][0]
            found, count = _compare(connection, row)
            differences += found[: SHOWN - len(differences)]
            different += count
        return Rebuilt(events, rows, different, differences)


def _compare(connection: apsw.Connection, row: type[Row]) -> tuple[list[Difference], int]:
    """The first differing rows of a table, and how many there are."""
    stored, folded = f"ledger_file.{row.TABLE.name}", f"main.{_NAMES[row]}"
    names = ("tenant_id", "workspace_id", *columns(row))
    key = ("tenant_id", "workspace_id", *row.TABLE.key)
    listed = ", ".join(f'a."{name}"' for name in names)
    same_key = " AND ".join(f'b."{name}" = a."{name}"' for name in key)
    same = " AND ".join(f'b."{name}" IS a."{name}"' for name in names)
    found: list[Difference] = []
    count = 0
    # Stored rows that are folded otherwise or not at all, then folded rows that are not stored.
    for one, other, alike in ((stored, folded, f"{same_key} AND {same}"), (folded, stored, same_key)):
        rows: Any = connection.execute(
            f"SELECT {listed} FROM {one} a WHERE NOT EXISTS (SELECT 1 FROM {other} b WHERE {alike})"
        )
        for values in islice(rows, SHOWN - len(found)):
            record = dict(zip(names, values, strict=True))
            found.append(_difference(connection, row, key, record, one is stored))
            count += 1
        count += sum(1 for _ in rows)
    return found, count


def _difference(
    connection: apsw.Connection, row: type[Row], key: tuple[str, ...], record: dict[str, Any], is_stored: bool
) -> Difference:
    where = {name: record[name] for name in key}
    table = row.TABLE.name
    if not is_stored:
        return Difference(table, where, None, None, record)
    conditions = " AND ".join(f'"{name}" = ?' for name in key)
    listed = ", ".join(f'"{name}"' for name in record)
    folded = query(connection, f"SELECT {listed} FROM main.{_NAMES[row]} WHERE {conditions}", tuple(where.values()))
    if not folded:
        return Difference(table, where, None, record, None)
    for (name, stored), made in zip(record.items(), folded[0], strict=True):
        if stored != made:
            return Difference(table, where, name, stored, made)
    raise AssertionError("rows that SQLite finds different are equal")
