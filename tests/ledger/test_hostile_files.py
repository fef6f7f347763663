"""Bad files and places: a typed error that says what, and nothing touched or half-written."""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest

from refold import seam
from refold.errors import RefoldError
from refold.events.catalog import UnknownEvent
from refold.events.identity import Stream
from refold.ledger.conformance.place import all_events, new_run, step
from refold.ledger.errors import (
    LedgerDamaged,
    LedgerMissing,
    LedgerReadOnly,
    NetworkFileSystem,
    NewerSchema,
    NotALedger,
)
from refold.ledger.ledger import Ledger, open_ledger
from refold.ledger.proof import verify_run
from refold.ledger.sqlite.connection import check_place, file_system
from refold.testing import faults
from tests.ledger.hostile_support import SCOPE, dump, live
from tests.ledger.processes import Child, apart

# Files


def made(path: Path) -> Stream:
    """A ledger with a run of five events."""
    streams = []

    async def work(ledger: Ledger) -> None:
        async with await new_run(ledger.scope(SCOPE), steps=4) as writer:
            streams.append(writer.stream)

    live(path, work)
    return streams[0]


def change(path: Path, sql: str) -> None:
    connection = apsw.Connection(str(path))
    connection.execute(sql)
    connection.close()


@pytest.mark.parametrize(
    ("sql", "what"),
    [
        ("UPDATE events SET type = 'step.imagined' WHERE seq = 3", "step.imagined"),
        ("UPDATE events SET version = 2 WHERE seq = 3", "of version 2"),
        ("UPDATE events SET version = 0 WHERE seq = 3", "of version 0"),
        ("UPDATE events SET facts = CAST('{}' AS BLOB) WHERE seq = 3", "do not fit"),
        ("UPDATE events SET facts = CAST('{\"secret\": 1}' AS BLOB) WHERE seq = 3", "do not fit"),
        ("UPDATE events SET facts = x'ff' WHERE seq = 3", "do not fit"),
    ],
)
def test_an_event_that_this_code_does_not_know_is_named_and_never_skipped(sql: str, what: str, tmp_path: Path) -> None:
    stream = made(tmp_path / "ledger.db")
    change(tmp_path / "ledger.db", sql)

    async def work(ledger: Ledger) -> None:
        scope = ledger.scope(SCOPE)
        for reading in (all_events(scope, stream), scope.writer(stream)):
            with pytest.raises(UnknownEvent) as raised:
                await reading
            assert raised.value.facts["seq"] == 3
            assert raised.value.facts["stream"] == str(stream)
            assert what in raised.value.message
        assert not (await verify_run(scope, stream.run_id)).ok

    live(tmp_path / "ledger.db", work)


def test_a_cause_of_zero_does_not_pass_for_none(tmp_path: Path) -> None:
    """In a stored row the two are one bit apart."""
    stream = made(tmp_path / "ledger.db")
    change(tmp_path / "ledger.db", "UPDATE events SET cause = 0 WHERE seq = 3")

    async def work(ledger: Ledger) -> None:
        assert not (await verify_run(ledger.scope(SCOPE), stream.run_id)).ok

    live(tmp_path / "ledger.db", work)


def test_a_missing_event_stops_a_writer_at_the_door(tmp_path: Path) -> None:
    stream = made(tmp_path / "ledger.db")
    change(tmp_path / "ledger.db", "DELETE FROM events WHERE seq = 5")

    async def work(ledger: Ledger) -> None:
        with pytest.raises(LedgerDamaged):
            await ledger.scope(SCOPE).writer(stream)

    live(tmp_path / "ledger.db", work)


def _opens(path: Path, **options: Any) -> None:
    async def nothing(ledger: Ledger) -> None:
        await new_run(ledger.scope(SCOPE))

    live(path, nothing, **options)


