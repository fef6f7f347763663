"""Many processes on one file: waits are bounded, and who was replaced writes nothing."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from itertools import groupby
from pathlib import Path

import apsw
import pytest

from refold import seam
from refold.events.identity import Stream
from refold.ledger.conformance.place import all_events, new_run, outputs, step, verified
from refold.ledger.errors import Fenced, StreamOwned
from refold.ledger.ledger import open_ledger
from refold.ledger.sqlite.incarnation import LEASE
from refold.testing import faults
from tests.invariants.checks import check_all
from tests.ledger.processes import Child, SharedClock, apart

SCOPE = "acme/main"
PROCESSES = 8
BATCHES = 20


def test_a_wait_is_bounded_by_a_few_of_the_others_turns(tmp_path: Path) -> None:
    waits = apart(_measured_waits, tmp_path / "ledger.db")
    print(f"turns of others within one wait: {sorted(Counter(waits).items())}")
    # One wait lets everybody before you go first, and those who were on their way. The few beyond are processes that
    # the machine did not run between reading the log and queueing.
    assert sum(wait > 2 * PROCESSES for wait in waits) <= len(waits) // 50


def _measured_waits(path: Path) -> list[int]:
    log = path.with_name("turns")

    async def boss() -> list[tuple[int, int, int]]:
        async with await open_ledger(path) as ledger:
            assert ledger.scope(SCOPE).secret
        children = [Child(lambda child: _asks(path, log, child)) for _ in range(PROCESSES)]
        for child in children:
            child.hear()
        for child in children:
            child.go()
        return [tuple(each) for child in children for each in child.result()]

    asked = asyncio.run(boss())
    turns = [int(line) for line in log.read_text().split()]
    waits = []
    for pid, first, last in asked:
        mine = next(place for place in range(first, last) if turns[place] == pid)
        others = [who for who, _ in groupby(turns[first:mine]) if who != pid]
        waits.append(len(others))
    return waits


async def _asks(path: Path, log: Path, child: Child) -> list[tuple[int, int, int]]:
    """For each batch: who asked, the length of the log then, and when it was durable."""
    pid = os.getpid()
    file = os.open(log, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
    width = len(f"{pid:8}\n")

    def note(point: str) -> None:
        if point == "vfs.sync:wal":
            os.write(file, f"{pid:8}\n".encode())

    asked = []
    async with await open_ledger(path, vfs=faults.register()) as ledger:
        writer = await new_run(ledger.scope(SCOPE))
        child.say("ready")
        child.wait()
        with seam.installed(note):
            for number in range(BATCHES):
                writer.append(step(ledger, number))
                first = os.fstat(file).st_size // width
                await writer.barrier()
                asked.append((pid, first, os.fstat(file).st_size // width))
        await writer.close()
    return asked


def test_processes_that_fight_over_one_stream_append_every_success_once(tmp_path: Path) -> None:
    """Case 26: twenty successes are twenty events."""
    apart(_fight, tmp_path / "ledger.db")


def _fight(path: Path) -> None:
    async def boss() -> None:
        async with await open_ledger(path) as ledger:
            scope = ledger.scope(SCOPE)
            async with await new_run(scope) as writer:
                stream = writer.stream
            fighters = [Child(lambda child: _fights(path, stream)) for _ in range(PROCESSES)]
            wins = [win for fighter in fighters for win in fighter.result()]
            stored = outputs(await verified(scope, stream))
            assert sorted(stored) == sorted(wins)
            assert len(set(stored)) == len(stored) > 0

    asyncio.run(boss())


async def _fights(path: Path, stream: Stream) -> list[str]:
    won = []
    async with await open_ledger(path) as ledger:
        for number in range(6):
            try:
                async with await ledger.scope(SCOPE).writer(stream) as writer:
                    name = f"{os.getpid()}-{number}"
                    writer.append(step(ledger, name))
                    await writer.barrier()
                    won.append(name)
            except (StreamOwned, Fenced):
                continue
    return won


def test_a_writer_frozen_past_its_lease_writes_nothing_when_thawed(tmp_path: Path) -> None:
    """Case 19."""
    apart(_freeze_and_replace, tmp_path / "ledger.db")


def _freeze_and_replace(path: Path) -> None:
    clock = SharedClock(path.with_name("passed"))

    async def frozen(child: Child) -> list[str]:
        async with await open_ledger(path, clock=clock) as ledger:
            scope = ledger.scope(SCOPE)
            writer = await new_run(scope, steps=2)
            beside = await new_run(scope)
            for each in (writer, beside):
                each.append(step(ledger, "in memory"))
            child.say([writer.stream.run_id, beside.stream.run_id])
            child.freeze()
            said = []
            for each in (writer, beside):
                try:
                    await each.barrier()
                    said.append("kept")
                except Fenced:
                    said.append("fenced")
        return said

    async def boss() -> None:
        child = Child(frozen)
        replaced, beside = child.hear()
        child.until_frozen()
        async with await open_ledger(path, clock=clock) as ledger:
            scope = ledger.scope(SCOPE)
            with pytest.raises(StreamOwned):
                await scope.writer(Stream.run(replaced))
            clock.let_pass(LEASE + 1)
            writer = await scope.writer(Stream.run(replaced))
            writer.append(step(ledger, "taken over"))
            await writer.barrier()
            there = await all_events(scope, writer.stream)
            child.thaw()
            assert child.result() == ["fenced", "kept"], "of two streams only the one that was taken over is fenced"
            assert [each.row for each in await verified(scope, writer.stream)] == [each.row for each in there]
            writer.append(step(ledger, "and on"))
            await writer.close()
            assert outputs(await verified(scope, writer.stream)) == [0, 1, "taken over", "and on"]
            assert outputs(await verified(scope, Stream.run(beside))) == ["in memory"]

    asyncio.run(boss())
    check_all(path)


def test_a_killed_owner_s_stream_is_taken_over_at_once(tmp_path: Path) -> None:
    apart(_kill_and_replace, tmp_path / "ledger.db")


def _kill_and_replace(path: Path) -> None:
    async def owner(child: Child) -> None:
        async with await open_ledger(path) as ledger:
            writer = await new_run(ledger.scope(SCOPE), steps=2)
            writer.append(step(ledger, "never seen"))
            child.say(writer.stream.run_id)
            child.wait()

    async def boss() -> None:
        child = Child(owner)
        stream = Stream.run(child.hear())
        async with await open_ledger(path) as ledger:
            scope = ledger.scope(SCOPE)
            with pytest.raises(StreamOwned):
                await scope.writer(stream)
            child.kill()
            async with await scope.writer(stream) as writer:
                writer.append(step(ledger, "at once"))
            assert outputs(await verified(scope, stream)) == [0, 1, "at once"]

    asyncio.run(boss())


def test_the_dead_leave_no_rows_behind_for_ever(tmp_path: Path) -> None:
    apart(_many_short_lives, tmp_path / "ledger.db")


def _many_short_lives(path: Path) -> None:
    async def life(child: Child) -> None:
        async with await open_ledger(path) as ledger:
            await (await new_run(ledger.scope(SCOPE))).close()

    for _ in range(6):
        Child(life).result()
    connection = apsw.Connection(str(path))
    assert len(connection.execute("SELECT number FROM incarnations").fetchall()) == 1
    connection.close()
