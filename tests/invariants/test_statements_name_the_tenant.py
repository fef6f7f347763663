"""Every SQL statement on a table with tenants names the tenant, or stands in a list that says why it does not.

The statements are read from the source of the SQLite adapter and of the maintenance beside it: text constants,
f-strings and their sums, with the constants that they are made of put in.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

import refold.ledger.sqlite.store as adapter
from refold.projections import ROWS

LEDGER = Path(adapter.__file__).parents[1]
FOLDERS = (LEDGER / "sqlite", LEDGER / "maintenance")
TABLES = {"secrets", "stream_heads", "events", "blobs", "inbox", "snapshots", "cursors"} | {
    row.TABLE.name for row in ROWS
}
_NAMED = re.compile(r"\b(?:FROM|INTO|UPDATE|JOIN)\s+(?:main\.)?([a-z_]+|\{[^}]*\})", re.IGNORECASE)
_BOUND = re.compile(r"\btenant_id\b")

PLACE = "puts all columns by place, the tenant among them"
NUMBERS = "gives out a number that is unique in the whole file"
OWNERS = "looks after the processes of the whole file, and reads no word of a tenant"
PENDING = "finishes for whoever asked an erasure that a process did not live to finish; reads no word of a tenant"
OPERATOR = "an operator's work on the whole file, which no scope can ask for"

EXCEPTIONS: dict[tuple[str, str], str] = {
    ("commit.py", "INSERT INTO events VALUES"): PLACE,
    ("commit.py", "INSERT INTO blobs VALUES"): PLACE,
    ("commit.py", "INSERT OR REPLACE INTO snapshots VALUES"): PLACE,
    ("store.py", "INSERT INTO inbox VALUES"): PLACE,
    ("store.py", "INSERT INTO cursors VALUES"): PLACE,
    ("store.py", "INSERT INTO secrets VALUES"): PLACE,
    ("heads.py", "SELECT coalesce(max(stream_no), 0) + 1 FROM stream_heads"): NUMBERS,
    ("incarnation.py", "SELECT number FROM incarnations WHERE NOT EXISTS (SELECT 1 FROM stream_heads"): OWNERS,
    ("restore.py", "SELECT {heads.COLUMNS} FROM stream_heads WHERE owner IS NOT NULL"): OWNERS,
    ("erasing.py", "SELECT {heads.COLUMNS} FROM stream_heads WHERE erased = {GONE}"): PENDING,
    # verify --all
    ("store.py", "SELECT {heads.COLUMNS} FROM stream_heads NOT INDEXED"): OPERATOR,
    ("store.py", "SELECT id FROM {table} WHERE id >= ?"): OPERATOR,
    ("store.py", "SELECT id FROM {table} WHERE id < 0"): OPERATOR,
    # migrate and rebuild
    ("refolding.py", "SELECT {heads.COLUMNS} FROM stream_heads WHERE stream_no > ?"): OPERATOR,
    ("migration.py", "DELETE FROM snapshots"): OPERATOR,
    ("rebuild.py", "SELECT count(*) FROM {_NAMES[row]}"): OPERATOR,
    ("rebuild.py", "SELECT {listed} FROM {one} a WHERE NOT EXISTS (SELECT 1 FROM {other} b"): OPERATOR,
    ("rebuild.py", "SELECT {listed} FROM main.{_NAMES[row]} WHERE {conditions}"): OPERATOR,
    # backup and doctor
    ("backup.py", "SELECT ledger_id, (SELECT count(*) FROM stream_heads) FROM ledger"): OPERATOR,
    ("doctor.py", "SELECT {heads.COLUMNS} FROM stream_heads ORDER BY stream_no"): OPERATOR,
    ("doctor.py", "SELECT s.stream, s.seq FROM snapshots s JOIN stream_heads h USING (tenant_id"): OPERATOR,
    ("doctor.py", "SELECT storage_key FROM run_artifacts WHERE store = 'file'"): OPERATOR,
    ("doctor.py", "SELECT count(*) FROM tool_intents WHERE status = 'in_doubt'"): OPERATOR,
    ("doctor.py", "SELECT count(DISTINCT run_id) FROM run_step_tool_calls WHERE status = 'in_doubt'"): OPERATOR,
}
"""(file, beginning of the statement) -> why it needs no tenant."""


class Statement(NamedTuple):
    file: str
    line: int
    text: str


def _constants(tree: ast.Module) -> dict[str, str]:
    """The module's text constants, in the order of their making."""
    known: dict[str, str] = {}
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            text = _rendered(node.value, known)
            if text is not None:
                known[node.targets[0].id] = text
    return known


