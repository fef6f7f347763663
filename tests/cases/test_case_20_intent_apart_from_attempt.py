"""Case 20: an exception after the call left a completed call without an outcome, and a retry with a new id that nothing
relates to it. Here the intent is apart from its attempts: one effect, one downstream key, every attempt under it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from refold import Resend, Run
from refold.projections.rows import IntentRow
from refold.runtime.handle import RunHandle
from refold.runtime.opened import Refold
from tests.runtime.paying import Till, doubts_of, events_of, receipts
from tests.world.world import World


def till_that_stumbles(world: World, effect: str) -> Till:
    """Its code fails once, when the service has answered."""
    till = Till(world, effect)
    till.account = world.account()
    failures = [KeyError("id")]

    async def stumbles() -> None:
        if failures:
            raise failures.pop()

    till.after = stumbles  # type: ignore[assignment]
    till._url = till.account.url

    @till.app.workflow()
    async def work(run: Run) -> Any:
        return await till.pay("7")

    return till


async def one_intent(rf: Refold, run: RunHandle) -> IntentRow:
    async with rf.scope.reader() as reader:
        (row,) = [each async for each in reader.each(IntentRow, {})]
    assert row.owner_run_id == run.id
    return row


async def test_case_20_attempts_are_of_one_intent_and_have_one_key(world: World, tmp_path: Path) -> None:
    till = till_that_stumbles(world, "idempotent")
    async with till.app.open(str(tmp_path / "l.db")) as rf:
        run = await rf.start("work")
        assert [await run.result()] == receipts(till.account)
        row = await one_intent(rf, run)
        assert (row.status, row.attempts, row.settled) == ("succeeded", 2, 0)
        assert {event.facts.intent_id for event in await events_of(rf, run)} == {row.intent_id}


async def test_case_20_an_unsafe_call_is_in_doubt_and_sent_again_only_when_told_under_the_same_key(
    world: World, tmp_path: Path
) -> None:
    till = till_that_stumbles(world, "unsafe")
    async with till.app.open(str(tmp_path / "l.db")) as rf:
        run = await rf.start("work")
        (call,) = await doubts_of(run)
        assert len(till.account.charges()) == 1
        await rf.resolve(call, Resend(), basis="the service honours keys", by="ada")
        assert [await run.result()] == receipts(till.account)
        row = await one_intent(rf, run)
        assert (row.status, row.attempts, row.settled) == ("succeeded", 2, 0)
