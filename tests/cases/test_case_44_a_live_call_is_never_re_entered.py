"""Case 44: the lease owner was the request, so that a retry of the same request re-entered the live call and sent
twice. Here a live call is never re-entered, not by its own run either.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from refold import Run
from refold.gateway.errors import InProgress
from tests.runtime.paying import Till, receipts
from tests.world.world import World


def till(world: World) -> Till:
    found = Till(world, "unsafe", held="after the answer", key="order:{order}")

    @found.app.workflow()
    async def twice(run: Run) -> list[Any]:
        return list(await asyncio.gather(found.pay("7"), found.pay("7")))

    @found.app.workflow()
    async def once(run: Run) -> Any:
        try:
            return await found.pay("7")
        except InProgress as error:
            return error.code

    return found


async def test_case_44_calls_of_one_key_in_one_run_are_one_call(world: World, tmp_path: Path) -> None:
    one = till(world)
    async with one.app.open(str(tmp_path / "l.db")) as rf:
        run = await rf.start("twice", key="k")
        await one.after.reached.wait()
        for _ in range(3):  # Whoever asks for the run again, or to resume it, gets the one that is running.
            assert (await rf.start("twice", key="k")).id == (await rf.resume(run.id)).id == run.id
        one.after.let_go.set()
        (found,) = receipts(one.account)
        assert await run.result() == [found, found]
    assert len(one.account.charges()) == 1


async def test_case_44_another_run_is_told_that_the_call_is_under_way(world: World, tmp_path: Path) -> None:
    one = till(world)
    async with one.app.open(str(tmp_path / "l.db")) as rf:
        run = await rf.start("once")
        await one.after.reached.wait()
        assert await (await rf.start("once")).result() == InProgress.code
        one.after.let_go.set()
        assert [await run.result()] == receipts(one.account)
        assert [await (await rf.start("once")).result()] == receipts(one.account)
    assert len(one.account.charges()) == 1
