"""Migrating a ledger whose projections other code folded, or whose schema is not this code's."""

from __future__ import annotations

import asyncio
import hashlib
import shutil
from functools import partial
from pathlib import Path
from typing import Any

import apsw
import pytest

from refold.events.catalog import governance, run
from refold.events.identity import Stream
from refold.ledger.drafts import Draft
from refold.ledger.errors import (
    LedgerDamaged,
    LedgerMissing,
    MigrationChanged,
    NewerSchema,
    NotALedger,
    SchemaOutdated,
)
from refold.ledger.ledger import Ledger, open_ledger
from refold.ledger.maintenance.erasure import erase_run
from refold.ledger.maintenance.migration import Migrated, MigrationRunning, migrate
from refold.ledger.proof import verify_all
from refold.ledger.sqlite.lockfile import MIGRATOR, open_lock_file
from refold.ledger.writer import StreamWriter
from refold.projections import ROWS
from refold.projections.fingerprint import fingerprint
from refold.testing import crash, faults
from tests.ledger.maintenance_support import (
    Markers,
    annex_facts,
    left_in_files,
    rebuilt_rows,
    rich_run,
    stored_rows,
)

OLD = "0" * 32


def change(path: Path, *statements: str) -> None:
    connection = apsw.Connection(str(path))
    for statement in statements:
        connection.execute(statement)
    connection.close()


def make_old(path: Path) -> None:
    """As if other code had folded it: another fingerprint, other columns, a table less, wrong rows."""
    change(
        path,
        f"UPDATE ledger SET projections = '{OLD}'",
        "PRAGMA foreign_keys = OFF",
        "DROP TABLE audit",
        "ALTER TABLE run_steps ADD COLUMN forgotten TEXT",
        "UPDATE runs SET workflow = 'wrong'",
    )


def schema_of(path: Path) -> list[Any]:
    """Tables and indexes as they are declared, without what only a name says."""
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    found = connection.execute(
        "SELECT tbl_name, type, count(*) FROM sqlite_schema GROUP BY 1, 2 ORDER BY 1, 2"
    ).fetchall()
    keys = [
        (row.TABLE.name, connection.execute(f"PRAGMA foreign_key_list({row.TABLE.name})").fetchall()) for row in ROWS
    ]
    connection.close()
    return [found, keys]


def a_ledger(path: Path, *, big: bool = False) -> list[str]:
    async def write() -> list[str]:
        made = []
        async with await open_ledger(path) as ledger:
            for name in ("a/b", "b/b"):
                made.append(await rich_run(ledger.scope(name), Markers(1), big=big))
                await annex_facts(ledger.scope(name), made[-1], Markers(2))
        return made

    return asyncio.run(write())


def test_projections_of_other_code_are_folded_again_and_everything_else_stays(tmp_path: Path) -> None:
    path = tmp_path / "l.db"
    a_ledger(path)
    rows, schema = stored_rows(path), schema_of(path)
    for _ in range(2):  # The second time all indexes have the names that the first has given them.
        make_old(path)
        told: list[int] = []
        done = asyncio.run(migrate(path, progress=told.append))
        assert done.applied == ()
        assert done.refolded == told[-1] == 32
        assert stored_rows(path) == rebuilt_rows(path) == rows
        assert schema_of(path) == schema
    assert asyncio.run(migrate(path)) == Migrated((), 0)

    async def use() -> None:
        async with await open_ledger(path) as ledger:
            assert (await verify_all(ledger)).first_bad is None
            await rich_run(ledger.scope("a/b"), Markers(3), big=False)

    asyncio.run(use())
    assert rebuilt_rows(path) == stored_rows(path)


def test_until_it_is_migrated_an_old_ledger_can_be_read_and_not_written(tmp_path: Path) -> None:
    path = tmp_path / "l.db"
    run_id, _ = a_ledger(path)
    make_old(path)

    async def use() -> None:
        async with await open_ledger(path) as ledger:
            scope = ledger.scope("a/b")
            assert len([event async for event in scope.read(Stream.run(run_id))]) > 10
            with pytest.raises(SchemaOutdated):
                await scope.writer(Stream.annex(run_id))

    asyncio.run(use())