@pytest.mark.parametrize("create", [True, False])
@pytest.mark.parametrize(
    "content",
    [b"x", b"just a text file\n" * 1000, b"SQLite format 3\0" + b"x" * 5000, b"PK\x03\x04" + bytes(9000)],
    ids=["a byte", "a text", "a broken header", "an archive"],
)
def test_a_file_that_is_not_a_database_is_refused_and_left_alone(content: bytes, create: bool, tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    path.write_bytes(content)
    with pytest.raises((NotALedger, LedgerDamaged)):
        _opens(path, create=create)
    assert path.read_bytes() == content


@pytest.mark.parametrize("create", [True, False])
def test_the_database_of_another_program_is_refused_and_left_alone(create: bool, tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    change(path, "CREATE TABLE theirs (x)")
    before = path.read_bytes()
    with pytest.raises(NotALedger):
        _opens(path, create=create)
    assert path.read_bytes() == before


def test_a_folder_and_a_missing_folder_are_refused(tmp_path: Path) -> None:
    with pytest.raises(NotALedger):
        _opens(tmp_path)
    with pytest.raises(LedgerMissing):
        _opens(tmp_path / "ledger.db", create=False)
    for missing in (tmp_path / "no" / "ledger.db", tmp_path / "file" / "ledger.db"):
        (tmp_path / "file").touch()
        with pytest.raises(RefoldError):
            _opens(missing)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["file"]


def test_a_newer_schema_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    made(path)
    change(path, "INSERT INTO migrations VALUES (9999, 'future', 'x', 0)")
    before = dump(path)
    with pytest.raises(NewerSchema):
        _opens(path)
    assert dump(path) == before


def test_a_damaged_file_is_a_typed_error_wherever_the_damage_is(tmp_path: Path) -> None:
    whole = tmp_path / "whole.db"
    stream = made(whole)
    size = whole.stat().st_size
    refused = 0
    for offset in range(0, size, 8192):
        path = tmp_path / f"{offset}.db"
        shutil.copyfile(whole, path)
        with path.open("r+b") as file:
            file.seek(offset)
            file.write(b"\xa5" * 4096)
        try:
            live(path, lambda ledger: _reads_and_writes(ledger, stream))
        except RefoldError:
            refused += 1
    assert refused > 0


async def _reads_and_writes(ledger: Ledger, stream: Stream) -> None:
    scope = ledger.scope(SCOPE)
    await all_events(scope, stream)
    async with await scope.writer(stream) as writer:
        writer.append(step(ledger))


def test_a_file_cut_short_is_a_typed_error(tmp_path: Path) -> None:
    whole = tmp_path / "whole.db"
    stream = made(whole)
    size = whole.stat().st_size
    for kept in (size // 2, size - 8192, 20_000, 512, 99):
        path = tmp_path / f"{kept}.db"
        path.write_bytes(whole.read_bytes()[:kept])
        with pytest.raises(RefoldError):
            live(path, lambda ledger: _reads_and_writes(ledger, stream))


@pytest.fixture
def open_to_all() -> Iterator[Path]:
    """A folder that an unprivileged process can reach."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o777)
        yield Path(folder)


@pytest.mark.parametrize("what", ["file", "folder", "both"])
def test_a_read_only_ledger_is_refused_for_writing_and_left_as_it_was(what: str, open_to_all: Path) -> None:
    path = open_to_all / "ledger.db"
    stream = made(path)
    before = dump(path)
    for file in open_to_all.iterdir():
        file.chmod(stat.S_IRUSR | stat.S_IRGRP | stat.S_IROTH if what != "folder" else 0o666)
    open_to_all.chmod(0o777 if what == "file" else 0o555)
    apart(_unprivileged_writer, path, stream, what != "file")
    open_to_all.chmod(0o777)
    assert dump(path) == before


def _unprivileged_writer(path: Path, stream: Stream, closed: bool) -> None:
    with tempfile.TemporaryDirectory() as elsewhere:
        made(Path(elsewhere) / "ledger.db")  # Everything is imported before this process loses its rights.

    async def work(child: Child) -> None:
        if os.geteuid() == 0:
            os.setgid(65534)
            os.setuid(65534)
        with pytest.raises(LedgerReadOnly):
            async with await open_ledger(path) as ledger:
                await _reads_and_writes(ledger, stream)
        if closed:
            with pytest.raises(LedgerReadOnly):
                await open_ledger(path.with_name("new.db"))

    Child(work).result()


def test_a_file_system_that_became_read_only_is_said(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    stream = made(path)
    before = dump(path)

    def remounted(point: str) -> None:
        if point.startswith("vfs.write"):
            faults.read_only(point)

    async def work(ledger: Ledger) -> None:
        with seam.installed(remounted), pytest.raises(LedgerReadOnly):
            await _reads_and_writes(ledger, stream)
        assert dump(path) == before
        await _reads_and_writes(ledger, stream)

    live(path, work, vfs=faults.register())


# Network file systems

MOUNTS = """\
21 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
30 21 0:30 / /home rw - nfs4 server:/home rw,vers=4.2
31 30 8:2 / /home/local rw,noatime - xfs /dev/sdb1 rw
32 21 0:31 / /mnt/with\\040space rw master:1 - cifs //server/share rw
33 21 0:32 / /mnt/fuse rw - fuse.sshfs host: rw
34 21 0:33 / /homely rw - tmpfs tmpfs rw
a line that is not one
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/ledger.db", "ext4"),
        ("/home/me/ledger.db", "nfs4"),
        ("/home/local/x/ledger.db", "xfs"),
        ("/homely/ledger.db", "tmpfs"),
        ("/homeless/ledger.db", "ext4"),
        ("/mnt/with space/ledger.db", "cifs"),
        ("/mnt/fuse/ledger.db", "fuse.sshfs"),
    ],
)
def test_the_file_system_is_the_one_of_the_innermost_mount(path: str, kind: str) -> None:
    assert file_system(Path(path), MOUNTS) == kind
    if kind in ("nfs4", "cifs", "fuse.sshfs"):
        with pytest.raises(NetworkFileSystem) as raised:
            check_place(Path(path), MOUNTS)
        assert raised.value.facts["file_system"] == kind
    else:
        check_place(Path(path), MOUNTS)
