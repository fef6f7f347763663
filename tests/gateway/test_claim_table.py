"""The claim table, row by row, each reached by the real mechanism."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from refold.events.identity import Stream
from refold.gateway.calls import current_call
from refold.gateway.doubt import resolve
from refold.gateway.errors import (
    Abandoned,
    ChangedCall,
    IdempotencyConflict,
    InProgress,
    OutcomeUnknown,
    ReceiptErased,
    ToolFailed,
)
from refold.gateway.resolutions import Abandon, DidNotHappen, Happened
from refold.gateway.tools import Tool
from refold.ledger.ledger import ScopedLedger
from refold.ledger.maintenance.erasure import erase_run
from refold.testing.simulated import SimulatedClock
from tests.gateway.outside import World
from tests.gateway.support import AT_ONCE, ONCE, Run, ledger_at, start

KEY = "act:{order}"
HOUR = 3_600_000_000


async def killed_after_dispatch(run: Run, world: World, tool: Tool[Any, Any]) -> None:
    """The run's process is gone while its call is out."""
    world.gate.clear()
    call = asyncio.ensure_future(run.delivery(run.call(tool, "a")))
    await world.began.wait()
    await run.crash()
    call.cancel()
    await asyncio.gather(call, return_exceptions=True)
    world.gate.set()
    world.began.clear()


async def until(check: Any) -> None:
    while not check():
        await asyncio.sleep(0.001)


@pytest.mark.parametrize("effect", ["read", "idempotent", "unsafe"])
async def test_a_first_call_is_attempt_one(tmp_path: Path, effect: Any) -> None:
    world = World()
    async with ledger_at(tmp_path) as scope:
        run = await start(scope)
        assert await run.make(world.tool(effect=effect), "a") == {"done": "a"}
        row = await run.intent("act")
        assert (row.status, row.attempts, row.settled, row.revision, len(world.acts)) == ("succeeded", 1, 0, 2, 1)


async def test_another_call_under_the_same_key_is_a_conflict_that_names_the_first_difference(tmp_path: Path) -> None:
    def act(order: str, lines: list[dict[str, int]]) -> int:
        return 1

    tool = Tool(act, key=KEY)
    async with ledger_at(tmp_path) as scope:
        run = await start(scope)
        await run.make(tool, "a", [{"n": 1}, {"n": 2}])
        for other in (run, await start(scope, "elsewhere")):
            with pytest.raises(IdempotencyConflict) as raised:
                await other.make(tool, "a", [{"n": 1}, {"n": 3}])
            assert raised.value.facts["path"] == "$.lines[1].n"
        with pytest.raises(IdempotencyConflict) as raised:
            await run.make(Tool(act, key=KEY, version=2), "a", [{"n": 1}, {"n": 2}])
        assert raised.value.facts["path"] == "version"
        # The refusal left the intent alone.
        assert (await run.intent("act")).revision == 2


async def test_another_call_at_the_same_site_is_a_changed_call(tmp_path: Path) -> None:
    world = World()
    tool = world.tool()
    async with ledger_at(tmp_path) as scope:
        run = await start(scope)
        await killed_after_dispatch(run, world, tool)
        run = await run.resume()
        with pytest.raises(ChangedCall) as raised:
            await run.delivery(await run.recorded(tool, "b"))
        assert raised.value.facts["path"] == "$.order"
        assert len(world.acts) == 1


async def test_a_run_of_the_domain_waits_for_a_living_owner_and_joins(tmp_path: Path) -> None:
    world = World()
    tool = world.tool(key=KEY)
    async with ledger_at(tmp_path) as scope:
        first, second = await start(scope), await start(scope)
        world.gate.clear()
        a = asyncio.ensure_future(first.make(tool, "a"))
        await world.began.wait()
        call = second.call(tool, "a")
        b = asyncio.ensure_future(second.result(call))
        await until(lambda: second.gateway.waiting)
        assert second.gateway.waiting == {call.tool_call_id: "in_progress"}
        world.gate.set()
        assert await a == await b == {"done": "a"}
        assert len(world.acts) == 1
        assert (await second.types_of_events())[-1] == "tool.replayed"


async def test_another_domain_is_told_who_is_at_it(tmp_path: Path) -> None:
    world = World()
    tool = world.tool(key=KEY)
    async with ledger_at(tmp_path) as scope:
        first, second = await start(scope), await start(scope, "elsewhere")
        world.gate.clear()
        a = asyncio.ensure_future(first.make(tool, "a"))
        await world.began.wait()
        with pytest.raises(InProgress) as raised:
            await second.make(tool, "a")
        assert raised.value.facts["owner"] == first.id
        world.gate.set()
        await a
        assert await second.make(tool, "a") == {"done": "a"}
        assert len(world.acts) == 1


