"""Case 26: twenty parallel appends reported twenty successes, and ten of the events were not there. Here a success is a
stored event, and who loses is told so by a typed conflict: the two numbers are counted and must be the same.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

from refold.events.identity import Stream
from refold.ledger.conformance.place import SCOPE, new_run, outputs, step, verified
from refold.ledger.errors import Fenced, StreamOwned
from refold.ledger.ledger import open_ledger
from refold.ledger.port import Committed, Lost
from tests.cases.support import LEDGER
from tests.invariants.checks import check_all
from tests.ledger.places import SqlitePlace
from tests.ledger.processes import Child, apart

PARALLEL = 20


def test_case_26_twenty_processes_that_append_to_one_stream_count_as_many_successes_as_events(tmp_path: Path) -> None:
    successes, conflicts = apart(_twenty_processes, tmp_path / LEDGER)
    print(f"{PARALLEL} processes: {successes} successes, {conflicts} conflicts")
    assert successes + conflicts == 2 * PARALLEL
    assert successes > 0


def _twenty_processes(path: Path) -> tuple[int, int]:
    async def boss() -> tuple[int, int]:
        async with await open_ledger(path) as ledger:
            scope = ledger.scope(SCOPE)
            async with await new_run(scope) as writer:
                stream = writer.stream
            children = [Child(lambda child: _appends(path, stream, child)) for _ in range(PARALLEL)]
            for child in children:
                child.hear()  # All have the file open before the first appends.
            for child in children:
                child.go()
            said: list[dict[str, Any]] = [child.result() for child in children]
            won = [name for each in said for name in each["won"]]
            stored = outputs(await verified(scope, stream))
            assert sorted(stored) == sorted(won), "successes are not the stored events"
            return len(won), sum(len(each["conflicts"]) for each in said)

    result = asyncio.run(boss())
    check_all(path)
    return result


async def _appends(path: Path, stream: Stream, child: Child) -> dict[str, list[str]]:
    won, conflicts = [], []
    async with await open_ledger(path) as ledger:
        scope = ledger.scope(SCOPE)
        await scope.run_head(stream.run_id)
        child.say("ready")
        child.wait()
        for number in range(2):
            name = f"{os.getpid()}-{number}"
            try:
                async with await scope.writer(stream) as writer:
                    writer.append(step(ledger, name))
                    await writer.barrier()
            except (StreamOwned, Fenced) as error:
                conflicts.append(error.code)
            else:
                won.append(name)
    return {"won": won, "conflicts": conflicts}


def test_case_26_of_twenty_owners_that_appended_behind_one_head_one_succeeds(tmp_path: Path) -> None:
    """The narrowest form: each was the owner once, and all commit at the same moment."""

    async def work() -> None:
        place = SqlitePlace(tmp_path)
        ledgers = [await place.open() for _ in range(PARALLEL)]
        first = await new_run(ledgers[0].scope(SCOPE))
        await first.close()
        writers = []
        for ledger in ledgers:
            place.expire_leases()
            writers.append(await ledger.scope(SCOPE).writer(first.stream))
        # Not before: what is appended is committed in the background within moments.
        for number, (ledger, writer) in enumerate(zip(ledgers, writers, strict=True)):
            writer.append(step(ledger, number))
        done = await asyncio.gather(*(writer.barrier() for writer in writers), return_exceptions=True)
        assert [type(each) for each in done] == [Fenced] * (PARALLEL - 1) + [type(None)]
        assert {(e.facts["first_dropped"], e.facts["last_dropped"]) for e in done if isinstance(e, Fenced)} == {(2, 2)}
        assert outputs(await verified(ledgers[0].scope(SCOPE), first.stream)) == [PARALLEL - 1]
        for ledger in ledgers:
            await ledger.close()

    asyncio.run(work())


def test_case_26_of_twenty_batches_with_one_predecessor_one_is_committed(tmp_path: Path) -> None:
    async def work() -> None:
        ledger = await SqlitePlace(tmp_path).open()
        scope = ledger.scope(SCOPE)
        writer = await new_run(scope)
        writer.append(step(ledger, "x"))
        batch = writer.take_batch()
        assert batch is not None
        outcomes = [each for (each,) in await asyncio.gather(*(ledger.store.commit([batch]) for _ in range(PARALLEL)))]
        kinds = [type(each) for each in outcomes]
        assert (kinds.count(Committed), kinds.count(Lost)) == (1, PARALLEL - 1)
        assert all(isinstance(each.error, Fenced) for each in outcomes if isinstance(each, Lost))
        assert outputs(await verified(scope, writer.stream)) == ["x"]
        await ledger.close()

    asyncio.run(work())


def test_case_26_twenty_tasks_that_share_a_writer_append_twenty_events(tmp_path: Path) -> None:
    async def work() -> None:
        ledger = await SqlitePlace(tmp_path).open()
        scope = ledger.scope(SCOPE)
        writer = await new_run(scope)

        async def one(number: int) -> int:
            event = writer.append(step(ledger, number))
            await writer.barrier()
            return event.seq

        seqs = await asyncio.gather(*(one(number) for number in range(PARALLEL)))
        assert sorted(seqs) == list(range(2, PARALLEL + 2))
        assert outputs(await verified(scope, writer.stream)) == list(range(PARALLEL))
        await writer.close()
        await ledger.close()

    asyncio.run(work())
