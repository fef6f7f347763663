"""`refold.testing.run`: scripted answers, a real journal, and no waiting."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from itertools import count
from time import monotonic
from typing import Any

import pytest

from refold import App, ModelCall, Run, RunEnded, RunPaused, SyncRun, ToolFailed
from refold.testing import NotReplayable, NotScripted, run

app = App("shop")


@app.tool(effect="unsafe", key="refund:{order}")
async def refund(order: str, amount: int) -> str:
    raise AssertionError("a test pays nobody")


@app.workflow()
async def handle(flow: Run, order: str) -> list[Any]:
    answer = await flow.infer("main", messages=[{"role": "user", "content": order}], tools=[refund])
    paid = [await flow.call(call) for call in answer.calls]
    first = await flow.race(go=flow.signal("go", bool), late=flow.sleep(hours=2))
    return [*paid, first.name, first.value]


@app.workflow()
async def waits(flow: Run) -> list[str]:
    begun = flow.now()
    await asyncio.gather(flow.sleep(days=3), flow.child(naps, 2), flow.child(naps, 5))
    return [str(flow.now() - begun), begun.isoformat()[:16]]


@app.workflow()
async def naps(flow: Run, hours: int) -> None:
    async with asyncio.timeout(3600 * hours + 1):
        await flow.sleep(hours=hours)


@app.workflow()
def plain(flow: SyncRun) -> str:
    flow.sleep(hours=30)
    return refund("7", 7)


ASKS = [ModelCall("c1", "refund", {"order": "88412", "amount": 12})]


async def test_answers_are_scripted_and_the_journal_is_real() -> None:
    ran = await run(
        app, handle, "88412", models={"main": [ASKS]}, tools={"refund": ["receipt 1"]}, signals=[("go", True)]
    )
    assert ran.result == ["receipt 1", "go", True]
    assert ran.replayed.equal
    assert [event.type for event in ran.events][-3:] == ["tool.answered", "signal.received", "run.succeeded"]


async def test_time_is_skipped_when_nothing_else_can_move_the_run() -> None:
    ran = await run(app, handle, "88412", models={"main": [ASKS]}, tools={"refund": lambda order, amount: order})
    assert ran.result == ["88412", "late", None]
    took = ran.events[-1].recorded_at - ran.events[0].recorded_at
    assert took > timedelta(hours=2) // timedelta(microseconds=1)


async def test_timers_of_a_run_and_of_its_children_go_off_in_their_order() -> None:
    ran = await run(app, waits, at=datetime(2030, 5, 17, 8, tzinfo=UTC))
    passed, begun = ran.result
    assert passed.startswith("3 days, 0:00:0")
    assert begun == "2030-05-17T08:00"


async def test_a_workflow_without_await_is_tested_the_same_way() -> None:
    began = monotonic()
    assert (await run(app, plain, tools={"refund": ["receipt"]})).result == "receipt"
    assert monotonic() - began < 3600


async def test_a_doubt_and_a_failure_are_results_too() -> None:
    doubted = await run(app, plain, tools={"refund": [ConnectionResetError()]})
    with pytest.raises(RunPaused, match="in_doubt"):
        _ = doubted.result
    failed = await run(app, plain, tools={"refund": [ToolFailed("no such order")]})
    with pytest.raises(RunEnded, match="no such order"):
        _ = failed.result
    assert failed.events[-1].type == "run.failed"


async def test_what_is_not_scripted_is_not_called_even_if_the_workflow_catches_it() -> None:
    tamed = App("t")

    @tamed.tool(effect="unsafe")
    def pay(amount: int) -> str:
        raise AssertionError("called")

    @tamed.workflow()
    async def work(flow: Run) -> str:
        try:
            return pay(1) if flow.id is None else await pay(1)  # type: ignore[misc]
        except ToolFailed:
            return "caught"

    with pytest.raises(NotScripted, match="Tool pay was called"):
        await run(tamed, work)
    with pytest.raises(NotScripted, match="no answer left"):
        await run(app, handle, "1", models={"main": [[*ASKS, ModelCall("c2", "refund", {"order": "2", "amount": 1})]]})


async def test_a_run_that_waits_for_a_signal_that_nobody_sends_says_so() -> None:
    forgotten = App("t")

    @forgotten.workflow()
    async def work(flow: Run) -> list[int]:
        return [await flow.signal("one", int), await flow.signal("two", int)]

    ran = await run(forgotten, work, signals=[("one", 1)])
    assert isinstance(ran.error, RunPaused)
    assert ran.error.reason == "waiting"
    assert "waits for two" in ran.error.message
    assert (await run(forgotten, work, signals=[("two", 2), ("one", 1)])).result == [1, 2]


async def test_a_workflow_that_reads_what_is_not_recorded_is_found() -> None:
    numbers, loose = count(), App("t")

    @loose.workflow()
    async def work(flow: Run) -> int:
        return await flow.step(abs, next(numbers))

    with pytest.raises(NotReplayable) as found:
        await run(loose, work)
    assert found.value.facts["divergences"][0].kind == "changed"


async def test_two_tests_of_one_app_at_the_same_time_keep_their_answers_apart() -> None:
    ran = await asyncio.gather(*(run(app, plain, tools={"refund": [f"receipt {n}"]}) for n in range(4)))
    assert [each.result for each in ran] == [f"receipt {n}" for n in range(4)]
