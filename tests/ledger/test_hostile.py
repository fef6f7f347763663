"""Bad input of every kind: a typed error that says what, or a correct result; and nothing half-written."""

from __future__ import annotations

import asyncio
import os
import shutil
import stat
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest

from refold import seam
from refold.errors import RefoldError
from refold.events.catalog import UnknownEvent
from refold.events.catalog.governance import FeedbackAdded
from refold.events.catalog.inference import CostRecorded, Usage
from refold.events.catalog.run import RunCanceled, RunPaused, RunStarted
from refold.events.catalog.steps import StepCompleted
from refold.events.identity import BadName, Stream
from refold.events.values import NotRecordable
from refold.ledger.artifacts import store_artifact
from refold.ledger.conformance.place import all_events, content_of, creation, new_run, step, verified
from refold.ledger.drafts import Draft
from refold.ledger.errors import (
    BeyondHead,
    LedgerDamaged,
    LedgerMissing,
    LedgerReadOnly,
    NetworkFileSystem,
    NewerSchema,
    NotALedger,
    RunNotFound,
)
from refold.ledger.ledger import Ledger, ScopedLedger, open_ledger
from refold.ledger.proof import verify_run
from refold.ledger.sqlite.connection import check_place, file_system
from refold.ledger.writer import StreamWriter
from refold.projections import BrokenFold
from refold.projections.rows import AuditRow, RunRow
from refold.projections.runs import InvalidTransition
from refold.testing import faults
from tests.ledger.processes import Child, apart

SCOPE = "acme/main"


def live(path: Path, work: Callable[[Ledger], Awaitable[None]], **options: Any) -> None:
    async def run() -> None:
        async with await open_ledger(path, **options) as ledger:
            await work(ledger)

    asyncio.run(run())


def dump(path: Path) -> list[str]:
    """Everything that is in the ledger's tables."""
    connection = apsw.Connection(str(path))
    tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
    lines = [f"{name}: {row!r}" for name in tables for row in connection.execute(f"SELECT * FROM {name}")]
    connection.close()
    return lines


def nested(levels: int, inner: Any = None) -> Any:
    for _ in range(levels):
        inner = [inner]
    return inner


def completed(scope: ScopedLedger, **facts: Any) -> StepCompleted:
    return StepCompleted(scope.ledger.ids.new("st"), facts.pop("name", "score"), **facts)


# Values and facts


@pytest.mark.parametrize(
    ("content", "path"),
    [
        ({"o": {"a": [1, object()]}}, "$.o.a[1]"),
        ({"o": nested(10_000)}, "$.o[0][0]"),
        ({"o": [lambda: None]}, "$.o[0]"),
    ],
    ids=["an object", "nested ten thousand deep", "a function"],
)
def test_a_value_that_cannot_be_recorded_is_named_by_its_path(
    content: dict[str, Any], path: str, tmp_path: Path
) -> None:
    async def work(ledger: Ledger) -> None:
        writer = await new_run(ledger.scope(SCOPE))
        before = dump(ledger.path)
        with pytest.raises(NotRecordable) as raised:
            writer.append(Draft(completed(ledger.scope(SCOPE)), content=content))
        assert str(raised.value.facts["path"]).startswith(path)
        with pytest.raises(NotRecordable):
            await writer.part(content["o"])
        await writer.barrier()
        assert dump(ledger.path) == before
        await goes_on(ledger.scope(SCOPE), writer, 2)

    live(tmp_path / "ledger.db", work)


async def goes_on(scope: ScopedLedger, writer: StreamWriter, count: int) -> None:
    """The writer is as it was: it takes an event, and the stream has `count` then."""
    writer.append(step(scope.ledger, "on"))
    await writer.close()
    assert len(await verified(scope, writer.stream)) == count


@pytest.mark.parametrize(
    "bad",
    [
        {"step_id": 5},
        {"type": "nonsense"},
        {"duration_us": 1.5},
        {"duration_us": float("nan")},
        {"duration_us": "1"},
        {"duration_us": True},
        {"skipped": None},
        {"name": "\ud800"},
        {"name": b"x"},
        {"secrets": [1]},
    ],
    ids=repr,
)
def test_facts_that_do_not_fit_their_type_never_reach_the_ledger(bad: dict[str, Any], tmp_path: Path) -> None:
    """Else the stream could be written and never be read again."""

    async def work(ledger: Ledger) -> None:
        scope = ledger.scope(SCOPE)
        writer = await new_run(scope)
        good = {"step_id": "st_1", "name": "score"}
        with pytest.raises(NotRecordable):
            writer.append(Draft(StepCompleted(**{**good, **bad})))
        await goes_on(scope, writer, 2)

    live(tmp_path / "ledger.db", work)


