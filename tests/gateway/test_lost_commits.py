"""A run that loses a commit is opened again in the same process; what it has out goes on and is not doubted."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from refold.errors import RefoldError
from refold.gateway.doubt import resolve
from refold.gateway.resolutions import Happened
from refold.gateway.tools import Tool
from tests.gateway.outside import World
from tests.gateway.support import Run, ledger_at, start
from tests.gateway.test_claim_table import until

KEY = "act:{order}"


async def lose_a_commit(run: Run, taken: Tool[Any, Any]) -> None:
    """What comes of a claim whose key somebody else took after the look-up."""
    call = run.call(taken, "taken")
    identity = run.gateway._identify(call)
    draft, _ = run.gateway._records.claim(call, identity, None)
    run.writer.append(draft)
    with pytest.raises(RefoldError) as raised:
        await run.writer.barrier()
    assert raised.value.code in ("key_conflict", "intent_moved")


@pytest.mark.parametrize("effect", ["unsafe", "read"])
@pytest.mark.parametrize("ended", ["before the run is opened again", "after it"])
async def test_a_call_that_is_out_when_its_run_loses_a_commit_is_answered_once(
    tmp_path: Path, effect: Any, ended: str
) -> None:
    world, other = World(), World()
    taken = other.tool(name="other", key=KEY)
    async with ledger_at(tmp_path) as scope:
        await (await start(scope)).make(taken, "taken")
        run = await start(scope)
        world.gate.clear()
        tool = world.tool(effect=effect)
        out = asyncio.ensure_future(run.delivery(run.call(tool, "a")))
        await world.began.wait()
        await lose_a_commit(run, taken)
        out.cancel()
        await asyncio.gather(out, return_exceptions=True)
        run.gateway.close()
        if ended == "before the run is opened again":
            world.gate.set()
            await asyncio.sleep(0)
        run = await run.resume()
        answer = asyncio.ensure_future(run.result(await run.recorded(tool, "a")))
        await asyncio.sleep(0)
        world.gate.set()
        assert await answer == {"done": "a"}
        assert len(world.acts) == 1
        assert "tool.doubted" not in await run.types_of_events()


async def test_an_answer_that_was_lost_with_its_commit_is_not_lost(tmp_path: Path) -> None:
    world, other = World(), World()
    taken = other.tool(name="other", key=KEY)
    async with ledger_at(tmp_path) as scope:
        await (await start(scope)).make(taken, "taken")
        run = await start(scope)
        await run.delivery(run.call(world.tool(), "a"))  # On record in memory only.
        await lose_a_commit(run, taken)
        run.gateway.close()
        run = await run.resume()
        assert await run.result(await run.recorded(world.tool(), "a")) == {"done": "a"}
        assert len(world.acts) == 1


async def test_a_doubt_of_a_run_that_loses_a_commit_is_still_settled_by_a_late_answer(tmp_path: Path) -> None:
    world, other = World(), World()
    taken = other.tool(name="other", key=KEY)

    async def stubborn(order: str) -> str:
        while not world.gate.is_set():
            try:
                await asyncio.sleep(0.001)
            except asyncio.CancelledError:
                continue
        return "late"

    tool = Tool(stubborn, name="act", timeout=0.05)
    async with ledger_at(tmp_path) as scope:
        await (await start(scope)).make(taken, "taken")
        run = await start(scope)
        world.gate.clear()
        out = asyncio.ensure_future(run.delivery(run.call(tool, "a")))
        await until(lambda: run.gateway.waiting)
        await lose_a_commit(run, taken)
        out.cancel()
        await asyncio.gather(out, return_exceptions=True)
        run.gateway.close()
        run = await run.resume()
        answer = asyncio.ensure_future(run.result(await run.recorded(tool, "a")))
        await until(lambda: run.gateway.waiting)
        world.gate.set()
        assert await answer == "late"


async def test_what_is_durable_is_not_kept_in_memory(tmp_path: Path) -> None:
    from refold.gateway.under_way import _ATTEMPTS

    world = World()
    async with ledger_at(tmp_path) as scope:
        run = await start(scope)
        for number in range(5):
            await run.make(world.tool(), str(number))
        assert len(_ATTEMPTS[scope.ledger]) == 1


async def test_a_writer_that_is_lost_ends_the_wait_for_a_resolution(tmp_path: Path) -> None:
    world, other = World(), World()
    taken = other.tool(name="other", key=KEY)
    async with ledger_at(tmp_path) as scope:
        await (await start(scope)).make(taken, "taken")
        run = await start(scope)
        world.failing = [TimeoutError()]
        call = run.call(world.tool(), "a")
        waiting = asyncio.ensure_future(run.delivery(call))
        await until(lambda: run.gateway.waiting)
        await lose_a_commit(run, taken)
        run.gateway.wake()
        with pytest.raises(RefoldError):
            await waiting
        run.gateway.close()
        run = await run.resume()
        again = asyncio.ensure_future(run.result(await run.recorded(world.tool(), "a")))
        await until(lambda: run.gateway.waiting)
        await resolve(scope, call.tool_call_id, Happened({"done": "x"}), basis="log", by="ada")
        assert await again == {"done": "x"}
