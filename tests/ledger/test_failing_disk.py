"""A disk that fails or is full: each batch is committed once or lost whole, and its writer is told which."""

from __future__ import annotations

import asyncio
import errno
import json
import shutil
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import apsw
import pytest

from refold import seam
from refold.errors import RefoldError
from refold.events.catalog.steps import StepCompleted
from refold.ledger.artifacts import IN_LEDGER, store_artifact
from refold.ledger.conformance.place import new_run, outputs, step, verified
from refold.ledger.drafts import Draft
from refold.ledger.errors import CommitUnknown, LedgerFailing, LedgerFull, LedgerReadOnly, StreamOwned
from refold.ledger.ledger import ScopedLedger, open_ledger
from refold.ledger.writer import StreamWriter
from refold.testing import crash, faults
from refold.testing.crash import Ack
from tests.invariants.checks import check_all
from tests.ledger import crash_work
from tests.ledger.crash_work import SCOPE, MovableClock, Worker
from tests.ledger.memory import fast

__all__ = ["fast"]

BATCHES = 8


def batches_despite_errors(start: crash_work.Prepared, makes_room: bool, directory: Path, ack: Ack) -> None:
    """The scenario: every batch is tried once, its outcome said; after an error the stream is opened again."""
    path = directory / "ledger.db"
    shutil.copyfile(start.file, path)

    async def work() -> None:
        clock = MovableClock()
        ledger = await open_ledger(path, clock=clock, vfs=faults.register())
        ledger.store.access.in_turn(lambda connection: connection.execute("PRAGMA wal_autocheckpoint = 12"))
        worker = Worker(ledger, ack, clock)
        writers: dict[int, StreamWriter] = {}
        for number in range(BATCHES):
            await _try_batch(worker, writers, number, ack)
        if makes_room:
            seam.install(None)
            for number in range(BATCHES, BATCHES + 2):
                await _try_batch(worker, writers, number, ack)
        ack(json.dumps({"end": True}))
        try:
            await ledger.close()
        except (RefoldError, apsw.Error) as error:
            ack(json.dumps({"closing": type(error).__name__}))

    asyncio.run(work())


async def _try_batch(worker: Worker, writers: dict[int, StreamWriter], number: int, ack: Ack) -> None:
    """A batch of three events in each of two streams, committed together; the outcome of each is said."""
    trying = []
    for which in (0, 1):
        try:
            writer = writers.get(which)
            if writer is None:
                writer = await new_run(worker.scope)
            elif not writer.alive:
                writer = await worker.scope.writer(writer.stream)
            writers[which] = writer
            trying.append(which)
        except RefoldError as error:
            ack(json.dumps({"batch": f"{number}.{which}", "error": error.code}))
    for which in trying:
        for place in range(3):
            site = f"{number}.{which}:{place + 1}/3"
            writers[which].append(Draft(StepCompleted(worker.ledger.ids.new("st"), "score"), site=site))
    results = await asyncio.gather(*(writers[which].barrier() for which in trying), return_exceptions=True)
    for which, result in zip(trying, results, strict=True):
        if isinstance(result, RefoldError):
            ack(json.dumps({"batch": f"{number}.{which}", "error": result.code}))
        elif result is None:
            ack(json.dumps({"batch": f"{number}.{which}", "kept": True}))
        else:
            raise result


def told_the_truth(allowed: frozenset[str], must_keep: bool, directory: Path, acks: list[str]) -> None:
    """The check: what was said to be kept is there once and whole, what was said to be lost is not there."""
    said = [json.loads(line) for line in acks]
    assert any("end" in each for each in said), "the scenario did not come to its end"
    check_all(directory / "ledger.db")
    connection = apsw.Connection(str(directory / "ledger.db"))
    assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    places = Counter(site for (site,) in connection.execute("SELECT site FROM events WHERE site <> ''"))
    connection.close()
    for site, count in places.items():
        assert count == 1, f"{site} is there {count} times"
    batches = Counter(site.partition(":")[0] for site in places)
    assert set(batches.values()) <= {3}, f"half a batch: {batches}"
    for each in said:
        if "kept" in each:
            assert each["batch"] in batches, f"acknowledged and lost: {each}"
        elif "error" in each:
            assert each["error"] in allowed, f"an error that says something else: {each}"
            assert each["error"] == CommitUnknown.code or each["batch"] not in batches, f"said to be lost: {each}"
    if must_keep:
        assert not [each for each in said if "error" in each], "one failure was not survived by trying again"