@pytest.mark.parametrize(
    "bad",
    [
        {"actor": "\ud800"},
        {"site": "\udfff"},
        {"occurred_at": 2**63},
        {"occurred_at": -(2**63)},
        {"occurred_at": 1.5},
        {"cause": 0},
        {"cause": -1},
        {"cause": 2**64},
    ],
    ids=repr,
)
def test_an_envelope_that_cannot_be_hashed_as_it_is_never_reaches_the_ledger(
    bad: dict[str, Any], tmp_path: Path
) -> None:
    async def work(ledger: Ledger) -> None:
        scope = ledger.scope(SCOPE)
        writer = await new_run(scope)
        with pytest.raises(NotRecordable):
            writer.append(Draft(completed(scope), **bad))
        await goes_on(scope, writer, 2)

    live(tmp_path / "ledger.db", work)


def test_a_number_too_large_for_the_tables_loses_its_batch_and_no_other(tmp_path: Path) -> None:
    async def work(ledger: Ledger) -> None:
        scope = ledger.scope(SCOPE)
        writer, neighbour = await new_run(scope), await new_run(scope)
        writer.append(step(ledger, "with it"))
        writer.append(Draft(CostRecorded("cost_1", "ref", usage=Usage(prompt=2**70))))
        neighbour.append(step(ledger, "beside"))
        lost, kept = await asyncio.gather(writer.barrier(), neighbour.barrier(), return_exceptions=True)
        assert isinstance(lost, NotRecordable)
        assert kept is None
        assert len(await verified(scope, writer.stream)) == 1
        assert len(await verified(scope, neighbour.stream)) == 2

    live(tmp_path / "ledger.db", work)


@pytest.mark.parametrize("text", ["a\0b", "\ud800", "a\udfffb\ud83d", "\x1b[31m\r\n\u202e", "ä€😀\u2028"], ids=ascii)
def test_strange_texts_come_back_as_they_were(text: str, tmp_path: Path) -> None:
    async def work(ledger: Ledger) -> None:
        scope = ledger.scope(SCOPE)
        writer = await new_run(scope)
        content = {"o": text, "k": {text: [text]}}
        told = dict.fromkeys(("input", "output", "error", "name", "ref"), text)
        writer.append(Draft(completed(scope), content=content, **told))
        await writer.close()
        assert content_of((await verified(scope, writer.stream))[1].row) == content

    live(tmp_path / "ledger.db", work)


@pytest.mark.parametrize(
    "view", [nested(10_000), {"a": object()}, nested(190, "x" * 100_000)], ids=["deep", "odd", "long"]
)
def test_a_view_is_made_of_any_value(view: Any, tmp_path: Path) -> None:
    async def work(ledger: Ledger) -> None:
        scope = ledger.scope(SCOPE)
        writer = await new_run(scope)
        writer.append(Draft(completed(scope), input=view, output=view))
        await goes_on(scope, writer, 3)

    live(tmp_path / "ledger.db", work)


def test_a_value_of_a_hundred_megabytes_comes_back(tmp_path: Path) -> None:
    large = os.urandom(1_000_000).hex() * 50

    async def work(ledger: Ledger) -> None:
        scope = ledger.scope(SCOPE)
        writer = await new_run(scope)
        # `clean`: the scan for secrets is measured elsewhere, and would take most of the time.
        writer.append(Draft(completed(scope), content={"o": large}, output=large, clean=True))
        await writer.close()
        found = content_of((await verified(scope, writer.stream))[1].row)["o"]
        assert len(found) == 100_000_000
        assert found == large

    live(tmp_path / "ledger.db", work)


# Order of events


def test_an_event_that_its_fold_refuses_leaves_no_row_behind(tmp_path: Path) -> None:
    async def work(ledger: Ledger) -> None:
        scope = ledger.scope(SCOPE)
        run = await new_run(scope)
        annex = await scope.writer(Stream.annex(run.stream.run_id))
        with pytest.raises(BrokenFold):
            annex.append(Draft(RunCanceled()))
        annex.append(Draft(FeedbackAdded("fb_1", "person")))
        await annex.close()
        assert [event.type for event in await verified(scope, annex.stream)] == ["feedback.added"]
        async with scope.reader() as reader:
            assert await reader.rows(AuditRow) == []

    live(tmp_path / "ledger.db", work)


def test_a_run_is_created_once_and_only_at_its_beginning(tmp_path: Path) -> None:
    async def work(ledger: Ledger) -> None:
        scope = ledger.scope(SCOPE)
        run = await new_run(scope)
        annex = await scope.writer(Stream.annex(run.stream.run_id))
        for writer in (run, annex):
            with pytest.raises(InvalidTransition):
                writer.append(creation("another workflow"))
        run.append(Draft(RunStarted()))
        with pytest.raises(InvalidTransition):
            run.append(Draft(RunStarted()))
        await run.close()
        async with scope.reader() as reader:
            assert [row.workflow for row in await reader.rows(RunRow)] == ["orders"]
        assert len(await verified(scope, run.stream)) == 2

    live(tmp_path / "ledger.db", work)


