"""What the processes of the crash tests do, and what must be true of what they leave.

Every acknowledgement is one line of JSON, written after `barrier` returned: what nobody may lose. Batches of steps say
in their site which of how many they are, so that half a batch is seen.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import shutil
from collections import defaultdict
from collections.abc import Awaitable, Callable
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

import apsw

from refold import seam
from refold.events.catalog.governance import AccessRead, FeedbackAdded
from refold.events.catalog.run import RunCreated, RunStarted, RunSucceeded
from refold.events.catalog.steps import SignalReceived, StepCompleted
from refold.events.catalog.tool import Claim, ToolAnswered, ToolDispatched
from refold.events.identity import SCOPE_STREAM, Stream
from refold.ledger.artifacts import IN_LEDGER, open_artifact, store_artifact
from refold.ledger.drafts import Draft
from refold.ledger.errors import StreamClosed
from refold.ledger.ledger import Existing, Ledger, ScopedLedger, open_ledger
from refold.ledger.sqlite.incarnation import LEASE
from refold.ledger.writer import StreamWriter
from refold.projections.rows import ArtifactRow
from refold.testing import faults
from refold.testing.crash import Ack
from tests.invariants.checks import check_all
from tests.ledger.places import MovableClock

SCOPE = "acme/main"
KINDS = (
    "secret",
    "create",
    "append",
    "group",
    "part",
    "artifact in the ledger",
    "artifact in a file",
    "tool",
    "cursor",
    "post",
    "deliver",
    "take over",
    "annex",
    "scope",
    "renew",
    "end",
    "release",
    "reopen",
)
"""Every kind of transaction that a process of this ledger commits, besides making the file."""

_FEW_PAGES = 24
"""Pages of WAL after which a commit checkpoints: few, so that writes and syncs of the database are among the points."""


class Worker:
    """One process at work: its ledger, its acknowledgements."""

    def __init__(self, ledger: Ledger, ack: Ack, clock: MovableClock) -> None:
        self.ledger = ledger
        self.ack = ack
        self.clock = clock
        self.batches = 0

    @property
    def scope(self) -> ScopedLedger:
        return self.ledger.scope(SCOPE)

    def steps(self, writer: StreamWriter, count: int) -> None:
        """Appends a batch of steps that belong together."""
        self.batches += 1
        for number in range(count):
            site = f"{os.getpid()}-{self.batches}:{number + 1}/{count}"
            draft = Draft(StepCompleted(self.ledger.ids.new("st"), "score"), content={"output": "x" * 300}, site=site)
            writer.append(draft)

    async def kept(self, *writers: StreamWriter) -> None:
        """Commits, and acknowledges the heads."""
        await asyncio.gather(*(writer.barrier() for writer in writers))
        for writer in writers:
            said = {"stream": str(writer.stream), "seq": writer.head.seq, "hash": writer.head.hash.hex()}
            self.ack(json.dumps(said))

    async def run(self) -> StreamWriter:
        created = await self.scope.create(Draft(RunCreated("orders", "test", "root")))
        assert isinstance(created, StreamWriter)
        await self.kept(created)
        return created


async def every_kind(worker: Worker, orphan: str, at: Callable[[str], None]) -> None:
    """One transaction of every kind, announced to `at` before it. `orphan` is a run whose process is dead."""
    ledger, scope = worker.ledger, worker.scope
    at("secret")
    assert ledger.scope("newcomer/main").secret
    at("create")
    writer, other = await worker.run(), await worker.run()
    run_id = writer.stream.run_id
    writer.append(Draft(RunStarted()))
    at("append")
    worker.steps(writer, 3)
    await worker.kept(writer)
    at("group")
    worker.steps(writer, 2)
    worker.steps(other, 2)
    await worker.kept(writer, other)
    at("part")
    await writer.part("p" * 20_000)
    worker.steps(writer, 1)
    await worker.kept(writer)
    for kind, size in (("artifact in the ledger", 30_000), ("artifact in a file", IN_LEDGER + 1)):
        at(kind)
        await artifact(worker, writer, os.urandom(size))
    at("tool")
    await _tool(worker, writer)
    at("cursor")
    await scope.move_cursor("feed", writer.stream, 2)
    at("post")
    assert await scope.post(run_id, "k", "signal", b"1")
    worker.ack(json.dumps({"posted": "k", "stream": str(writer.stream)}))
    at("deliver")
    writer.append(Draft(SignalReceived(ledger.ids.new("st"), "go"), content={"value": 1}), delivers="k")
    await worker.kept(writer)
    at("take over")
    taken = await scope.writer(Stream.run(orphan))
    worker.steps(taken, 2)
    await worker.kept(taken)
    at("annex")
    await annex(worker, run_id)
    at("scope")
    await _audit(worker)
    at("renew")
    worker.clock.passed += LEASE // 2
    await ledger.store.renew()
    at("end")
    writer.append(Draft(RunSucceeded(), content={"output": "done"}, output="done"))
    await worker.kept(writer)
    at("release")
    await writer.close()
    await other.close()
    at("reopen")
    again = await scope.writer(other.stream)
    worker.steps(again, 2)
    await worker.kept(again)
    at("over")


async def artifact(worker: Worker, writer: StreamWriter, data: bytes) -> None:
    """Stores an artifact."""
    artifact_id = worker.ledger.ids.new("art")
    await store_artifact(
        writer,
        worker.ledger.files,
        data,
        artifact_id=artifact_id,
        kind="output",
        type_="binary",
        mime="application/octet-stream",
    )
    await worker.kept(writer)
    said = {"artifact": artifact_id, "stream": str(writer.stream), "sha256": sha256(data).hexdigest()}
    worker.ack(json.dumps(said))


async def _tool(worker: Worker, writer: StreamWriter) -> None:
    ids = worker.ledger.ids
    intent, call = ids.new("int"), ids.new("tc")
    claim = Claim(step_id=ids.new("st"), tool="mail", key=intent, fingerprint="f", effect_domain="test")
    writer.append(Draft(ToolDispatched(intent_id=intent, tool_call_id=call, revision=1, claim=claim)))
    await worker.kept(writer)
    answer = ToolAnswered(intent_id=intent, tool_call_id=call, revision=2, result_bytes=2)
    writer.append(Draft(answer, content={"result": "ok"}, output="ok"))
    await worker.kept(writer)


async def annex(worker: Worker, run_id: str) -> None:
    """Adds a feedback to a run's annex."""
    async with await worker.scope.writer(Stream.annex(run_id)) as writer:
        writer.append(Draft(FeedbackAdded(worker.ledger.ids.new("fb"), "person", "1"), input="good"))
        await worker.kept(writer)


