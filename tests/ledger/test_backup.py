"""Backups of a ledger that is being written to, and ledgers restored from them."""

from __future__ import annotations

import asyncio
import hashlib
import json
import shutil
from functools import partial
from pathlib import Path

import apsw
import pytest

from refold import seam
from refold.events.catalog import run
from refold.ledger.drafts import Draft
from refold.ledger.errors import BeyondHead, NewerSchema
from refold.ledger.ledger import open_ledger
from refold.ledger.maintenance.backup import backup
from refold.ledger.maintenance.erasure import erase_run
from refold.ledger.maintenance.files import TargetExists
from refold.ledger.maintenance.restore import BackupDamaged, NotABackup, restore
from refold.ledger.proof import verify_all
from refold.ledger.writer import StreamWriter
from refold.testing import crash
from refold.testing.damage import file_flips
from tests.ledger.maintenance_support import Markers, annex_facts, rebuilt_rows, rich_run, stored_rows


def a_ledger(path: Path, *scopes: str) -> list[str]:
    async def write() -> list[str]:
        made = []
        async with await open_ledger(path) as ledger:
            for place, name in enumerate(scopes or ("a/b",)):
                made.append(await rich_run(ledger.scope(name), Markers(place)))
                await annex_facts(ledger.scope(name), made[-1], Markers(place))
        return made

    return asyncio.run(write())


def back_up(path: Path, target: Path) -> None:
    async def make() -> None:
        async with await open_ledger(path, create=False) as ledger:
            await backup(ledger, target)

    asyncio.run(make())


def contents(folder: Path) -> dict[str, str]:
    """Every file of a folder and its digest."""
    return {
        str(each.relative_to(folder)): hashlib.sha256(each.read_bytes()).hexdigest()
        for each in sorted(folder.rglob("*"))
        if each.is_file()
    }


async def assert_sound(path: Path, streams: int) -> None:
    async with await open_ledger(path, create=False) as ledger:
        proof = await verify_all(ledger)
        assert (proof.first_bad, proof.streams) == (None, streams)


def test_a_restored_ledger_holds_what_the_ledger_held_and_verifies(tmp_path: Path) -> None:
    path, copy = tmp_path / "l.db", tmp_path / "elsewhere" / "again.db"
    a_ledger(path, "a/b", "a/c", "b/b")
    back_up(path, tmp_path / "backup")
    restored = restore(tmp_path / "backup", copy)
    assert (restored.streams, restored.artifacts, restored.unsound) == (6, 3, ())
    assert stored_rows(copy) == stored_rows(path)
    assert rebuilt_rows(copy) == stored_rows(path)
    assert contents(tmp_path / "elsewhere" / "again.db-artifacts") == contents(tmp_path / "l.db-artifacts")
    asyncio.run(assert_sound(copy, 6))


def test_a_backup_of_a_ledger_that_is_written_to_is_one_moment_of_it(tmp_path: Path) -> None:
    path = tmp_path / "l.db"
    a_ledger(path)

    async def write_and_back_up() -> list[int]:
        seen: list[int] = []
        async with await open_ledger(path) as ledger:
            scope = ledger.scope()
            ends = asyncio.Event()

            async def keep_writing() -> None:
                while not ends.is_set():
                    made = await scope.create(Draft(run.RunCreated("w", "d", "root")))
                    assert isinstance(made, StreamWriter)
                    made.append(Draft(run.RunStarted()))
                    await made.close()

            writing = asyncio.create_task(keep_writing())
            for number in range(4):
                made = await backup(ledger, tmp_path / f"backup-{number}", lambda done, whole: None)
                seen.append(made.manifest.streams)
            ends.set()
            await writing
        return seen

    seen = asyncio.run(write_and_back_up())
    assert seen == sorted(seen)
    assert len(set(seen)) > 1, "nobody wrote while the backups were made"
    for number, streams in enumerate(seen):
        copy = tmp_path / f"copy-{number}.db"
        restore(tmp_path / f"backup-{number}", copy)
        assert rebuilt_rows(copy) == stored_rows(copy)
        asyncio.run(assert_sound(copy, streams))


def test_a_run_that_is_erased_while_its_files_are_copied_is_not_in_the_backup(tmp_path: Path) -> None:
    path = tmp_path / "l.db"
    (run_id,) = a_ledger(path, "a/b")

    async def erase() -> None:
        async with await open_ledger(path) as other:
            await erase_run(other.scope("a/b"), run_id, "basis", "admin")

    erased: list[str] = []

    def erase_once(point: str) -> None:
        if point == "backup.artifact" and not erased:
            erased.append(point)
            asyncio.run(erase())

    with seam.installed(erase_once):
        back_up(path, tmp_path / "backup")
    assert erased
    restored = restore(tmp_path / "backup", tmp_path / "again.db")
    assert restored.artifacts == 0
    assert stored_rows(tmp_path / "again.db") == stored_rows(path)


