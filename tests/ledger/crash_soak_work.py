"""Made-up work for the long campaigns: a seed decides what a process commits, in which sizes and in which order."""

from __future__ import annotations

import asyncio
import json
import random
import shutil
from pathlib import Path

from refold.events.catalog.steps import SignalReceived
from refold.events.identity import Stream
from refold.ledger.artifacts import IN_LEDGER
from refold.ledger.drafts import Draft
from refold.ledger.writer import StreamWriter
from refold.testing import faults
from refold.testing.crash import Ack
from tests.ledger import crash_work
from tests.ledger.crash_work import Companion, Prepared, Worker

STEPS = 14


def made_up_commits(start: Prepared, companions: int, seed: int, directory: Path, ack: Ack) -> None:
    """The scenario of a seed, beside companions that append whenever they get their turn."""
    path = directory / "ledger.db"
    shutil.copyfile(start.file, path)
    for number in range(companions):
        Companion(path, ack, number, free=True)

    async def work(worker: Worker) -> None:
        await _work(worker, random.Random(seed))

    asyncio.run(crash_work.at_work(path, ack, faults.register(), work))


async def _work(worker: Worker, rnd: random.Random) -> None:
    writers = [await worker.run()]
    posted: list[tuple[int, str]] = []
    for number in range(STEPS):
        which = rnd.randrange(len(writers))
        writer = writers[which]
        match rnd.choice(
            ("append", "append", "group", "part", "artifact", "run", "post", "deliver", "annex", "reopen")
        ):
            case "append":
                worker.steps(writer, rnd.choice((1, 2, 7, 30)))
                await worker.kept(writer)
            case "group":
                for each in writers:
                    worker.steps(each, rnd.randint(1, 3))
                await worker.kept(*writers)
            case "part":
                await writer.part(rnd.randbytes(rnd.choice((10, 9000, 40_000))).hex())
                worker.steps(writer, 1)
                await worker.kept(writer)
            case "artifact":
                await crash_work.artifact(worker, writer, rnd.randbytes(rnd.choice((1, 50_000, IN_LEDGER + 1))))
            case "run":
                writers.append(await worker.run())
            case "post":
                await worker.scope.post(writer.stream.run_id, f"k{number}", "signal", b"1")
                worker.ack(json.dumps({"posted": f"k{number}", "stream": str(writer.stream)}))
                posted.append((which, f"k{number}"))
            case "deliver" if posted:
                which, key = posted.pop(rnd.randrange(len(posted)))
                _deliver(worker, writers[which], key)
                await worker.kept(writers[which])
            case "annex":
                await crash_work.annex(worker, writer.stream.run_id)
            case "reopen":
                await writer.close()
                writers[which] = await worker.scope.writer(Stream.run(writer.stream.run_id))


def _deliver(worker: Worker, writer: StreamWriter, key: str) -> None:
    step = worker.ledger.ids.new("st")
    writer.append(Draft(SignalReceived(step, "go"), content={"value": key}), delivers=key)
