"""The schema of a SQLite ledger: numbered migrations with checksums, and the tables made from row structs."""

from __future__ import annotations

import types
import typing
from collections.abc import Mapping
from functools import cache
from hashlib import sha256
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

import apsw

from refold.clock import Clock
from refold.ids import Ids
from refold.ledger.errors import MigrationChanged, NewerSchema, NotALedger, SchemaOutdated
from refold.ledger.sqlite.connection import APPLICATION_ID, query
from refold.projections import ROWS, Row
from refold.projections.fingerprint import fingerprint

_TYPES = {str: "TEXT", int: "INTEGER", float: "REAL", bool: "INTEGER"}


class Migration(NamedTuple):
    """One numbered step of the schema."""

    number: int
    name: str
    sql: str

    @property
    def checksum(self) -> str:
        return sha256(self.sql.encode()).hexdigest()


@cache
def migrations() -> tuple[Migration, ...]:
    """All steps, in order."""
    found = []
    for source in files("refold.ledger.sqlite.migrations").iterdir():
        if source.name.endswith(".sql"):
            number, _, name = source.name[: -len(".sql")].partition("_")
            found.append(Migration(int(number), name, source.read_text(encoding="utf-8")))
    return tuple(sorted(found))


@cache
def columns(row: type[Row]) -> tuple[str, ...]:
    """A row struct's columns, without the scope's."""
    return row.__struct_fields__


def _column(name: str, hint: Any) -> str:
    optional = isinstance(hint, types.UnionType)
    kind = next(each for each in typing.get_args(hint) if each is not types.NoneType) if optional else hint
    return f'"{name}" {_TYPES[kind]}' + ("" if optional else " NOT NULL")


def create_table(row: type[Row], name: str | None = None) -> list[str]:
    """The statements that make a row struct's table and its indexes; `name` puts it beside the real one."""
    table = row.TABLE
    called = name or table.name
    scope = "tenant_id, workspace_id, "
    hints = typing.get_type_hints(row)
    lines = ["tenant_id TEXT NOT NULL", "workspace_id TEXT NOT NULL"]
    lines += [_column(each, hints[each]) for each in columns(row)]
    lines.append(f"PRIMARY KEY ({scope}{', '.join(table.key)})")
    if "run_id" in hints and table.name not in ("runs", "audit"):
        lines.append("FOREIGN KEY (tenant_id, workspace_id, run_id) REFERENCES runs (tenant_id, workspace_id, run_id)")
    statements = [f"CREATE TABLE {called} (\n    " + ",\n    ".join(lines) + "\n) WITHOUT ROWID"]
    for index in _indexes(row, called):
        unique = "UNIQUE " if index.unique else ""
        condition = f" WHERE {index.condition}" if index.condition else ""
        statements.append(
            f"CREATE {unique}INDEX {index.name} ON {called} ({scope}{', '.join(index.fields)}){condition}"
        )
    return statements


class _Index(NamedTuple):
    name: str
    fields: tuple[str, ...]
    unique: bool = False
    condition: str = ""


def _indexes(row: type[Row], called: str) -> list[_Index]:
    table = row.TABLE
    return [
        *(_Index(f"{called}_{'_'.join(fields)}", fields, unique=True) for fields in table.unique),
        *(_Index(f"{called}_{'_'.join(fields)}", fields) for fields in table.indexes),
        *(_Index(f"{called}_open_{'_'.join(fields)}", fields, condition=text) for fields, text in table.partial),
    ]


def set_estimates(connection: apsw.Connection, made_as: Mapping[type[Row], str]) -> None:
    """Tells SQLite's planner what indexes are for, in the transaction that is open; again whenever tables were swapped.

    `made_as` are the names under which the tables were made: indexes keep theirs when a table gets another.

    Without statistics it takes (tenant, workspace) for ten rows, and reads all of a scope rather than look one row up
    in an index. What stands here is a large ledger's shape, the same for all, so that a query is planned the same way
    in every ledger, whatever it holds.
    """
    connection.execute("ANALYZE sqlite_schema")  # Makes the table of statistics.
    connection.execute("DELETE FROM sqlite_stat1")
    for row in ROWS:
        table = row.TABLE
        scope, several, one = (1_000_000,) * 3, (1_000,), (1,)
        found = [(table.name, (*scope, *several * (len(table.key) - 1), *one))]  # The key goes by the table's name.
        for index in _indexes(row, made_as[row]):
            few = (10_000,) * 3 if index.condition else scope
            found.append((index.name, (*few, *several * (len(index.fields) - 1), *(one if index.unique else (10,)))))
        connection.executemany(
            "INSERT INTO sqlite_stat1 (tbl, idx, stat) VALUES (?, ?, ?)",
            [(table.name, name, " ".join(map(str, rows))) for name, rows in found],
        )
    connection.execute("ANALYZE sqlite_schema")  # Makes this connection read it again; others do as they open.