async def _audit(worker: Worker) -> None:
    async with await worker.scope.writer(SCOPE_STREAM) as audit:
        audit.append(Draft(AccessRead("events"), actor="auditor"))
        await worker.kept(audit)


async def at_work(path: Path, ack: Ack, vfs: str | None, work: Callable[[Worker], Awaitable[None]]) -> None:
    """Opens the ledger as a process of its own does, and works."""
    clock = MovableClock()
    ledger = await open_ledger(path, clock=clock, vfs=vfs)
    ledger.store.access.in_turn(lambda connection: connection.execute(f"PRAGMA wal_autocheckpoint = {_FEW_PAGES}"))
    await work(Worker(ledger, ack, clock))
    await ledger.close()


# The processes of the campaign


class Prepared(NamedTuple):
    """A ledger that lacks only the work: the file, and a run in it whose process is dead."""

    file: Path
    orphan: str


def prepared(folder: Path) -> Prepared:
    """Makes the ledger that every run of a campaign starts from, in a new folder."""
    folder.mkdir(parents=True)

    async def make() -> str:
        clock = MovableClock()
        async with await open_ledger(folder / "ledger.db", clock=clock) as ledger:
            writer = await Worker(ledger, lambda line: None, clock).run()
        return writer.stream.run_id

    return Prepared(folder / "ledger.db", asyncio.run(make()))


def commits_of_every_kind(start: Prepared, companions: int, free: bool, directory: Path, ack: Ack) -> None:
    """The scenario: this process does everything and can be struck; companions append beside it and cannot.

    Unless they are `free`, each companion commits once between two kinds of transactions, so that every run meets the
    same points; free ones commit whenever they get their turn.
    """
    path = directory / "ledger.db"
    shutil.copyfile(start.file, path)
    # Forked before this process opens a connection of its own.
    leashes = [Companion(path, ack, number, free) for number in range(companions)]

    def at(kind: str) -> None:
        seam.reach(f"transaction.{kind}")
        for leash in leashes:
            leash.tug()

    async def work(worker: Worker) -> None:
        await every_kind(worker, start.orphan, at)

    asyncio.run(at_work(path, ack, faults.register(), work))


def making_a_ledger(directory: Path, ack: Ack) -> None:
    """The scenario of a ledger's first moments: made, opened, a run in it."""

    async def work(worker: Worker) -> None:
        writer = await worker.run()
        worker.steps(writer, 2)
        await worker.kept(writer)

    asyncio.run(at_work(directory / "ledger.db", ack, faults.register(), work))


