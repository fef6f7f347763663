"""How a call of a run ended, for each thing that a network and a service can do to it, and each effect class."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from refold import DidNotHappen, Happened, InferenceSkipping, NotSent, Run, RunPaused, ToolFailed
from refold.demo.faults import Fault
from tests.gateway.outside import refused_port
from tests.runtime.paying import EFFECTS, JumpingClock, Till, doubts_of, events_of, receipts
from tests.world.fixtures import session_world, world
from tests.world.world import World

__all__ = ["session_world", "world"]

NO_ANSWER = (500, 503, 408, 409, 425, 429)

UNKNOWN: dict[str, tuple[Fault, str]] = {
    "reset, not done": (Fault(acts=False, ends="reset"), "connection"),
    "reset, done": (Fault(ends="reset"), "connection"),
    "closed": (Fault(ends="close"), "connection"),
    "half an answer": (Fault(ends="half"), "connection"),
    "silent, not done": (Fault(held="before acting"), "timeout"),
    "silent, done": (Fault(held="before answering"), "timeout"),
    **{f"{status}, not done": (Fault(acts=False, status=status), "server_error") for status in NO_ANSWER},
    **{f"{status}, done": (Fault(status=status), "server_error") for status in NO_ANSWER},
}


def till_with(world: World, effect: Any, fault: Fault, **contract: Any) -> Till:
    """A till whose next request has this fault."""
    if fault.held:
        contract["timeout"] = 0.4
    till = Till(world, effect, **contract)
    till.service.faults.order(replace(fault, method="GET" if effect == "read" else "POST"))

    @till.app.workflow()
    async def work(run: Run) -> Any:
        return await till.pay("7")

    return till


@pytest.mark.parametrize("name", UNKNOWN)
async def test_no_answer_of_an_unsafe_tool_is_a_doubt_and_sends_nothing_more(
    name: str, world: World, tmp_path: Path
) -> None:
    fault, why = UNKNOWN[name]
    till, clock = till_with(world, "unsafe", fault), JumpingClock()
    async with till.app.open(str(tmp_path / "l.db"), clock=clock) as rf:
        run = await rf.start("work")
        (call,) = await doubts_of(run)
        doubted = await events_of(rf, run)
        assert [event.type for event in doubted] == ["tool.dispatched", "tool.doubted"]
        assert doubted[-1].facts.why == why
        # A request that the service held may still be done: that is what settling is for.
        await asyncio.to_thread(till.service.faults.release)
        done = not name.endswith("not done")
        while fault.held and not till.account.charges():
            await asyncio.sleep(0.01)
        assert len(till.account.charges()) == (done or fault.held != "")
        clock.jump()
        found = receipts(till.account)
        await rf.resolve(call, Happened(found[0]) if found else DidNotHappen(), basis="the log", by="ada")
        result = await run.result()
        assert [result] == receipts(till.account)
        last = ["tool.resolved"] if found else ["tool.resolved", "tool.dispatched", "tool.answered"]
        assert [event.type for event in (await events_of(rf, run))[2:]] == last
        assert (await rf.replay(run.id, InferenceSkipping())).equal


@pytest.mark.parametrize("effect", ["read", "idempotent"])
@pytest.mark.parametrize("name", UNKNOWN)
async def test_no_answer_of_a_tame_tool_is_tried_again_under_the_same_key(
    name: str, effect: str, world: World, tmp_path: Path
) -> None:
    fault, why = UNKNOWN[name]
    till = till_with(world, effect, fault)
    async with till.app.open(str(tmp_path / "l.db")) as rf:
        run = await rf.start("work")
        result = await run.result()
        tried = ["tool.dispatched", "tool.failed", "tool.dispatched", "tool.answered"]
        events = await events_of(rf, run)
        assert [event.type for event in events] == tried
        failed = events[1].facts
        assert (failed.how, failed.error_code, failed.retrying) == ("unknown", why, True)
        assert [result] == receipts(till.account)


@pytest.mark.parametrize("effect", EFFECTS)
async def test_a_connection_that_breaks_as_it_is_made_does_nothing_twice(
    effect: str, world: World, tmp_path: Path
) -> None:
    # The break may be seen while connecting, when nothing was sent, or while sending.
    till, clock = till_with(world, effect, Fault(reads=False)), JumpingClock()
    async with till.app.open(str(tmp_path / "l.db"), clock=clock) as rf:
        run = await rf.start("work")
        try:
            result = await run.result()
        except RunPaused as paused:
            assert effect == "unsafe"
            clock.jump()
            await rf.resolve(paused.facts["doubts"][0], DidNotHappen(), basis="the log", by="ada")
            result = await run.result()
        assert [result] == receipts(till.account)


@pytest.mark.parametrize("effect", EFFECTS)
@pytest.mark.parametrize("status", [400, 404, 422])
async def test_a_no_is_a_failure_that_is_answered(status: int, effect: str, world: World, tmp_path: Path) -> None:
    till = till_with(world, effect, Fault(acts=False, status=status))
    before = len(till.account.charges())
    async with till.app.open(str(tmp_path / "l.db")) as rf:
        run = await rf.start("work")
        with pytest.raises(Exception, match=f"HTTP {status}"):
            await run.result()
        events = await events_of(rf, run)
        assert [event.type for event in events] == ["tool.dispatched", "tool.failed"]
        assert (events[1].facts.how, events[1].facts.retrying) == ("answered", False)
        assert len(till.account.charges()) == before


@pytest.mark.parametrize("effect", EFFECTS)
async def test_where_nobody_listens_nothing_was_sent_and_it_is_tried_again(
    effect: str, world: World, tmp_path: Path
) -> None:
    till = Till(world, effect, url=f"http://127.0.0.1:{refused_port()}/")

    @till.app.workflow()
    async def work(run: Run) -> str:
        try:
            await till.pay("7")
        except NotSent:
            return "not sent"
        except ToolFailed as error:
            return type(error).__name__
        return "paid"

    async with till.app.open(str(tmp_path / "l.db")) as rf:
        run = await rf.start("work")
        assert await run.result() == "not sent"
        events = await events_of(rf, run)
        assert [event.type for event in events] == ["tool.dispatched", "tool.failed"] * 3
        failures = [(event.facts.how, event.facts.retrying) for event in events[1::2]]
        assert failures == [("not_sent", True), ("not_sent", True), ("not_sent", False)]