async def test_an_owner_does_not_enter_its_own_live_call_again(tmp_path: Path) -> None:
    world = World()
    tool = world.tool(key=KEY)
    async with ledger_at(tmp_path) as scope:
        run = await start(scope)
        results = await asyncio.gather(*(run.make(tool, "a") for _ in range(5)))
        assert results == [{"done": "a"}] * 5
        assert len(world.acts) == 1


async def test_a_claim_that_was_never_sent_is_claimed_again(tmp_path: Path) -> None:
    world, ready = World(), asyncio.Event()

    async def act(order: str) -> str:
        ready.set()
        await world.gate.wait()
        async with current_call().sending():
            world.acts.append(current_call().key)
        return order

    tool = Tool(act, key=KEY, marks_sending=True)
    for resumed in (True, False):
        folder = tmp_path / str(resumed)
        folder.mkdir()
        async with ledger_at(folder) as scope:
            run = await start(scope)
            world.gate.clear()
            ready.clear()
            world.acts.clear()
            call = asyncio.ensure_future(run.delivery(run.call(tool, "a")))
            await ready.wait()
            await run.crash()
            call.cancel()
            await asyncio.gather(call, return_exceptions=True)
            world.gate.set()
            assert world.acts == []
            if resumed:
                run = await run.resume()
                assert await run.result(await run.recorded(tool, "a")) == "a"
            else:
                run = await start(scope)
                assert await run.make(tool, "a") == "a"
            row = await run.intent("act")
            assert (row.attempts, row.settled, row.owner_run_id) == (2, 0, run.id)
            assert len(world.acts) == 1


@pytest.mark.parametrize("effect", ["pure", "read", "idempotent"])
async def test_a_tame_call_that_was_out_when_its_owner_died_goes_out_again_under_the_same_key(
    tmp_path: Path, effect: Any
) -> None:
    world = World()
    tool = world.tool(effect=effect)
    async with ledger_at(tmp_path) as scope:
        run = await start(scope)
        await run.writer.barrier()
        world.gate.clear()
        call = asyncio.ensure_future(run.delivery(run.call(tool, "a")))
        await world.began.wait()
        await run.writer.barrier()
        await run.crash()
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
        world.gate.set()
        run = await run.resume()
        assert await run.result(await run.recorded(tool, "a")) == {"done": "a"}
        assert (await run.intent("act")).attempts == 2
        assert len(world.acts) == 2
        assert len(set(world.acts)) == 1


@pytest.mark.parametrize(("effect", "later"), [("unsafe", 0), ("idempotent", 25 * HOUR)])
@pytest.mark.parametrize("by", ["its own run", "another run", "another domain"])
async def test_a_wild_call_that_was_out_when_its_owner_died_is_in_doubt(
    tmp_path: Path, effect: Any, later: int, by: str
) -> None:
    world, clock = World(), SimulatedClock()
    tool = world.tool(effect=effect, key=KEY)
    async with ledger_at(tmp_path, clock) as scope:
        run = await start(scope)
        await killed_after_dispatch(run, world, tool)
        clock.advance(later)
        if by == "another domain":
            other = await start(scope, "elsewhere")
            with pytest.raises(OutcomeUnknown):
                await other.make(tool, "a")
        else:
            other = await run.resume() if by == "its own run" else await start(scope)
            call = await other.recorded(tool, "a") if by == "its own run" else other.call(tool, "a")
            waiting = asyncio.ensure_future(other.result(call))
            await until(lambda: other.gateway.waiting.get(call.tool_call_id) == "in_doubt")
        row = await other.intent("act")
        assert (row.status, row.owner_run_id) == ("in_doubt", run.id)
        assert len(world.acts) == 1
        await resolve(scope, await call_of(scope, run.id), Happened({"done": "x"}), basis="their log", by="ada")
        if by == "another domain":
            assert await other.make(tool, "a") == {"done": "x"}
        else:
            assert await waiting == {"done": "x"}
        assert len(world.acts) == 1


async def call_of(scope: ScopedLedger, run_id: str) -> str:
    from refold.projections.rows import ToolCallRow

    async with scope.reader() as reader:
        return (await reader.rows(ToolCallRow, {"run_id": run_id}))[0].tool_call_id


