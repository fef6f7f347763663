"""Damage to files at rest: single flipped bits, cut tails, swapped rows; and what a reader then sees.

The flips of a database are drawn from the bytes of the pages that given b-trees occupy (SQLite's `dbstat`
names them, overflow pages included), so that a campaign hits what it means to hit. A flip is one byte
written in place and written back: thousands take less than a second.

A flip can land in the unused bytes of a page, where no reader looks. `logical_digest` tells: when it is the
same before and after, no way of reading the rows shows the flip; otherwise `verify` must have noticed.

Work on a file that nobody has open: closing any handle on a file drops the locks that SQLite in the same
process holds on it, and an open connection may still have the undamaged page in its cache.
"""

from __future__ import annotations

import hashlib
import os
import random
import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

import apsw

# The names in these queries come from the schema of the damaged file and are quoted; they cannot be bound.

__all__ = ["Flip", "cut_tail", "file_flips", "flips", "indexes_of", "logical_digest", "swap_rows"]


@dataclass(frozen=True, slots=True)
class Flip:
    """One bit of one file: `bit` 0 to 7 of the byte at `offset` from the start of `path`.

    `where` is the b-tree and the kind of its page ("events leaf", "events overflow"), or the name of a
    plain file; `page` is the page's number from 1, 0 in a plain file.
    """

    path: Path
    offset: int
    bit: int
    where: str
    page: int = 0

    @contextmanager
    def applied(self) -> Iterator[None]:
        """The bit is flipped on disk within the `with` block and as it was afterwards."""
        self._toggle()
        try:
            yield
        finally:
            self._toggle()

    def _toggle(self) -> None:
        file = os.open(self.path, os.O_RDWR)
        try:
            (byte,) = os.pread(file, 1, self.offset)
            os.pwrite(file, bytes([byte ^ 1 << self.bit]), self.offset)
        finally:
            os.close(file)


def flips(path: Path, btrees: Sequence[str], count: int, seed: int) -> Iterator[Flip]:
    """`count` random flips among all bytes of the pages of the named tables and indexes of a SQLite file.

    The file must be checkpointed: ValueError when its -wal holds anything, or when a name has no page. The
    same file, names and seed give the same flips.
    """
    with closing(_still(path)) as db:
        pages = [
            (offset, size, f"{name} {kind}", number)
            for name, kind, number, offset, size in db.execute(
                "SELECT name, pagetype, pageno, pgoffset, pgsize FROM dbstat ORDER BY pageno"
            )
            if name in btrees
        ]
    missing = set(btrees) - {where.rpartition(" ")[0] for _, _, where, _ in pages}
    if missing:
        raise ValueError(f"{path} has no table or index named {', '.join(sorted(missing))}")
    for index, byte, bit in _draw([size for _, size, _, _ in pages], count, seed):
        offset, _, where, number = pages[index]
        yield Flip(path, offset + byte, bit, where, number)


def file_flips(paths: Sequence[Path], count: int, seed: int) -> Iterator[Flip]:
    """`count` random flips among all bytes of plain files; the larger one is hit more often."""
    for index, byte, bit in _draw([path.stat().st_size for path in paths], count, seed):
        yield Flip(paths[index], byte, bit, paths[index].name)


def _draw(sizes: list[int], count: int, seed: int) -> Iterator[tuple[int, int, int]]:
    ends = list(accumulate(sizes))
    if not ends or not ends[-1]:
        raise ValueError("there is no byte to flip")
    dice = random.Random(seed)
    for _ in range(count):
        position = dice.randrange(ends[-1])
        index = bisect_right(ends, position)
        yield index, position - (ends[index] - sizes[index]), dice.randrange(8)


def indexes_of(path: Path, table: str) -> list[str]:
    """The names of the indexes of a table, also of those that its keys imply; `flips` takes them."""
    with closing(_still(path)) as db:
        return [name for name, _ in _indexes(db, table)]


def logical_digest(path: Path, tables: Sequence[str]) -> str:
    """A digest of all rows of `tables` over every road that leads to them; "unreadable: ..." where one ends.

    The roads: the table from its first row to its last; each row sought by its key, because damage to an
    inner page can hide rows from a search that a scan still shows; each index from end to end by its own
    columns; the rows that it leads to; each row sought in it. ValueError when there is no
    such table, or when the file's -wal holds anything.
    """
    digest = hashlib.sha256()
    try:
        with closing(_still(path)) as db:
            for table in tables:
                for query in _roads(db, table):
                    digest.update(query.encode())
                    for row in db.execute(query):
                        _add(digest, row)
    except (apsw.Error, UnicodeDecodeError) as error:
        return f"unreadable: {type(error).__name__}: {error}"
    return digest.hexdigest()


def cut_tail(path: Path, size: int) -> None:
    """Take the last `size` bytes off a file, for good. ValueError when it has fewer."""
    left = path.stat().st_size - size
    if left < 0:
        raise ValueError(f"{path} has only {left + size} bytes")
    os.truncate(path, left)