def test_an_artifact_that_the_ledger_itself_has_lost_is_named_and_the_rest_is_saved(tmp_path: Path) -> None:
    path = tmp_path / "l.db"
    a_ledger(path, "a/b", "a/c")
    lost, changed = sorted((tmp_path / "l.db-artifacts").rglob("art_*"))
    lost.unlink()
    changed.write_bytes(b"something else")
    back_up(path, tmp_path / "backup")
    restored = restore(tmp_path / "backup", tmp_path / "again.db")
    assert len(restored.unsound) == 2
    assert restored.artifacts == 1


def test_nothing_that_exists_is_overwritten_by_a_backup_or_a_restore(tmp_path: Path) -> None:
    path = tmp_path / "l.db"
    a_ledger(path)
    back_up(path, tmp_path / "backup")
    before = contents(tmp_path / "backup")
    with pytest.raises(TargetExists):
        back_up(path, tmp_path / "backup")
    for name in ("x.db", "x.db-wal", "x.db-artifacts"):
        (tmp_path / name).write_text("mine")
        with pytest.raises(TargetExists):
            restore(tmp_path / "backup", tmp_path / "x.db")
        assert (tmp_path / name).read_text() == "mine"
        (tmp_path / name).unlink()
    assert contents(tmp_path / "backup") == before


def test_a_backup_with_one_bit_changed_or_a_file_missing_is_refused_and_leaves_nothing_behind(tmp_path: Path) -> None:
    path, folder, place = tmp_path / "l.db", tmp_path / "backup", tmp_path / "place"
    a_ledger(path)
    back_up(path, folder)
    place.mkdir()
    files = [folder / name for name in contents(folder) if name != "manifest.json"]
    assert len(files) == 2
    for flip in file_flips(files, 20, seed=3):
        with flip.applied(), pytest.raises(BackupDamaged):
            restore(folder, place / "again.db")
        assert list(place.iterdir()) == []
    for file in files:
        shutil.move(file, tmp_path / "aside")
        with pytest.raises(BackupDamaged):
            restore(folder, place / "again.db")
        shutil.move(tmp_path / "aside", file)
        assert list(place.iterdir()) == []


RUN = "run_01ARZ3NDEKTSV4RRFFQ69G5FAV"


