"""Bringing a ledger up to the code that opens it: missing migrations, and projections that other code folded.

Migrations are applied one by one, each in a transaction of its own. Projections are folded again into tables beside the
old ones, in bounded memory and in short turns, while others go on reading and writing with the old ones; what was
written meanwhile is caught up with, and in one short transaction the last of it is folded, the tables change names, and
the new fingerprint is stored. From then on processes with the old code are refused to write. Killed before that
transaction, nothing has changed but some tables that the next migration drops.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import ClassVar, Literal, NamedTuple

import apsw

from refold.clock import Clock, SystemClock
from refold.errors import RefoldError
from refold.events.catalog import CATALOG, Catalog
from refold.events.identity import Stream
from refold.ledger.sqlite import erasing, heads, schema
from refold.ledger.sqlite.connection import check_place, connect, must_exist, query, transaction, translated
from refold.ledger.sqlite.lockfile import MIGRATOR, LockFile, open_lock_file
from refold.ledger.sqlite.refolding import PLACES, Names, Progress, Refolding, make_tables, scope_of, side_tables
from refold.projections import ROWS
from refold.projections.fingerprint import fingerprint

Fold = Literal["where the code changed", "always"]
_OLD = "__old"
_FEW = 1000
_ROUNDS = 50
_PATIENCE = 500


class MigrationRunning(RefoldError):
    """Another process is migrating this ledger."""

    code: ClassVar[str] = "migration_running"
    exit_status: ClassVar[int] = 6
    remedy = "Wait for it; if it dies, its lock goes with it and the ledger can be migrated again."


class Migrated(NamedTuple):
    """What a migration did: the names of the migrations it applied, and how many events it folded again."""

    applied: tuple[str, ...]
    refolded: int


async def migrate(
    path: str | Path,
    *,
    progress: Progress | None = None,
    clock: Clock | None = None,
    vfs: str | None = None,
    catalog: Catalog = CATALOG,
) -> Migrated:
    """Makes the ledger at `path` fit this code; others may read it, and write with the old code, until it does.

    `progress` is told how many events were folded so far, from another thread. Raises LedgerMissing, NotALedger,
    NewerSchema, MigrationChanged (and then not a byte was touched), MigrationRunning, BrokenFold, UnknownEvent,
    LedgerDamaged.
    """
    return await _run(path, "where the code changed", progress, clock, vfs, catalog)


async def fold_again(
    path: str | Path,
    *,
    progress: Progress | None = None,
    clock: Clock | None = None,
    vfs: str | None = None,
    catalog: Catalog = CATALOG,
) -> Migrated:
    """The same, and folds the projections again whatever they say: what a rebuild found to differ is put right."""
    return await _run(path, "always", progress, clock, vfs, catalog)


async def _run(
    path: str | Path, fold: Fold, progress: Progress | None, clock: Clock | None, vfs: str | None, catalog: Catalog
) -> Migrated:
    place = Path(path).resolve()
    check_place(place)
    must_exist(place)
    with closing(connect(place, vfs, write=False)) as probe, translated(place):
        schema.check(probe, place)
    job = _Migration(place, clock or SystemClock(), vfs, catalog, progress)
    return await asyncio.to_thread(job.run, fold)


class _Migration:
    def __init__(self, path: Path, clock: Clock, vfs: str | None, catalog: Catalog, progress: Progress | None) -> None:
        self.path, self.clock, self.vfs, self.catalog, self.progress = path, clock, vfs, catalog, progress
        self.lock: LockFile
        self.connection: apsw.Connection

    def run(self, fold: Fold) -> Migrated:
        self.lock = open_lock_file(str(self.path))
        try:
            if not self.lock.try_live(MIGRATOR):
                raise MigrationRunning(f"Another process is migrating {self.path.name}.", ledger=str(self.path))
            try:
                with closing(connect(self.path, self.vfs, write=True)) as self.connection, translated(self.path):
                    return self._run(fold)
            finally:
                self.lock.die(MIGRATOR)
        finally:
            self.lock.close()

    def _run(self, fold: Fold) -> Migrated:
        applied = []
        while (step := self._apply_next()) is not None:
            applied.append(step)
        # Renaming tables must not make SQLite rewrite the references of others to them: the names come back.
        self.connection.execute("PRAGMA foreign_keys = OFF")
        self.connection.execute("PRAGMA legacy_alter_table = ON")
        self._drop_rests()
        folded = 0
        if fold == "always" or schema.projections_of(self.connection) != fingerprint():
            folded = self._refold()
        return Migrated(tuple(applied), folded)

    def _apply_next(self) -> str | None:
        with self._turn():
            step = schema.apply_next(self.connection, self.path, self.clock)
        return None if step is None else f"{step.number:04}_{step.name}"

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """A write transaction in this process's turn; within one, nothing."""
        if not self.connection.getautocommit():
            yield
            return
        with self.lock.turn(), transaction(self.connection):
            yield

    def _refold(self) -> int:
        # Numbered, because indexes keep their names when a table changes its own: they must be new each time.
        number = query(self.connection, "PRAGMA schema_version")[0][0]
        names = {row: f"{row.TABLE.name}__{number}" for row in ROWS}
        with self._turn():
            make_tables(self.connection, names)
        refolding = Refolding(self.connection, names, self.catalog, self._turn, self.progress)
        with closing(connect(self.path, self.vfs, write=False)) as read:
            for _ in range(_ROUNDS):
                if refolding.catch_up(read) < _FEW:
                    break
        with self._turn():
            refolding.catch_up(self.connection)
            refolding.finish()
            self._swap(names, refolding)
        self._drop_rests()
        with self.lock.turn():
            erasing.finish(self.connection, self.path, self.lock, _PATIENCE)
        return refolding.folded

    def _swap(self, built: Names, refolding: Refolding) -> None:
        there = query(self.connection, "SELECT name FROM sqlite_schema WHERE type = 'table'")
        for row, new in built.items():
            name = row.TABLE.name
            if (name,) in there:
                self.connection.execute(f"ALTER TABLE {name} RENAME TO {name}{_OLD}")
            self.connection.execute(f"ALTER TABLE {new} RENAME TO {name}")
        schema.set_estimates(self.connection, built)
        self.connection.execute(f"DROP TABLE {PLACES}")
        # Snapshots are of the old code's folds, and nobody would trust them.
        self.connection.execute("DELETE FROM snapshots")
        for head in refolding.redone:
            # Rows of it were written before it was erased, and their bytes may be in free pages again.
            stream = Stream.parse(head.stream)
            found = heads.find(self.connection, scope_of(head), Stream.run(stream.run_id))
            if found is not None:
                heads.replace(self.connection, found, found._replace(erased=erasing.GONE))
        self.connection.execute("UPDATE ledger SET projections = ?", (fingerprint(),))

    def _drop_rests(self) -> None:
        """Drops what this migration, or one that was killed, leaves behind; table by table, so that turns are short."""
        # Overwriting whole tables would double what is written, and their rows are in the new ones anyway.
        self.connection.execute("PRAGMA secure_delete = OFF")
        for name in side_tables(self.connection):
            with self._turn():
                self.connection.execute(f"DROP TABLE {name}")
        self.connection.execute("PRAGMA secure_delete = ON")