@cache
def upsert(row: type[Row], name: str | None = None) -> str:
    """The statement that puts a row where its key says."""
    names = columns(row)
    listed = ", ".join(f'"{each}"' for each in names)
    marks = ", ".join("?" * (len(names) + 2))
    key = row.TABLE.key
    if not row.TABLE.unique:
        # Does the same in two thirds of the time. Where more is unique than the key it would remove somebody else's
        # row.
        return f"INSERT OR REPLACE INTO {name or row.TABLE.name} (tenant_id, workspace_id, {listed}) VALUES ({marks})"
    # What is unique says which row it is and never changes; SQLite would write the indexes of it again.
    fixed = {*key, *(each for fields in row.TABLE.unique for each in fields)}
    changes = ", ".join(f'"{each}" = excluded."{each}"' for each in names if each not in fixed)
    return (
        f"INSERT INTO {name or row.TABLE.name} (tenant_id, workspace_id, {listed}) VALUES ({marks}) "
        f"ON CONFLICT (tenant_id, workspace_id, {', '.join(key)}) DO UPDATE SET {changes}"
    )


def create(connection: apsw.Connection, clock: Clock, ids: Ids) -> None:
    """Makes an empty database a ledger, in the transaction that is open."""
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute(
        "CREATE TABLE migrations (number INTEGER PRIMARY KEY, name TEXT NOT NULL, checksum TEXT NOT NULL, "
        "applied_at INTEGER NOT NULL)"
    )
    for step in migrations():
        _apply(connection, step, clock)
    for row in ROWS:
        for statement in create_table(row):
            connection.execute(statement)
    set_estimates(connection, {row: row.TABLE.name for row in ROWS})
    connection.execute("INSERT INTO ledger VALUES (1, ?, ?, ?)", (ids.new("ledger"), clock.now(), fingerprint()))


def _apply(connection: apsw.Connection, step: Migration, clock: Clock) -> None:
    connection.execute(step.sql)
    connection.execute(
        "INSERT INTO migrations VALUES (?, ?, ?, ?)", (step.number, step.name, step.checksum, clock.now())
    )


def is_empty(connection: apsw.Connection) -> bool:
    """Whether the database has no tables at all: new, or its making was interrupted."""
    return query(connection, "SELECT count(*) FROM sqlite_schema") == [(0,)]


def check(connection: apsw.Connection, path: Path) -> list[Migration]:
    """The migrations that this ledger still lacks. Raises NotALedger, NewerSchema, MigrationChanged."""
    if query(connection, "PRAGMA application_id") != [(APPLICATION_ID,)]:
        raise NotALedger(f"{path.name} is a SQLite database of another program.", ledger=str(path))
    applied = {
        number: (name, sum_)
        for number, name, sum_ in query(connection, "SELECT number, name, checksum FROM migrations")
    }
    known = {step.number: step for step in migrations()}
    newest = max(applied, default=0)
    if newest > max(known):
        raise NewerSchema(
            f"{path.name} has schema {newest}, and this refold knows up to {max(known)}.",
            ledger=str(path),
            schema=newest,
            known=max(known),
        )
    for number, (name, checksum) in applied.items():
        if known[number].checksum != checksum:
            raise MigrationChanged(
                f"Migration {number} ({name}) of {path.name} has another checksum than in this refold.",
                ledger=str(path),
                migration=number,
            )
    return [step for number, step in known.items() if number not in applied]


def require_current(connection: apsw.Connection, path: Path) -> None:
    """Raises SchemaOutdated when migrations are missing or the projections were folded by other code."""
    missing = check(connection, path)
    if missing:
        raise SchemaOutdated(
            f"{path.name} lacks migration {missing[0].number}.", ledger=str(path), missing=missing[0].number
        )
    if projections_of(connection) != fingerprint():
        raise SchemaOutdated(f"The projections in {path.name} were folded by other code.", ledger=str(path))


def projections_of(connection: apsw.Connection) -> str:
    """The fingerprint of the code that folded this ledger's projections."""
    found: str = query(connection, "SELECT projections FROM ledger")[0][0]
    return found


def apply_next(connection: apsw.Connection, path: Path, clock: Clock) -> Migration | None:
    """Applies the first migration that is missing, in the transaction that is open, and says which; None: none is."""
    missing = check(connection, path)
    if not missing:
        return None
    _apply(connection, missing[0], clock)
    return missing[0]
