"""A ledger object across fork: the child gets connections of its own and nothing of its parent's."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from refold.events.identity import Stream
from refold.ledger.conformance.place import all_events, creation, new_run, outputs, step, verified
from refold.ledger.errors import Fenced, LedgerForked, StreamOwned
from refold.ledger.ledger import Ledger, open_ledger
from refold.ledger.writer import StreamWriter
from tests.ledger.processes import Child, apart

SCOPE = "acme/main"


def test_what_a_forked_child_commits_outlives_its_parent_s_connections(tmp_path: Path) -> None:
    apart(_child_outlives_parent, tmp_path / "ledger.db")


def _child_outlives_parent(path: Path) -> None:
    async def parent() -> str:
        ledger = await open_ledger(path)
        scope = ledger.scope(SCOPE)
        await new_run(scope, steps=2)
        child = Child(lambda child: _in_child(ledger, child))
        run_id: str = child.hear()
        # Its last connection closes: were the child's locks not known to the kernel, this would delete the WAL.
        await ledger.close()
        child.go()
        assert child.result() == 8
        return run_id

    run_id = asyncio.run(parent())

    async def afterwards() -> None:
        async with await open_ledger(path) as ledger:
            events = await verified(ledger.scope(SCOPE), Stream.run(run_id))
            assert outputs(events) == list(range(7)), "acknowledged by the child and lost"

    asyncio.run(afterwards())


async def _in_child(ledger: Ledger, child: Child) -> int:
    writer = await new_run(ledger.scope(SCOPE))
    child.say(writer.stream.run_id)
    child.wait()
    for number in range(7):
        writer.append(step(ledger, number))
        await writer.barrier()
    await ledger.close()
    return writer.head.seq


def test_a_forked_child_cannot_write_with_its_parent_s_writer(tmp_path: Path) -> None:
    apart(_child_with_parents_writer, tmp_path / "ledger.db")


def _child_with_parents_writer(path: Path) -> None:
    async def parent() -> None:
        async with await open_ledger(path) as ledger:
            scope = ledger.scope(SCOPE)
            writer = await new_run(scope, steps=1)
            writer.append(step(ledger, "in memory at the fork"))

            async def misuse(child: Child) -> None:
                with pytest.raises(Fenced):
                    await writer.barrier()
                with pytest.raises(Fenced):
                    writer.append(step(ledger, "in the child"))
                with pytest.raises(Fenced):
                    await writer.close()
                with pytest.raises(StreamOwned):
                    await scope.writer(writer.stream)
                await new_run(scope, steps=1)
                await ledger.close()

            Child(misuse).result()
            await writer.barrier()
            assert outputs(await verified(scope, writer.stream)) == [0, "in memory at the fork"]

    asyncio.run(parent())


def test_a_run_that_is_being_created_at_the_fork_is_created_once_by_the_parent(tmp_path: Path) -> None:
    apart(_fork_during_creation, tmp_path / "ledger.db")


def _fork_during_creation(path: Path) -> None:
    async def parent() -> None:
        async with await open_ledger(path) as ledger:
            scope = ledger.scope(SCOPE)
            creating = asyncio.ensure_future(scope.create(creation(), key="once"))
            await asyncio.sleep(0)  # The event is in the open batch; the commit comes in the next turn.

            async def own_work(child: Child) -> int:
                await new_run(scope)
                found = await scope.find("once")
                await ledger.close()
                return 0 if found is None else 1

            assert Child(own_work).result() == 0, "the child committed what its parent had open"
            writer = await creating
            assert isinstance(writer, StreamWriter)
            await verified(scope, writer.stream)

    asyncio.run(parent())


def test_a_child_forked_while_its_parent_reads_is_refused_and_the_parent_reads_on(tmp_path: Path) -> None:
    apart(_fork_while_reading, tmp_path / "ledger.db")


def _fork_while_reading(path: Path) -> None:
    async def parent() -> None:
        async with await open_ledger(path) as ledger:
            scope = ledger.scope(SCOPE)
            writer = await new_run(scope, steps=5)

            async def refused(child: Child) -> None:
                for _ in range(2):
                    with pytest.raises(LedgerForked):
                        await new_run(scope)
                    with pytest.raises(LedgerForked):
                        await all_events(scope, writer.stream)

            async with scope.reader() as reader:
                first = await reader.raw_events(writer.stream, limit=3)
                Child(refused).result()
                rest = await reader.raw_events(writer.stream, 3)
            assert [row.seq for row in first + rest] == [1, 2, 3, 4, 5, 6]
            writer.append(step(ledger, 5))
            await writer.close()
            assert outputs(await verified(scope, writer.stream)) == list(range(6))

    asyncio.run(parent())


def test_children_of_children_write_too(tmp_path: Path) -> None:
    apart(_three_generations, tmp_path / "ledger.db")


def _three_generations(path: Path) -> None:
    async def parent() -> list[str]:
        async with await open_ledger(path) as ledger:
            scope = ledger.scope(SCOPE)
            mine = await new_run(scope, steps=1)

            async def child_work(child: Child) -> list[str]:
                # Forks before it has used the ledger itself.
                grandchild = Child(lambda each: _one_run(ledger))
                return [*grandchild.result(), *(await _one_run(ledger))]

            runs: list[str] = Child(child_work).result()
            mine.append(step(ledger, 1))
            await mine.close()
            for run_id in (*runs, mine.stream.run_id):
                assert outputs(await verified(scope, Stream.run(run_id))) == [0, 1]
            return runs

    assert len(set(asyncio.run(parent()))) == 2


async def _one_run(ledger: Ledger) -> list[str]:
    writer = await new_run(ledger.scope(SCOPE), steps=2)
    await ledger.close()
    return [writer.stream.run_id]


def test_what_nobody_waited_for_is_committed_when_the_ledger_is_closed(tmp_path: Path) -> None:
    async def live() -> None:
        ledger = await open_ledger(tmp_path / "ledger.db")
        writer = await new_run(ledger.scope(SCOPE))
        writer.append(step(ledger, "not awaited"))
        await ledger.close()
        async with await open_ledger(tmp_path / "ledger.db") as again:
            assert outputs(await verified(again.scope(SCOPE), writer.stream)) == ["not awaited"]

    asyncio.run(live())
