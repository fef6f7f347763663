"""Case 1: calls longer than some minutes were swept as lost and silently run again. Here the lease outlives the call by
heartbeat, and where it lapses after the dispatch, the call is in doubt and not sent again.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from refold import App, Happened, Run
from refold.clock import SystemClock
from refold.ledger.port import LEASE
from tests.runtime.paying import doubts_of


class Machine(SystemClock):
    """The clock of a machine on which time passes when the test says so."""

    def __init__(self) -> None:
        self._passed = 0

    def now(self) -> int:
        return super().now() + self._passed

    def since_boot(self) -> int:
        return super().since_boot() + self._passed

    def passes(self, microseconds: int) -> None:
        self._passed += microseconds


class Slow:
    """An App whose tool takes as long as the test wants."""

    def __init__(self) -> None:
        self.app = App("slow")
        self.paid: list[int] = []
        self.began, self.answers = asyncio.Event(), asyncio.Event()
        pay = self.app.tool(effect="unsafe", timeout=7200)(self._pay)

        @self.app.workflow()
        async def work(run: Run) -> str:
            return await pay(7)

    async def _pay(self, amount: int) -> str:
        self.paid.append(amount)
        self.began.set()
        await self.answers.wait()
        return "receipt"


async def test_case_01_a_call_of_many_leases_is_left_alone_while_its_process_lives(tmp_path: Path) -> None:
    machine, slow = Machine(), Slow()
    path = str(tmp_path / "l.db")
    async with slow.app.open(path, clock=machine) as rf:
        run = await rf.start("work")
        await slow.began.wait()
        for _ in range(10):
            machine.passes(LEASE // 2)
            await rf.ledger.store.renew()  # What its heartbeat does in this time.
            async with slow.app.open(path, clock=machine) as other:
                assert await other.recover() == []
        assert (await run.row()).status == "running"
        slow.answers.set()
        assert await run.result() == "receipt"
    assert slow.paid == [7]


async def test_case_01_a_lapse_after_the_dispatch_is_a_doubt_and_nothing_is_sent_again(tmp_path: Path) -> None:
    machine, slow = Machine(), Slow()
    path = str(tmp_path / "l.db")
    async with slow.app.open(path, clock=machine, recover=False) as frozen:
        run = await frozen.start("work")
        await slow.began.wait()
        machine.passes(LEASE + 1)
        async with slow.app.open(path, clock=machine) as other:
            taken = await other.get(run.id)
            (call,) = await doubts_of(taken)
            slow.answers.set()  # The one that was frozen is late: its answer is fenced.
            await other.resolve(call, Happened("receipt by the log"), basis="the bank's log", by="ada")
            assert await taken.result() == "receipt by the log"
    assert slow.paid == [7]