def swap_rows(path: Path, table: str, first: dict[str, Any], second: dict[str, Any]) -> None:
    """Exchange what two rows say and leave them their keys, past triggers, checks and foreign keys.

    `first` and `second` give the same columns, which must identify one row each: {"stream": 7, "seq": 3} and
    {"stream": 7, "seq": 4} put the event 4 where 3 was and the other way round. A rowid that is no column
    is not kept. ValueError when there is no such row.
    """
    with closing(apsw.Connection(os.fspath(path))) as db:
        db.config(apsw.SQLITE_DBCONFIG_ENABLE_TRIGGER, 0)
        db.config(apsw.SQLITE_DBCONFIG_ENABLE_FKEY, 0)
        db.pragma("ignore_check_constraints", True)
        columns = [name for (name,) in db.execute("SELECT name FROM pragma_table_info(?)", (table,))]
        chosen = " AND ".join(f"{_quoted(name)} IS ?" for name in first)
        marks = ", ".join("?" * len(columns))
        names = ", ".join(map(_quoted, columns))
        with db:
            rows = []
            for key in (first, second):
                query = f"DELETE FROM {_quoted(table)} WHERE {chosen} RETURNING {names}"
                found = db.execute(query, [key[name] for name in first]).fetchall()
                if len(found) != 1:
                    raise ValueError(f"{table} has {len(found)} rows with {key}")
                rows.append(dict(zip(columns, found[0], strict=True)))
            for row, key in ((rows[0], second), (rows[1], first)):
                moved = row | key
                insert = f"INSERT INTO {_quoted(table)}({names}) VALUES({marks})"
                db.execute(insert, [moved[name] for name in columns])


def _add(digest: Any, row: tuple[Any, ...]) -> None:
    for value in row:
        if isinstance(value, bytes):
            digest.update(b"bytes %d " % len(value))
            digest.update(value)
        else:
            # repr keeps 1, 1.0 and '1' apart, and shows every bit of a float.
            digest.update(repr(value).encode("utf-8", "surrogatepass") + b" ")
    digest.update(b"\n")


def _roads(db: apsw.Connection, table: str) -> Iterator[str]:
    """The queries that lead over each road once. Each is as long as the table has rows, times one search."""
    name = _quoted(table)
    columns = db.execute("SELECT name, pk FROM pragma_table_info(?)", (table,)).fetchall()
    if not columns:
        raise ValueError(f"there is no table named {table}")
    without_rowid = db.execute("SELECT wr FROM pragma_table_list(?)", (table,)).get
    # What the rows are stored by: the primary key of a WITHOUT ROWID table, else the rowid.
    key = [_quoted(str(column)) for column, part in columns if part] if without_rowid else ["rowid"]
    same_key = " AND ".join(f"b.{part} = a.{part}" for part in key)
    # Backwards: towards larger keys SQLite steps to the neighbour instead of searching from the root.
    backwards = ", ".join(f"a.{part} DESC" for part in key)

    # Without the order, an index that holds all columns would be read instead of a WITHOUT ROWID table.
    yield f"SELECT {', '.join(key)}, * FROM {name} NOT INDEXED ORDER BY {', '.join(key)}"
    yield (
        f"SELECT EXISTS(SELECT 1 FROM {name} AS b WHERE {same_key}) FROM {name} AS a NOT INDEXED ORDER BY {backwards}"
    )
    for index, condition in _indexes(db, table):
        own = [
            _quoted(column)
            for (column,) in db.execute("SELECT name FROM pragma_index_xinfo(?) WHERE key AND cid >= 0", (index,))
        ]
        through = f"{name} INDEXED BY {_quoted(index)}"
        yield f"SELECT {', '.join([*own, *key])} FROM {through} WHERE {condition}"
        yield f"SELECT * FROM {through} WHERE {condition}"
        same = " AND ".join([*(f"b.{column} IS a.{column}" for column in own), same_key])
        yield (
            f"SELECT EXISTS(SELECT 1 FROM {name} AS b INDEXED BY {_quoted(index)}"
            f" WHERE {condition} AND {same}) FROM {name} AS a NOT INDEXED ORDER BY {backwards}"
        )


def _indexes(db: apsw.Connection, table: str) -> list[tuple[str, str]]:
    """The (name, condition) of the indexes with a b-tree of their own; a whole one's condition is 1."""
    found = db.execute(
        "SELECT list.name, schema.sql FROM pragma_index_list(?) AS list LEFT JOIN sqlite_schema AS schema"
        " ON schema.name = list.name WHERE schema.rootpage ORDER BY list.name",
        (table,),
    )
    return [(name, _condition(sql or "")) for name, sql in found]


def _condition(sql: str) -> str:
    parts = re.split(r"\bWHERE\b", sql, maxsplit=1, flags=re.IGNORECASE)
    return f"({parts[1].strip()})" if len(parts) == 2 else "1"


def _still(path: Path) -> apsw.Connection:
    """A reader that takes no lock and makes no -shm: the bytes of the file, as they are."""
    wal = path.with_name(path.name + "-wal")
    if wal.exists() and wal.stat().st_size:
        raise ValueError(f"{path} has pages in its -wal; checkpoint and close it first")
    flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
    return apsw.Connection(f"{path.resolve().as_uri()}?immutable=1", flags=flags)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