def _rendered(node: ast.expr, known: dict[str, str]) -> str | None:
    """The text that an expression makes, with `{name}` where it is not known; None for what is no text."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.Name(id=name):
            return known.get(name)
        case ast.JoinedStr(values=parts):
            made = [_rendered(part, known) for part in parts]
            return "".join(each if each is not None else "" for each in made)
        case ast.FormattedValue(value=value):
            text = _rendered(value, known) if isinstance(value, ast.Name) else None
            return text if text is not None else "{" + ast.unparse(value) + "}"
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            one, other = _rendered(left, known), _rendered(right, known)
            if one is None and other is None:
                return None
            return (one if one is not None else "{" + ast.unparse(left) + "}") + (
                other if other is not None else "{" + ast.unparse(right) + "}"
            )
    return None


def _texts(node: ast.AST, known: dict[str, str]) -> Iterator[tuple[int, str]]:
    """The longest text expressions below a node, docstrings left out."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Expr) and isinstance(child.value, ast.Constant):
            continue
        if isinstance(child, ast.expr) and not isinstance(child, ast.Name):
            text = _rendered(child, known)
            if text is not None:
                yield child.lineno, text
                continue
        yield from _texts(child, known)


def statements() -> list[Statement]:
    """Every text that names a table after FROM, INTO, UPDATE or JOIN."""
    found = []
    for folder in FOLDERS:
        for file in sorted(folder.glob("*.py")):
            tree = ast.parse(file.read_text(encoding="utf-8"))
            known = _constants(tree)
            for line, text in _texts(tree, known):
                if _NAMED.search(text) and re.search(r"\b(SELECT|INSERT|UPDATE|DELETE|JOIN|WHERE)\b", text):
                    found.append(Statement(file.name, line, " ".join(text.split())))
    return found


def on_tenants(statement: Statement) -> list[str]:
    """The tables with tenants that a statement names; a table that is put in by name counts as one."""
    return [name for name in _NAMED.findall(statement.text) if name in TABLES or name.startswith("{")]


def excused(statement: Statement) -> tuple[str, str] | None:
    """The entry of the list that a statement goes by."""
    fits = (key for key in EXCEPTIONS if key[0] == statement.file and statement.text.startswith(key[1]))
    return next(fits, None)


def binds(statement: Statement) -> bool:
    """Whether each of its tables is bound to a tenant."""
    return len(_BOUND.findall(statement.text)) >= len(on_tenants(statement))


def test_every_statement_on_a_table_with_tenants_names_the_tenant() -> None:
    found = [each for each in statements() if on_tenants(each)]
    assert len(found) > 30, "the statements were not found"
    unbound = [each for each in found if not binds(each) and excused(each) is None]
    assert unbound == [], "\n".join(f"{each.file}:{each.line}: {each.text}" for each in unbound)


def test_no_exception_is_left_from_a_statement_that_is_gone_or_names_its_tenant() -> None:
    used = {excused(each) for each in statements() if on_tenants(each) and not binds(each)}
    assert set(EXCEPTIONS) - used == set()


@pytest.mark.parametrize(
    ("source", "fine"),
    [
        ('query("SELECT seq FROM events WHERE id = ?")', False),
        ('query("SELECT seq FROM events WHERE tenant_id = ? AND id = ?")', True),
        ('query("SELECT * FROM runs WHERE tenant_id = ? AND run_id IN (SELECT run_id FROM run_steps)")', False),
        ('query("SELECT seq FROM " + "events")', False),
        ('_PART = " FROM events WHERE id = ?"\nquery("SELECT seq" + _PART)', False),
        ('_PART = " FROM events WHERE tenant_id = ?"\nquery(f"SELECT seq {_PART}")', True),
        ('query(f"DELETE FROM {table} WHERE run_id = ?")', False),
        ('query("SELECT number FROM incarnations")', True),
    ],
)
def test_the_reading_of_the_source_finds_what_does_not_name_its_tenant(source: str, fine: bool) -> None:
    tree = ast.parse(source)
    known = _constants(tree)
    found = [Statement("x.py", line, text) for line, text in _texts(tree, known)]
    assert all(binds(each) for each in found if on_tenants(each)) == fine