async def test_what_succeeded_is_replayed_and_nothing_leaves_the_process(tmp_path: Path) -> None:
    world = World()
    tool = world.tool(key=KEY)
    async with ledger_at(tmp_path) as scope:
        first = await start(scope)
        await first.make(tool, "a")
        before = scope.ledger.group.commits
        second = await start(scope, "elsewhere")
        assert await second.make(tool, "a") == {"done": "a"}
        assert len(world.acts) == 1
        row = await second.intent("act")
        assert (row.revision, row.owner_run_id) == (2, first.id)  # The intent was not touched.
        assert scope.ledger.group.commits - before <= 3


async def test_a_failure_that_may_be_retried_is_tried_again_under_a_new_key(tmp_path: Path) -> None:
    world = World()
    async with ledger_at(tmp_path) as scope:
        run = await start(scope)
        world.failing = [ToolFailed("busy", retryable=True)]
        with pytest.raises(ToolFailed, match="busy"):
            await run.make(world.tool(key=KEY, retry=ONCE), "a")
        assert await run.make(world.tool(key=KEY, retry=AT_ONCE), "a") == {"done": "a"}
        row = await run.intent("act")
        assert (row.attempts, row.settled, len(set(world.acts))) == (2, 1, 2)


async def test_a_final_no_is_the_answer_for_everybody(tmp_path: Path) -> None:
    world = World()
    tool = world.tool(key=KEY)
    async with ledger_at(tmp_path) as scope:
        first, second = await start(scope), await start(scope, "elsewhere")
        world.failing = [ToolFailed("refused")]
        for run in (first, first, second):
            with pytest.raises(ToolFailed, match="refused") as raised:
                await run.make(tool, "a")
            assert type(raised.value) is ToolFailed
        assert len(world.acts) == 1
        assert (await first.types_of_events())[-2:] == ["tool.failed", "tool.replayed"]


async def test_what_was_resolved_as_not_done_is_done_under_a_new_key(tmp_path: Path) -> None:
    world, clock = World(), SimulatedClock()
    tool = world.tool()
    async with ledger_at(tmp_path, clock) as scope:
        run = await start(scope)
        await killed_after_dispatch(run, world, tool)
        clock.advance(HOUR)
        await resolve(scope, await call_of(scope, run.id), DidNotHappen(), basis="their log", by="ada")
        run = await run.resume()
        assert await run.result(await run.recorded(tool, "a")) == {"done": "a"}
        row = await run.intent("act")
        assert (row.attempts, row.settled, len(set(world.acts))) == (2, 1, 2)


async def test_what_one_run_gave_up_is_in_doubt_for_everybody_else(tmp_path: Path) -> None:
    world = World()
    tool = world.tool(key=KEY)
    async with ledger_at(tmp_path) as scope:
        run = await start(scope)
        await killed_after_dispatch(run, world, tool)
        run = await run.resume()
        call = await run.recorded(tool, "a")
        waiting = asyncio.ensure_future(run.result(call))
        await until(lambda: run.gateway.waiting)
        await resolve(scope, call.tool_call_id, Abandon(), basis="too small", by="ada")
        with pytest.raises(Abandoned):
            await waiting
        with pytest.raises(OutcomeUnknown):
            await (await start(scope, "elsewhere")).make(tool, "a")
        await run.end()
        # Resolved when its run has ended: on record in the annex, and the answer for the next.
        assert (
            await resolve(scope, call.tool_call_id, Happened({"done": "b"}), basis="log", by="ada")
        ).how == "recorded"
        assert [event.type async for event in scope.read(Stream.annex(run.id))] == ["tool.resolved"]
        assert await (await start(scope, "third")).make(tool, "a") == {"done": "b"}
        assert len(world.acts) == 1


async def test_what_succeeded_and_was_erased_is_refused(tmp_path: Path) -> None:
    world = World()
    tool = world.tool(key=KEY)
    async with ledger_at(tmp_path) as scope:
        run = await start(scope)
        await run.make(tool, "a")
        await run.end()
        await erase_run(scope, run.id, "asked", "ada")
        with pytest.raises(ReceiptErased):
            await (await start(scope)).make(tool, "a")
        assert len(world.acts) == 1


async def test_keys_of_one_tool_or_tenant_say_nothing_about_another(tmp_path: Path) -> None:
    world = World()
    async with ledger_at(tmp_path) as scope:
        run = await start(scope)
        await run.make(world.tool(key=KEY), "a")
        await run.make(world.tool(name="other", key=KEY), "a")
        stranger = await start(scope.ledger.scope("else/where"))
        await stranger.make(world.tool(key=KEY), "a")
        assert len(world.acts) == 3
