"""Group commit under cancellation, failure, and a second event loop."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from refold import seam
from refold.ledger.conformance.place import new_run, outputs, step, verified
from refold.ledger.ledger import Ledger, open_ledger
from refold.testing import faults

SCOPE = "acme/main"


def test_a_waiter_that_is_cancelled_cancels_neither_the_commit_nor_its_neighbours(tmp_path: Path) -> None:
    async def live() -> None:
        async with await open_ledger(tmp_path / "ledger.db") as ledger:
            scope = ledger.scope(SCOPE)
            leader, neighbour = await new_run(scope), await new_run(scope)
            leader.append(step(ledger, "led"))
            neighbour.append(step(ledger, "beside"))
            ledger.store.access.take_turn()  # As another process would; the commit waits.
            try:
                waiting = [asyncio.ensure_future(each.barrier()) for each in (leader, neighbour)]
                for _ in range(3):
                    await asyncio.sleep(0)
                waiting[0].cancel()
                await asyncio.sleep(0)
            finally:
                ledger.store.access.leave_turn()
            await waiting[1]
            with pytest.raises(asyncio.CancelledError):
                await waiting[0]
            assert outputs(await verified(scope, neighbour.stream)) == ["beside"]
            assert outputs(await verified(scope, leader.stream)) == ["led"]
            leader.append(step(ledger, "on"))
            await leader.close()
            assert outputs(await verified(scope, leader.stream)) == ["led", "on"]

    asyncio.run(live())


def test_a_commit_that_breaks_down_is_told_to_every_writer_and_hangs_none(tmp_path: Path) -> None:
    """Not a failing disk, which has its outcomes, but a defect: whatever it raises, nobody waits for ever."""

    class Defect(Exception):
        pass

    def defect(point: str) -> None:
        raise Defect

    async def live() -> None:
        async with await open_ledger(tmp_path / "ledger.db", vfs=faults.register()) as ledger:
            scope = ledger.scope(SCOPE)
            writers = [await new_run(scope) for _ in range(3)]
            for writer in writers:
                writer.append(step(ledger, "lost or kept"))
            with seam.installed(defect):
                results = await asyncio.gather(*(each.barrier() for each in writers), return_exceptions=True)
            assert all(isinstance(each, Exception) for each in results)
            for writer in writers:
                (told,) = await asyncio.gather(asyncio.wait_for(writer.barrier(), 30), return_exceptions=True)
                assert isinstance(told, Exception)
                assert not isinstance(told, TimeoutError), "it waits for ever"
                again = await scope.writer(writer.stream)
                again.append(step(ledger, "on"))
                await again.close()
                assert outputs(await verified(scope, writer.stream))[-1] == "on"

    asyncio.run(live())


def test_a_second_event_loop_keeps_the_lease_too(tmp_path: Path) -> None:
    async def first() -> Ledger:
        ledger = await open_ledger(tmp_path / "ledger.db")
        await new_run(ledger.scope(SCOPE))
        return ledger

    ledger = asyncio.run(first())

    async def second() -> None:
        writer = await new_run(ledger.scope(SCOPE))
        assert len(asyncio.all_tasks()) == 2, "besides this test, something must renew the lease in this loop"
        await writer.close()
        await ledger.close()

    asyncio.run(second())