@pytest.mark.parametrize(
    "key",
    [
        "../../evil",
        "/evil",
        "evil",
        f"a/b/{RUN}/../../../../evil",
        f"a/b/{RUN}/evil\0",
        f"../b/{RUN}/art_1",
        "a/b/c/evil",
    ],
)
def test_no_manifest_puts_a_file_where_no_artifact_belongs(key: str, tmp_path: Path) -> None:
    path, folder, place = tmp_path / "l.db", tmp_path / "backup", tmp_path / "in" / "place"
    a_ledger(path)
    back_up(path, folder)
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["artifacts"][key] = next(iter(manifest["artifacts"].values()))
    (folder / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(NotABackup):
        restore(folder, place / "again.db")
    assert not place.exists()


def test_a_backup_reads_no_file_that_is_no_artifact_s(tmp_path: Path) -> None:
    path, folder = tmp_path / "l.db", tmp_path / "backup"
    a_ledger(path)
    outside = tmp_path / "private" / "key"
    outside.parent.mkdir()
    outside.write_text("secret")
    with apsw.Connection(str(path)) as connection:
        connection.execute("UPDATE run_artifacts SET storage_key = '../private/key' WHERE store = 'file'")
    back_up(path, folder)
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["unsound"] == ["../private/key"]
    assert set(contents(folder)) == {"ledger.db", "manifest.json"}


def test_what_is_no_backup_or_a_newer_one_is_refused(tmp_path: Path) -> None:
    path, folder = tmp_path / "l.db", tmp_path / "backup"
    with pytest.raises(NotABackup):
        restore(tmp_path / "nowhere", tmp_path / "again.db")
    a_ledger(path)
    connection = apsw.Connection(str(path))
    connection.execute("INSERT INTO migrations VALUES (999, 'future', 'x', 0)")
    connection.execute("INSERT INTO migrations VALUES (1000, 'future', 'x', 0)")
    connection.close()
    with pytest.raises(NewerSchema):
        back_up(path, folder)
    connection = apsw.Connection(str(path))
    connection.execute("DELETE FROM migrations WHERE number > 900")
    connection.close()
    back_up(path, folder)
    manifest = json.loads((folder / "manifest.json").read_text())
    (folder / "manifest.json").write_text(json.dumps(manifest | {"format": 2}))
    with pytest.raises(NotABackup):
        restore(folder, tmp_path / "again.db")
    (folder / "manifest.json").write_text("{")
    with pytest.raises(NotABackup):
        restore(folder, tmp_path / "again.db")


def test_a_writer_of_the_original_does_not_own_streams_of_the_restored_ledger(tmp_path: Path) -> None:
    path, copy = tmp_path / "l.db", tmp_path / "again.db"

    async def use() -> None:
        async with await open_ledger(path) as ledger:
            made = await ledger.scope().create(Draft(run.RunCreated("w", "d", "root")))
            assert isinstance(made, StreamWriter)
            await backup(ledger, tmp_path / "backup")
            restored = restore(tmp_path / "backup", copy)
            assert restored.ledger_id != restored.original_id
            async with await open_ledger(copy) as again:
                async with await again.scope().writer(made.stream) as writer:
                    writer.append(Draft(run.RunStarted()))
                assert (await verify_all(again)).first_bad is None
            made.append(Draft(run.RunStarted()))
            await made.close()

    asyncio.run(use())


def test_case_32_a_subscriber_after_a_restore_gets_the_rest_or_a_refusal_and_never_silence(tmp_path: Path) -> None:
    path, copy = tmp_path / "l.db", tmp_path / "again.db"

    async def use() -> None:
        async with await open_ledger(path) as ledger:
            made = await ledger.scope().create(Draft(run.RunCreated("w", "d", "root")))
            assert isinstance(made, StreamWriter)
            made.append(Draft(run.RunStarted()))
            await made.barrier()
            await backup(ledger, tmp_path / "backup")
            made.append(Draft(run.RunPaused(reason="waiting")))
            await made.close()
        restore(tmp_path / "backup", copy)
        async with await open_ledger(copy) as again:
            scope = again.scope()
            with pytest.raises(BeyondHead):
                async for _ in scope.follow(made.stream, after=3):
                    pass
            async with await scope.writer(made.stream) as writer:
                writer.append(Draft(run.RunSucceeded()))
            assert [event.seq async for event in scope.follow(made.stream, after=1)] == [2, 3]

    asyncio.run(use())


def back_up_a_copy(template: Path, directory: Path, ack: crash.Ack) -> None:
    shutil.copytree(template, directory, dirs_exist_ok=True)
    back_up(directory / "l.db", directory / "backup")
    ack("made")


def a_whole_backup_or_none(streams: int, directory: Path, acks: list[str]) -> None:
    if (directory / "backup").exists():
        restore(directory / "backup", directory / "again.db")
        asyncio.run(assert_sound(directory / "again.db", streams))
    else:
        assert not acks
        back_up(directory / "l.db", directory / "backup")


def test_a_backup_that_is_killed_leaves_none_under_its_name(tmp_path: Path) -> None:
    template = tmp_path / "template"
    template.mkdir()
    a_ledger(template / "l.db", "a/b", "a/c")
    crash.kill_at_each(
        partial(back_up_a_copy, template),
        partial(a_whole_backup_or_none, 4),
        under=tmp_path / "runs",
        require={"backup.database", "backup.artifact", "backup.manifest", "backup.rename"},
    )


def restore_a_copy(folder: Path, directory: Path, ack: crash.Ack) -> None:
    restore(folder, directory / "again.db")
    ack("made")


def a_whole_ledger_or_none(folder: Path, streams: int, directory: Path, acks: list[str]) -> None:
    place = directory / "again.db"
    if not place.exists():
        assert not acks
        rest = place.with_name("again.db-artifacts")
        if rest.exists():
            with pytest.raises(TargetExists):
                restore(folder, place)
            shutil.rmtree(rest)
        restore(folder, place)
    asyncio.run(assert_sound(place, streams))


def test_a_restore_that_is_killed_leaves_no_ledger_that_is_not_whole(tmp_path: Path) -> None:
    a_ledger(tmp_path / "l.db", "a/b", "a/c")
    back_up(tmp_path / "l.db", tmp_path / "backup")
    crash.kill_at_each(
        partial(restore_a_copy, tmp_path / "backup"),
        partial(a_whole_ledger_or_none, tmp_path / "backup", 4),
        under=tmp_path / "runs",
        require={"restore.copy", "restore.rename_artifacts", "restore.rename_database"},
    )
