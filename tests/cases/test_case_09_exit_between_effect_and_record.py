"""Case 9: the process exited between the effect and its checkpoint; it was charged twice, the result said "ok", and
there was nothing to see. Here it is once, and in doubt where everybody can see it.
"""

from __future__ import annotations

from pathlib import Path

from refold import Happened
from tests.cases.dying import KEY, run_and_die, shop
from tests.runtime.paying import doubts_of, events_of, receipts
from tests.world.world import World


async def test_case_09_an_exit_after_the_charge_is_a_doubt_that_is_seen_and_one_charge(
    world: World, tmp_path: Path
) -> None:
    account = world.account(forgetful=True)
    run_and_die(tmp_path, account.url, "pays", "after the charge")
    async with shop(account.url).open(str(tmp_path / "ledger.db")) as rf:
        run = await rf.start("pays", key=KEY)
        (call,) = await doubts_of(run)
        row = await run.row()
        assert (row.status, row.reason) == ("paused", "in_doubt")
        assert [event.type for event in await events_of(rf, run)] == ["tool.dispatched", "tool.doubted"]
        (found,) = receipts(account)
        await rf.resolve(call, Happened(found), basis="the service's log", by="ada")
        assert await run.result() == found
    assert len(account.charges()) == 1