def test_a_wrong_reason_is_no_reason(tmp_path: Path) -> None:
    async def work(ledger: Ledger) -> None:
        scope = ledger.scope(SCOPE)
        writer = await new_run(scope)
        with pytest.raises(NotRecordable):
            writer.append(Draft(RunPaused("because")))  # type: ignore[arg-type]
        await goes_on(scope, writer, 2)

    live(tmp_path / "ledger.db", work)


# Names and positions


@pytest.mark.parametrize(
    "name",
    [
        *("", "/", "a", "a/", "/b", "../b", "a/..", "a/b/c", "a\0/b", "a b/c", "é/b", "a/b\n", "-a/b", ".a/b"),
        "a/" + "b" * 129,
    ],
    ids=ascii,
)
def test_a_bad_name_of_a_scope_is_refused(name: str, tmp_path: Path) -> None:
    async def work(ledger: Ledger) -> None:
        before = dump(ledger.path)
        with pytest.raises(BadName):
            ledger.scope(name)
        assert dump(ledger.path) == before

    live(tmp_path / "ledger.db", work)


ULID = "01ARZ3NDEKTSV4RRFFQ69G5FAV"


@pytest.mark.parametrize(
    "run_id",
    [
        *("x", "run_", "run_x", f"run_{ULID}x", f"run_{ULID[:-1]}", f"run_{ULID.lower()}", f"run_8{ULID[1:]}"),
        *(f"run_a_{ULID}", f"run_../_{ULID}", f"../run_{ULID}", f"st_{ULID}", f"run_{ULID}\n", f"run_{ULID[:-1]}\0"),
        f"run_٠{ULID[1:]}",
    ],
    ids=ascii,
)
def test_a_bad_id_of_a_run_is_refused_everywhere(run_id: str, tmp_path: Path) -> None:
    for parse in (Stream.run, Stream.annex, Stream.parse):
        with pytest.raises(BadName):
            parse(run_id)

    async def work(ledger: Ledger) -> None:
        scope = ledger.scope(SCOPE)
        with pytest.raises(BadName):
            await scope.create(creation(), run_id=run_id)
        with pytest.raises(BadName):
            await scope.post(run_id, "k", "signal", b"")
        with pytest.raises(BadName):
            await scope.run_head(run_id)
        with pytest.raises(RunNotFound):
            await scope.resolve_run(run_id)
        async with scope.reader() as reader:
            assert await reader.heads() == []

    live(tmp_path / "ledger.db", work)


@pytest.mark.parametrize(
    "artifact_id",
    ["", ".", "..", "../x", "../../../../x", "/x", "a/b", "a\\b", "a\0", "a.part", ".part", "a" * 129, "é"],
    ids=ascii,
)
@pytest.mark.parametrize("size", [10, 2_000_000])
def test_no_artifact_is_written_outside_its_run_s_folder(artifact_id: str, size: int, tmp_path: Path) -> None:
    async def work(ledger: Ledger) -> None:
        scope = ledger.scope(SCOPE)
        writer = await new_run(scope)
        before = sorted(tmp_path.rglob("*"))
        with pytest.raises(BadName):
            await store_artifact(
                writer,
                ledger.files,
                bytes(size),
                artifact_id=artifact_id,
                kind="output",
                type_="binary",
                mime="application/octet-stream",
            )
        assert sorted(tmp_path.rglob("*")) == before
        await goes_on(scope, writer, 2)

    live(tmp_path / "ledger.db", work)


def test_a_cursor_beyond_the_head_is_refused(tmp_path: Path) -> None:
    async def work(ledger: Ledger) -> None:
        scope = ledger.scope(SCOPE)
        writer = await new_run(scope, steps=2)
        for after in (4, 10**6, 2**32, 2**64):
            with pytest.raises(BeyondHead):
                await anext(scope.follow(writer.stream, after))
        assert await all_events(scope, writer.stream, 3) == []

    live(tmp_path / "ledger.db", work)


def test_a_key_that_cannot_be_stored_is_refused(tmp_path: Path) -> None:
    async def work(ledger: Ledger) -> None:
        scope = ledger.scope(SCOPE)
        writer = await new_run(scope)
        before = dump(ledger.path)
        with pytest.raises(NotRecordable):
            await scope.post(writer.stream.run_id, "\ud800", "signal", b"")
        with pytest.raises(RefoldError):
            await scope.resolve_run("\ud800")
        assert dump(ledger.path) == before
        await goes_on(scope, writer, 2)

    live(tmp_path / "ledger.db", work)


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