class _OldCode:
    """Writes to the ledger as a process with the old code would, each time the migration tells of its progress."""

    def __init__(self, path: Path, *deeds: Any) -> None:
        self.path = path
        self.deeds = list(deeds)

    def __call__(self, folded: int) -> None:
        if self.deeds:
            change(self.path, f"UPDATE ledger SET projections = '{fingerprint()}'")
            asyncio.run(self._do(self.deeds.pop(0)))
            change(self.path, f"UPDATE ledger SET projections = '{OLD}'")

    async def _do(self, deed: Any) -> None:
        async with await open_ledger(self.path) as ledger:
            await deed(ledger)


def test_what_is_written_while_the_projections_are_folded_is_in_the_new_ones(tmp_path: Path) -> None:
    path = tmp_path / "l.db"
    run_id, _ = a_ledger(path)
    change(path, f"UPDATE ledger SET projections = '{OLD}'")

    async def more(ledger: Ledger) -> None:
        async with await ledger.scope("a/b").writer(Stream.annex(run_id)) as annex:
            annex.append(Draft(governance.FeedbackAdded(ledger.ids.new("fb"), "person"), input="more"))
        await annex_facts(ledger.scope("a/b"), await rich_run(ledger.scope("a/b"), Markers(4), big=False), Markers(5))

    done = asyncio.run(migrate(path, progress=_OldCode(path, more)))
    assert done.refolded == 49
    assert len(stored_rows(path)["runs"]) == 3
    assert rebuilt_rows(path) == stored_rows(path)


@pytest.mark.parametrize("settled", ["before", "afterwards"])
def test_what_is_erased_while_the_projections_are_folded_is_in_no_file_afterwards(tmp_path: Path, settled: str) -> None:
    path, mark = tmp_path / "l.db", Markers(6)
    pending: list[str | None] = []

    async def write() -> str:
        async with await open_ledger(path) as ledger:
            run_id = await rich_run(ledger.scope("a/b"), mark)
            if settled == "before":
                await annex_facts(ledger.scope("a/b"), run_id, mark)
            return run_id

    run_id = asyncio.run(write())
    change(path, f"UPDATE ledger SET projections = '{OLD}'")

    async def erase(ledger: Ledger) -> None:
        pending.append((await erase_run(ledger.scope("a/b"), run_id, "basis", "admin")).pending)
        if settled == "afterwards":
            await annex_facts(ledger.scope("a/b"), run_id, Markers(7))

    asyncio.run(migrate(path, progress=_OldCode(path, erase)))
    assert pending == ["a migration is running, and finishes it"]
    assert rebuilt_rows(path) == stored_rows(path)
    assert left_in_files(path, mark) == {}


def migrate_a_copy(template: Path, directory: Path, ack: crash.Ack) -> None:
    shutil.copytree(template, directory, dirs_exist_ok=True)
    asyncio.run(migrate(directory / "l.db", vfs=faults.register()))
    ack("migrated")


def the_old_tables_or_the_new(template: Path, directory: Path, acks: list[str]) -> None:
    path = directory / "l.db"
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    stored = connection.execute("SELECT projections FROM ledger").fetchall()[0][0]
    connection.close()
    if stored == OLD:
        assert not acks
        assert stored_rows(path) == stored_rows(template / "l.db")
    else:
        assert stored_rows(path) == rebuilt_rows(path)
    asyncio.run(migrate(path))
    assert stored_rows(path) == rebuilt_rows(path)
    assert schema_of(path) == schema_of(template / "l.db")


