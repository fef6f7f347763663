"""Equal unsafe calls without keys of their own: an agent that asks again does not pay twice."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from refold.gateway.doubt import resolve
from refold.gateway.errors import Abandoned, ToolFailed
from refold.gateway.resolutions import Abandon, DidNotHappen, Happened
from refold.testing.simulated import SimulatedClock
from tests.gateway.outside import World
from tests.gateway.support import Run, ledger_at, start
from tests.gateway.test_claim_table import HOUR, killed_after_dispatch, until


async def test_equal_calls_at_once_are_made_one_after_the_other_each_for_itself(tmp_path: Path) -> None:
    world = World()
    tool = world.tool()
    async with ledger_at(tmp_path) as scope:
        run = await start(scope)
        world.gate.clear()
        calls = [asyncio.ensure_future(run.make(tool, "a")) for _ in range(3)]
        await world.began.wait()
        await until(lambda: list(run.gateway.waiting.values()) == ["twin", "twin"])
        assert len(world.acts) == 1
        world.gate.set()
        assert await asyncio.gather(*calls) == [{"done": "a"}] * 3
        assert len(set(world.acts)) == 3


async def test_calls_that_differ_or_have_keys_do_not_wait_for_each_other(tmp_path: Path) -> None:
    world = World()
    async with ledger_at(tmp_path) as scope:
        run = await start(scope)
        world.gate.clear()
        tool = world.tool()
        first = [run.call(tool, "a"), run.call(tool, "b"), run.call(tool, "a", key="k")]
        calls = [asyncio.ensure_future(run.result(each)) for each in first]
        await until(lambda: len(world.acts) == 3)
        world.gate.set()
        await asyncio.gather(*calls)


async def drained(run: Run, world: World) -> None:
    """A call that the code was cancelled out of, while it drained; its answer went on record."""
    call = run.call(world.tool(), "a")
    await run.delivery(call)
    run.gateway.undelivered(call.tool_call_id)


async def test_an_answer_that_nobody_got_is_the_next_equal_calls_and_is_used_once(tmp_path: Path) -> None:
    world = World()
    async with ledger_at(tmp_path) as scope:
        run = await start(scope)
        await drained(run, world)
        assert await run.make(world.tool(), "b") == {"done": "b"}
        assert await run.make(world.tool(), "a") == {"done": "a"}
        assert len(world.acts) == 2
        assert (await run.types_of_events())[-1] == "tool.replayed"
        await run.make(world.tool(), "a")
        assert len(world.acts) == 3


async def test_an_answer_that_was_used_is_not_used_again_after_a_restart(tmp_path: Path) -> None:
    world = World()
    async with ledger_at(tmp_path) as scope:
        run = await start(scope)
        call = run.call(world.tool(), "a")
        await run.delivery(call)
        run.gateway.undelivered(call.tool_call_id)
        await run.make(world.tool(), "a")
        await run.crash()
        run = await run.resume()
        run.gateway.undelivered(call.tool_call_id)  # The resumed code is cancelled at the same place.
        run.sites = 10
        await run.make(world.tool(), "a")
        assert len(world.acts) == 2


async def test_an_answer_whose_second_taker_was_cancelled_too_goes_to_the_third(tmp_path: Path) -> None:
    world = World()
    async with ledger_at(tmp_path) as scope:
        run = await start(scope)
        await drained(run, world)
        second = run.call(world.tool(), "a")
        await run.delivery(second)
        run.gateway.undelivered(second.tool_call_id)
        await run.make(world.tool(), "a")
        assert len(world.acts) == 1


async def test_an_equal_call_waits_for_one_in_doubt_and_then_is_made_for_itself(tmp_path: Path) -> None:
    world = World()
    tool = world.tool()
    async with ledger_at(tmp_path) as scope:
        run = await start(scope)
        world.failing = [TimeoutError()]
        first = run.call(tool, "a")
        a = asyncio.ensure_future(run.result(first))
        await until(lambda: run.gateway.waiting)
        second = run.call(tool, "a")
        b = asyncio.ensure_future(run.result(second))
        await until(lambda: second.tool_call_id in run.gateway.waiting)
        assert set(run.gateway.waiting.values()) == {"in_doubt"}
        await resolve(scope, first.tool_call_id, Happened({"done": "found"}), basis="log", by="ada")
        assert await a == {"done": "found"}
        assert await b == {"done": "a"}
        assert len(world.acts) == 2


async def test_an_equal_call_gets_the_answer_of_one_that_was_given_up_and_settled_later(tmp_path: Path) -> None:
    world = World()
    tool = world.tool()
    async with ledger_at(tmp_path) as scope:
        run = await start(scope)
        world.failing = [TimeoutError()]
        first = run.call(tool, "a")
        a = asyncio.ensure_future(run.result(first))
        await until(lambda: run.gateway.waiting)
        await resolve(scope, first.tool_call_id, Abandon(), basis="no time", by="ada")
        with pytest.raises(Abandoned):
            await a
        b = asyncio.ensure_future(run.make(tool, "a"))
        await until(lambda: run.gateway.waiting)
        await resolve(scope, first.tool_call_id, Happened({"done": "found"}), basis="log", by="ada")
        assert await b == {"done": "found"}
        assert len(world.acts) == 1


@pytest.mark.parametrize("ends", ["happened", "did not happen"])
async def test_a_resumed_run_knows_the_twins_that_its_dead_process_left(tmp_path: Path, ends: str) -> None:
    world, clock = World(), SimulatedClock()
    tool = world.tool()
    async with ledger_at(tmp_path, clock) as scope:
        run = await start(scope)
        await killed_after_dispatch(run, world, tool)
        run = await run.resume()
        first = await run.recorded(tool, "a")
        a = asyncio.ensure_future(run.result(first))
        run.sites = 10
        b = asyncio.ensure_future(run.make(tool, "a"))
        await until(lambda: list(run.gateway.waiting.values()) == ["in_doubt", "in_doubt"])
        clock.advance(HOUR)
        answer = Happened({"done": "x"}) if ends == "happened" else DidNotHappen()
        await resolve(scope, first.tool_call_id, answer, basis="log", by="ada")
        assert await a == ({"done": "x"} if ends == "happened" else {"done": "a"})
        assert await b == {"done": "a"}
        assert len(world.acts) == (2 if ends == "happened" else 3)


async def test_a_twin_that_failed_does_not_answer_for_another(tmp_path: Path) -> None:
    world = World()
    async with ledger_at(tmp_path) as scope:
        run = await start(scope)
        world.failing = [ToolFailed("no")]
        results = await asyncio.gather(*(run.make(world.tool(), "a") for _ in range(2)), return_exceptions=True)
        assert isinstance(results[0], ToolFailed)
        assert results[1] == {"done": "a"}
