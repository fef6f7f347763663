"""A call that is cancelled, at each moment of its life, in each way, for each effect class: what was sent is waited for
and recorded, then the code is cancelled, and whoever asks again gets the answer that nobody got.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from refold import Happened, InferenceSkipping, Run, RunEnded, Stream
from refold.demo.faults import Fault
from refold.runtime.handle import RunHandle
from refold.runtime.opened import Refold
from tests.runtime.paying import EFFECTS, Till, doubts_of, events_of, receipts, wait_for
from tests.world.fixtures import session_world, world
from tests.world.world import World

__all__ = ["session_world", "world"]

MOMENTS = ("before the send", "before acting", "before answering", "after the answer")
WAYS = ("sibling", "parent", "race", "run")


async def sibling(run: Run, pay: Any) -> str:
    async def fails() -> None:
        await run.signal("now", str)
        raise ValueError("a sibling failed")

    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(pay("7"))
            group.create_task(fails())
    except ExceptionGroup:
        return "cancelled"
    return "paid"


async def parent(run: Run, pay: Any) -> str:
    async def runs_out(limit: asyncio.Timeout) -> None:
        await run.signal("now", str)
        limit.reschedule(asyncio.get_running_loop().time())

    try:
        async with asyncio.timeout(None) as limit:
            waits = asyncio.create_task(runs_out(limit))
            await pay("7")
    except TimeoutError:
        await waits
        return "cancelled"
    return "paid"


async def race(run: Run, pay: Any) -> str:
    won = await run.race(paid=pay("7"), told=run.signal("now", str))
    return "cancelled" if won.name == "told" else "paid"


async def whole_run(run: Run, pay: Any) -> str:
    await pay("7")
    return "paid"


def till_of(world: World, effect: str, way: str, moment: str, *, again: bool = False, **contract: Any) -> Till:
    till = Till(world, effect, held=moment, **contract)
    if moment.startswith("before a"):
        fault = Fault(held=moment, method="GET" if effect == "read" else "POST")  # type: ignore[arg-type]
        till.service.faults.order(fault)
    ways = {"sibling": sibling, "parent": parent, "race": race, "run": whole_run}

    @till.app.workflow()
    async def work(run: Run) -> list[Any]:
        said = [await ways[way](run, till.pay)]
        await run.signal("go on", str)
        return [*said, await till.pay("7")] if again else said

    return till


async def cancel_at(rf: Refold, run: RunHandle, till: Till, way: str, moment: str) -> None:
    """Cancels the call when it has come to this moment; returns when the code has been told."""
    if moment == "before the send":
        await till.before.reached.wait()
    elif moment == "after the answer":
        await till.after.reached.wait()
    else:
        await asyncio.to_thread(till.service.faults.wait_until_held)
    if way == "run":
        await rf.cancel(run.id, basis="it is enough", by="ada")
        await wait_for(rf, run, "run.stop_requested")
    else:
        await rf.signal(run.id, "now", "!")
        await wait_for(rf, run, "signal.received")


async def let_go(till: Till) -> None:
    till.before.let_go.set()
    till.after.let_go.set()
    await asyncio.to_thread(till.service.faults.release)


@pytest.mark.parametrize("effect", EFFECTS)
@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("way", WAYS)
async def test_what_was_sent_is_waited_for_and_recorded_and_the_code_is_cancelled_then(
    way: str, moment: str, effect: str, world: World, tmp_path: Path
) -> None:
    till = till_of(world, effect, way, moment)
    async with till.app.open(str(tmp_path / "l.db")) as rf:
        run = await rf.start("work")
        await cancel_at(rf, run, till, way, moment)
        if effect != "read":
            # It is out, and neither the run nor the code goes past it.
            assert (await run.row()).status == "running"
        await let_go(till)
        if way == "run":
            with pytest.raises(RunEnded) as ended:
                await run.result()
            assert ended.value.facts["status"] == "canceled"
        else:
            await rf.signal(run.id, "go on", "!")
            assert await run.result() == ["cancelled"]
        assert [event.type for event in await events_of(rf, run)] == ["tool.dispatched", "tool.answered"]
        assert len(till.account.charges()) == 1
        assert (await rf.replay(run.id, InferenceSkipping())).equal


@pytest.mark.parametrize("crash", [False, True], ids=["live", "after a crash"])
@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("way", WAYS[:3])
async def test_whoever_asks_again_gets_the_answer_that_nobody_got(
    way: str, moment: str, crash: bool, world: World, tmp_path: Path
) -> None:
    till = till_of(world, "unsafe", way, moment, again=True)
    async with till.app.open(str(tmp_path / "l.db")) as rf:
        run = await rf.start("work")
        await cancel_at(rf, run, till, way, moment)
        await let_go(till)
        await wait_for(rf, run, "tool.answered")
        if not crash:
            await rf.signal(run.id, "go on", "!")
            assert await run.result() == ["cancelled", *receipts(till.account)]
    async with till.app.open(str(tmp_path / "l.db")) as rf:
        run = await rf.get(run.id)
        if crash:
            await rf.signal(run.id, "go on", "!")
        assert await run.result() == ["cancelled", *receipts(till.account)]
        assert [event.type for event in await events_of(rf, run)][-1] == "tool.replayed"
        assert (await rf.replay(run.id, InferenceSkipping())).equal


@pytest.mark.parametrize("moment", MOMENTS[1:3])
async def test_a_tool_that_may_be_left_lets_the_run_end_in_doubt_and_the_annex_takes_the_resolution(
    moment: str, world: World, tmp_path: Path
) -> None:
    till = till_of(world, "unsafe", "run", moment, on_cancel="abandon")
    async with till.app.open(str(tmp_path / "l.db")) as rf:
        run = await rf.start("work")
        await cancel_at(rf, run, till, "run", moment)
        with pytest.raises(RunEnded) as ended:
            await run.result()
        assert ended.value.facts["status"] == "canceled"
        doubted = (await events_of(rf, run))[-1]
        assert (doubted.type, doubted.facts.why) == ("tool.doubted", "canceled")
        await let_go(till)
        while not till.account.charges():
            await asyncio.sleep(0.01)
        (found,) = receipts(till.account)
        done = await rf.resolve(doubted.facts.tool_call_id, Happened(found), basis="the log", by="ada")
        assert done.how == "recorded"
        annex = [event.type async for event in rf.scope.read(Stream.annex(run.id))]
        assert annex == ["tool.resolved"]


async def test_a_doubt_on_record_keeps_a_canceled_run_open_until_it_is_resolved(world: World, tmp_path: Path) -> None:
    till = Till(world, "unsafe")
    till.service.faults.order(Fault(status=500))

    @till.app.workflow()
    async def work(run: Run) -> Any:
        return await till.pay("7")

    async with till.app.open(str(tmp_path / "l.db")) as rf:
        run = await rf.start("work")
        (call,) = await doubts_of(run)
        await rf.cancel(run.id, basis="it is enough", by="ada")
        await wait_for(rf, run, "run.stop_requested")
        assert (await run.row()).ended_at is None
        await rf.resolve(call, Happened(receipts(till.account)[0]), basis="the log", by="ada")
        with pytest.raises(RunEnded):
            await run.result()
        assert [event.type for event in await events_of(rf, run)][-1] == "tool.resolved"