# Nothing changes for others between two syncs of the log; the long form strikes at each write as well.
@pytest.mark.parametrize("at", ["vfs.sync:*", pytest.param("*", marks=pytest.mark.soak)])
def test_a_migration_that_is_killed_leaves_the_old_tables_whole_and_the_next_one_starts_over(
    tmp_path: Path, at: str
) -> None:
    template = tmp_path / "template"
    template.mkdir()

    async def write() -> None:
        async with await open_ledger(template / "l.db") as ledger:
            made = await ledger.scope().create(Draft(run.RunCreated("w", "d", "root")))
            assert isinstance(made, StreamWriter)
            made.append(Draft(run.RunStarted()))
            await made.close()

    asyncio.run(write())
    change(template / "l.db", f"UPDATE ledger SET projections = '{OLD}'", "UPDATE runs SET workflow = 'wrong'")
    crash.kill_at_each(
        partial(migrate_a_copy, template),
        partial(the_old_tables_or_the_new, template),
        under=tmp_path / "runs",
        at=at,
        require={"vfs.sync:wal"},
    )


def test_the_rests_of_a_killed_migration_do_not_keep_what_is_erased_afterwards(tmp_path: Path) -> None:
    path, mark = tmp_path / "l.db", Markers(8)

    class Killed(BaseException):
        pass

    def die(folded: int) -> None:
        raise Killed

    async def write() -> str:
        async with await open_ledger(path) as ledger:
            return await rich_run(ledger.scope("a/b"), mark)

    async def erase(run_id: str) -> None:
        async with await open_ledger(path) as ledger:
            assert (await erase_run(ledger.scope("a/b"), run_id, "basis", "admin")).pending is None

    run_id = asyncio.run(write())
    change(path, f"UPDATE ledger SET projections = '{OLD}'")
    with pytest.raises(Killed):
        asyncio.run(migrate(path, progress=die))
    change(path, f"UPDATE ledger SET projections = '{fingerprint()}'")
    asyncio.run(erase(run_id))
    assert left_in_files(path, mark) == {}


def test_two_migrations_at_once_are_one_and_a_refusal(tmp_path: Path) -> None:
    path = tmp_path / "l.db"
    a_ledger(path)
    make_old(path)
    lock = open_lock_file(str(path))
    assert lock.try_live(MIGRATOR)
    with pytest.raises(MigrationRunning):
        asyncio.run(migrate(path))
    lock.die(MIGRATOR)
    lock.close()
    asyncio.run(migrate(path))


def test_a_broken_stream_stops_the_migration_and_the_old_tables_stay(tmp_path: Path) -> None:
    path = tmp_path / "l.db"
    a_ledger(path)
    change(
        path, f"UPDATE ledger SET projections = '{OLD}'", "DELETE FROM events WHERE id = (SELECT max(id) FROM events)"
    )
    before = stored_rows(path)
    with pytest.raises(LedgerDamaged):
        asyncio.run(migrate(path))
    assert stored_rows(path) == before


@pytest.mark.parametrize(
    ("statement", "error"),
    [
        ("INSERT INTO migrations VALUES (999, 'future', 'x', 0)", NewerSchema),
        ("UPDATE migrations SET checksum = 'x' WHERE number = 1", MigrationChanged),
        ("PRAGMA application_id = 5", NotALedger),
    ],
    ids=["newer schema", "changed migration", "other program"],
)
def test_a_ledger_that_this_code_does_not_fit_is_refused_and_not_touched(
    tmp_path: Path, statement: str, error: type[Exception]
) -> None:
    path = tmp_path / "l.db"
    a_ledger(path)
    make_old(path)
    change(path, statement)
    before = hashlib.sha256(path.read_bytes()).digest()
    with pytest.raises(error):
        asyncio.run(migrate(path))
    assert hashlib.sha256(path.read_bytes()).digest() == before


def test_what_is_no_database_or_not_there_is_refused_and_not_made(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no database at all, and long enough to have a header " * 4)
    with pytest.raises(NotALedger):
        asyncio.run(migrate(tmp_path / "text"))
    with pytest.raises(LedgerMissing):
        asyncio.run(migrate(tmp_path / "nothing"))
    assert [each.name for each in tmp_path.iterdir()] == ["text"]
