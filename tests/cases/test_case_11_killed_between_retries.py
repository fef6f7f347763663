"""Case 11: killed between two retries, a run came back with "output and error are both null". Here attempts are events,
and the count goes on.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from refold import RunEnded
from refold.demo.faults import Fault
from refold.projections.rows import ToolCallRow
from tests.cases.dying import KEY, run_and_die, shop
from tests.runtime.paying import events_of, receipts
from tests.world.world import World


@pytest.mark.parametrize("answers", [True, False], ids=["answered at last", "never answered"])
async def test_case_11_the_count_of_attempts_goes_on(answers: bool, world: World, tmp_path: Path) -> None:
    account = world.account()
    world.payments.faults.order(Fault(acts=False, status=503), 1 if answers else 2)
    run_and_die(tmp_path, account.url, "fetches", "in the second attempt")
    async with shop(account.url).open(str(tmp_path / "ledger.db")) as rf:
        run = await rf.start("fetches", key=KEY)
        if answers:
            assert [await run.result()] == receipts(account)
        else:
            with pytest.raises(RunEnded, match="HTTP 503"):
                await run.result()
        events = await events_of(rf, run)
        sent = [event.facts.claim.attempt for event in events if event.type == "tool.dispatched"]
        assert sent == [1, 2, 3]
        async with rf.scope.reader() as reader:
            (call,) = await reader.rows(ToolCallRow, {"run_id": run.id})
        assert (call.attempts, call.status) == (3, "succeeded" if answers else "failed")
    assert len(account.charges()) == answers