@pytest.mark.parametrize(
    ("fault", "at", "must_keep"),
    [
        pytest.param(faults.sync_fails, "vfs.sync:wal", True, id="sync of the wal fails once"),
        pytest.param(faults.sync_fails, "vfs.sync:db", False, id="sync of the database fails once"),
        pytest.param(faults.write_fails, "vfs.write:wal", False, id="write of the wal fails once"),
        pytest.param(faults.write_fails, "vfs.write:db", False, id="write of the database fails once"),
        pytest.param(faults.Torn(700, then=faults.write_fails), "vfs.write:wal", False, id="half a write"),
    ],
)
def test_a_commit_that_fails_once_is_committed_or_lost_whole(
    fault: faults.Fault, at: str, must_keep: bool, fast: Path
) -> None:
    start = crash_work.prepared(fast / "start")
    allowed = frozenset({LedgerFailing.code, CommitUnknown.code})
    crash.fault_at_each(
        partial(batches_despite_errors, start, False),
        partial(told_the_truth, allowed, must_keep),
        fault,
        under=fast,
        at=at,
        require={at},
    )


def test_a_full_disk_is_said_at_each_write_and_ends_when_room_is_made(fast: Path) -> None:
    start = crash_work.prepared(fast / "start")
    allowed = frozenset({LedgerFull.code, CommitUnknown.code})

    crash.fault_from_each(
        partial(batches_despite_errors, start, True),
        partial(works_again_with_room, allowed),
        faults.disk_full,
        under=fast,
        at="vfs.write:wal",
        require={"vfs.write:wal"},
    )


def works_again_with_room(allowed: frozenset[str], directory: Path, acks: list[str]) -> None:
    """The check for a disk on which room was made before the last two batches."""
    told_the_truth(allowed, False, directory, acks)
    kept = {each["batch"] for each in map(json.loads, acks) if "kept" in each}
    last = {f"{number}.{which}" for number in (BATCHES, BATCHES + 1) for which in (0, 1)}
    assert last <= kept, f"not kept although there was room: {last - kept}"


@pytest.mark.parametrize("point", ["artifact.write", "artifact.sync", "artifact.rename", "artifact.sync_folder"])
@pytest.mark.parametrize(
    ("number", "error"),
    [(errno.ENOSPC, LedgerFull), (errno.EDQUOT, LedgerFull), (errno.EIO, LedgerFailing), (errno.EROFS, LedgerReadOnly)],
)
def test_an_artifact_whose_file_cannot_be_written_is_a_typed_error_and_leaves_the_writer_as_it_was(
    number: int, error: type[RefoldError], point: str, tmp_path: Path
) -> None:
    def fails(reached: str) -> None:
        if reached == point:
            raise OSError(number, "injected")

    async def live() -> None:
        async with await open_ledger(tmp_path / "ledger.db") as ledger:
            scope = ledger.scope(SCOPE)
            writer = await new_run(scope, steps=1)
            with seam.installed(fails), pytest.raises(error):
                await _large_artifact(scope, writer)
            await _large_artifact(scope, writer)
            writer.append(step(ledger, "on"))
            await writer.close()
            assert outputs(await verified(scope, writer.stream)) == [0, "on"]
            async with scope.reader() as reader:
                assert [blob.number for blob in await reader.blobs(writer.stream)] == [1]

    asyncio.run(live())


async def _large_artifact(scope: ScopedLedger, writer: StreamWriter) -> None:
    await store_artifact(
        writer,
        scope.ledger.files,
        b"x" * (IN_LEDGER + 1),
        artifact_id=scope.ledger.ids.new("art"),
        kind="output",
        type_="text",
        mime="text/plain",
    )


@pytest.fixture(autouse=True)
def _no_hook_is_left() -> Iterator[None]:
    yield
    assert seam.install(None) is None


@pytest.mark.parametrize(
    ("point", "fault"),
    [("vfs.write:wal", faults.write_fails), ("vfs.sync:wal", faults.sync_fails), ("vfs.write:wal", faults.disk_full)],
)
def test_an_owner_whose_first_commit_had_to_be_tried_again_counts_as_alive(
    point: str, fault: faults.Fault, tmp_path: Path
) -> None:
    """Its number was made in the transaction that failed."""
    left = [point]

    def once(reached: str) -> None:
        if reached in left:
            left.remove(reached)
            fault(reached)

    async def live() -> None:
        async with (
            await open_ledger(tmp_path / "ledger.db", vfs=faults.register()) as ledger,
            await open_ledger(tmp_path / "ledger.db") as other,
        ):
            assert ledger.scope(SCOPE).secret
            with seam.installed(once):
                writer = await new_run(ledger.scope(SCOPE))
            assert left == []
            with pytest.raises(StreamOwned):
                await other.scope(SCOPE).writer(writer.stream)

    asyncio.run(live())
