"""The floor of whatever goes through a ledger: its commits, noted while refold made them, made again with nothing but
apsw.

What was noted is made as cheap as it can be: statements and values are ready, one `executemany` a statement, an event's
row by its number, of a row that is there already only the columns that change. Left out is everything that refold does
for them besides: encoding, digests, the scan, folds, compare-and-set, snapshots.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import apsw
import msgspec

from benchmarks.harness import Sample, timed
from refold.ledger.ledger import Ledger, open_ledger
from refold.ledger.port import Committed, Outcome, StreamBatch
from refold.ledger.sqlite.connection import connect
from refold.ledger.sqlite.heads import COLUMNS, SHIFT
from refold.ledger.sqlite.schema import columns
from refold.projections import ROWS, Row

Measured = Callable[[], AbstractContextManager[Sample]]
"""What a work opens around the part of it that counts."""
Work = Callable[[Ledger, Measured], Awaitable[None]]
"""Something done with an open ledger."""
Commit = list[tuple[str, list[tuple[Any, ...]]]]
"""Statements with the values of each time they run."""

_NO_DIGEST = bytes(8)
"""In place of a head's digest, which the floor does not make."""


class Recording(msgspec.Struct):
    """The commits of one work, before the part that counts and in it, and the events in that part."""

    before: list[Commit] = []
    counted: list[Commit] = []
    events: int = 0

    def without_tables(self) -> Recording:
        """The same commits with heads, events and blobs alone: none of the rows that the folds made."""
        return Recording(_bare(self.before), _bare(self.counted), self.events)


def _bare(commits: list[Commit]) -> list[Commit]:
    folds = tuple(f"{verb} {row.TABLE.name} " for row in ROWS for verb in ("INSERT INTO", "UPDATE"))
    return [[each for each in statements if not each[0].startswith(folds)] for statements in commits]


async def record(path: Path, work: Work) -> Recording:
    """Does a work once on a new ledger and notes its commits."""
    recording = Recording()
    tap = _Tap()

    @contextmanager
    def counting() -> Iterator[Sample]:
        before, events = len(tap.commits), tap.events
        yield Sample()
        recording.before, recording.counted = tap.commits[:before], tap.commits[before:]
        recording.events = tap.events - events

    async with await open_ledger(path) as ledger:
        tap.commit, ledger.store.commit = ledger.store.commit, tap  # type: ignore[method-assign]
        await work(ledger, counting)
    return recording


async def new_ledger(path: Path) -> None:
    """Makes an empty ledger for a recording to be made again in."""
    async with await open_ledger(path):
        pass


def made_again(path: Path, recording: Recording) -> Sample:
    """A recording's commits in a new file, back to back; what those that count took."""
    asyncio.run(new_ledger(path))
    connection = open_raw(path)
    for each in recording.before:
        commit(connection, each)
    with timed() as sample:
        for each in recording.counted:
            commit(connection, each)
    connection.close()
    return sample


def open_raw(path: Path) -> apsw.Connection:
    """A connection with the ledger's settings, but for foreign keys: what is written again fits together."""
    connection = connect(path, write=True)
    connection.execute("PRAGMA foreign_keys = OFF")
    return connection


def commit(connection: apsw.Connection, statements: Commit) -> None:
    """Makes one commit again."""
    connection.execute("BEGIN IMMEDIATE")
    for sql, values in statements:
        connection.executemany(sql, values)
    connection.execute("COMMIT")


class _Tap:
    """Stands where a store's `commit` is, and notes what goes through."""

    def __init__(self) -> None:
        self.commit: Callable[[Sequence[StreamBatch]], Awaitable[list[Outcome]]]
        self.commits: list[Commit] = []
        self.events = 0
        self._stored: dict[tuple[type[Row], Any], tuple[Any, ...]] = {}

    async def __call__(self, batches: Sequence[StreamBatch]) -> list[Outcome]:
        outcomes = await self.commit(batches)
        statements: dict[str, list[tuple[Any, ...]]] = defaultdict(list)
        for batch, outcome in zip(batches, outcomes, strict=True):
            assert isinstance(outcome, Committed), outcome
            self._note(statements, batch, outcome.stream_no)
        self.commits.append(list(statements.items()))
        return outcomes

    def _note(self, statements: dict[str, list[tuple[Any, ...]]], batch: StreamBatch, number: int) -> None:
        scope, head, base = tuple(batch.scope), batch.head, number << SHIFT
        if batch.stream_no is None:
            new = (number, *scope, str(batch.stream), head.seq, head.hash, head.epoch, 1, batch.closed, 0, _NO_DIGEST)
            statements[f"INSERT INTO stream_heads ({COLUMNS}) VALUES ({_marks(new)})"].append(new)
        else:
            moved = (
                "UPDATE stream_heads SET seq = ?, hash = ?, epoch = ?, closed = ?, row_digest = ? WHERE stream_no = ?"
            )
            statements[moved].append((head.seq, head.hash, head.epoch, batch.closed, _NO_DIGEST, number))
        for table, rows in (("events", batch.events), ("blobs", batch.blobs)):
            for numbered in rows:
                values = (base | numbered[0], *scope, *numbered[1:])
                statements[f"INSERT INTO {table} VALUES ({_marks(values)})"].append(values)
        for kind, row in sorted(batch.rows, key=lambda each: ROWS.index(each[0])):
            self._note_row(statements, kind, scope, row)
        self.events += len(batch.events)

    def _note_row(
        self,
        statements: dict[str, list[tuple[Any, ...]]],
        kind: type[Row],
        scope: tuple[Any, ...],
        row: tuple[Any, ...],
    ) -> None:
        table, names = kind.TABLE, columns(kind)
        key = (*scope, *(row[names.index(name)] for name in table.key))
        stored = self._stored.get((kind, key))
        self._stored[kind, key] = row
        if stored is None:
            values = (*scope, *row)
            statements[f"INSERT INTO {table.name} VALUES ({_marks(values)})"].append(values)
            return
        changed = [place for place, value in enumerate(row) if value != stored[place]]
        if changed:
            where = " AND ".join(f"{name} = ?" for name in ("tenant_id", "workspace_id", *table.key))
            listed = ", ".join(f'"{names[place]}" = ?' for place in changed)
            sql = f"UPDATE {table.name} SET {listed} WHERE {where}"
            statements[sql].append((*(row[place] for place in changed), *key))


def _marks(values: Sequence[Any]) -> str:
    return ", ".join("?" * len(values))
