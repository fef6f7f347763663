"""Case 7: an overlapping signal and update were delivered in one order live and another in replay. Here the order of
the ledger is the order of delivery, whatever overlaps.
"""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any

import pytest

from refold import App, InferenceSkipping, Run, Stream
from tests.cases.support import value_of

SIGNALS, STEPS = 8, 6


@pytest.mark.parametrize("seed", range(10))
def test_case_07_what_overlaps_is_delivered_in_the_order_of_the_ledger(seed: int, tmp_path: Path) -> None:
    asyncio.run(_overlapping(random.Random(seed), tmp_path))


async def _overlapping(chance: random.Random, folder: Path) -> None:
    app, gates = App("t"), [asyncio.Event() for _ in range(STEPS)]

    async def update(number: int) -> int:
        await gates[number].wait()
        return number

    @app.workflow()
    async def work(run: Run) -> list[Any]:
        order: list[Any] = []

        async def signals() -> None:
            for _ in range(SIGNALS):
                order.append(await run.signal("word"))

        async def updated(number: int) -> None:
            order.append(await run.step(update, number))

        async with asyncio.TaskGroup() as group:
            group.create_task(signals())
            for number in range(STEPS):
                group.create_task(updated(number))
        return order

    async with app.open(str(folder / "l.db")) as rf:
        run = await rf.start(work)

        async def send(number: int) -> None:
            for _ in range(chance.randrange(30)):
                await asyncio.sleep(0)
            await rf.signal(run.id, "word", f"word {number}")

        async def let_go(number: int) -> None:
            for _ in range(chance.randrange(30)):
                await asyncio.sleep(0)
            gates[number].set()

        await asyncio.gather(*map(send, range(SIGNALS)), *map(let_go, range(STEPS)))
        delivered = await run.result()
        recorded = []
        async for event in rf.scope.read(Stream.run(run.id)):
            if event.type == "signal.received":
                recorded.append(value_of(event, "value"))
            elif event.type == "step.completed":
                recorded.append(value_of(event, "output"))
        assert delivered == recorded
        replayed = await rf.replay(run.id, InferenceSkipping())
        assert replayed.equal
        assert replayed.state["output"] == recorded