class Companion:
    """A forked process that appends for as long as this one lives, and a little after. Made when it is at work."""

    def __init__(self, path: Path, ack: Ack, number: int, free: bool) -> None:
        self._free = free
        theirs, self._go = os.pipe()
        self._done, at_last = os.pipe()
        if os.fork() == 0:
            # Its copy would keep the pipe open that says whether the scenario lives. Of a companion forked later, the
            # copies end with it; every companion ends when the scenario does, the last one first.
            os.close(self._go)
            self._live(path, ack, number, theirs, at_last)
        os.close(theirs)
        os.close(at_last)
        self._wait()

    def tug(self) -> None:
        """Lets it commit once, and waits for it, unless it is free."""
        if not self._free:
            os.write(self._go, b"g")
            self._wait()

    def _wait(self) -> None:
        assert os.read(self._done, 1) == b"d", "a companion ended early"

    def _live(self, path: Path, ack: Ack, number: int, go: int, done: int) -> None:
        try:
            seam.install(None)
            with path.with_name(f"companion-{number}").open("w") as held:
                fcntl.flock(held, fcntl.LOCK_EX)

                async def work(worker: Worker) -> None:
                    writer = await worker.run()
                    os.write(done, b"d")
                    for _ in range(25 if self._free else 0):
                        worker.steps(writer, 2)
                        await worker.kept(writer)
                    while os.read(go, 1):
                        worker.steps(writer, 2)
                        await worker.kept(writer)
                        os.write(done, b"d")
                    # The scenario is over, or killed in the middle of anything: others must still be able to write.
                    worker.steps(writer, 2)
                    await worker.kept(writer)
                    worker.ack(json.dumps({"companion": "done"}))

                asyncio.run(at_work(path, ack, None, work))
        except BaseException as error:  # noqa: BLE001 - told to the check; the process ends here
            ack(json.dumps({"companion": repr(error)}))
        finally:
            os._exit(0)


# What must be true afterwards


def nothing_lost(companions: int, directory: Path, acks: list[str]) -> None:
    """The check: whatever was acknowledged is there, whole, proven; and the next process goes on at once."""
    for number in range(companions):
        with (directory / f"companion-{number}").open("w") as held:
            fcntl.flock(held, fcntl.LOCK_EX)  # Waits for its end.
    acks = (directory.parent / "acks").read_text().splitlines() if companions else acks
    said = [json.loads(line) for line in acks]
    problems = [each["companion"] for each in said if each.get("companion", "done") != "done"]
    assert not problems, f"a process that was not struck failed: {problems}"
    assert sum("companion" in each for each in said) == companions
    path = directory / "ledger.db"
    # Once is enough, afterwards: going on repairs nothing that was lost or torn.
    asyncio.run(_goes_on(path))
    _is_whole(path, said)


def nothing_lost_of_a_new_ledger(directory: Path, acks: list[str]) -> None:
    """The check for a ledger that may not have come to be: then opening it makes it."""
    asyncio.run(_goes_on(directory / "ledger.db"))
    _is_whole(directory / "ledger.db", [json.loads(line) for line in acks])


def _is_whole(path: Path, said: list[dict[str, object]]) -> None:
    check_all(path)
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    hashes = {
        (stream, seq): bytes(digest).hex()
        for stream, seq, digest in connection.execute(
            "SELECT h.stream, e.seq, e.hash FROM events e JOIN stream_heads h ON h.stream_no = e.stream_no"
        )
    }
    for each in said:
        if "seq" in each:
            assert hashes.get((each["stream"], each["seq"])) == each["hash"], f"acknowledged and lost: {each}"
        if "posted" in each:
            sql = "SELECT key FROM inbox WHERE stream = ? AND key = ?"
            found = connection.execute(sql, (each["stream"], each["posted"])).fetchall()
            assert len(found) == 1, f"posted and lost: {each}"
    batches: dict[str, list[str]] = defaultdict(list)
    for (site,) in connection.execute("SELECT site FROM events WHERE site <> ''"):
        batch, _, place = site.partition(":")
        batches[batch].append(place)
    for batch, places in batches.items():
        count = int(places[0].partition("/")[2])
        assert len(places) == count, f"half a batch: {batch} has {places}"
    connection.close()
    asyncio.run(_artifacts_are_whole(path, said))


async def _artifacts_are_whole(path: Path, said: list[dict[str, object]]) -> None:
    wanted = {each["artifact"]: each["sha256"] for each in said if "artifact" in each}
    async with await open_ledger(path, create=False) as ledger, ledger.scope(SCOPE).reader() as reader:
        found = {}
        for row in await reader.rows(ArtifactRow):
            data = open_artifact(row, await reader.blob(Stream.run(row.run_id), row.blob), ledger.files)
            found[row.artifact_id] = sha256(data).hexdigest()
    assert wanted.items() <= found.items(), "an artifact that was acknowledged is lost or changed"


async def _goes_on(path: Path) -> None:
    """Takes every stream over, without waiting for any lease, and appends to it."""
    async with await open_ledger(path) as ledger:
        scope = ledger.scope(SCOPE)
        async with scope.reader() as reader:
            heads = await reader.heads()
        for head in heads:
            try:
                async with await scope.writer(head.stream) as writer:
                    if head.stream.kind == "run":
                        writer.append(Draft(StepCompleted(ledger.ids.new("st"), "score")))
            except StreamClosed:
                assert head.closed
        again = await scope.create(Draft(RunCreated("orders", "test", "root")), key=f"after {len(heads)}")
        assert not isinstance(again, Existing)
        await again.close()
