"""Child runs: under keys that others have, and ended before their parent looks."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from refold import App, ChildFailed, Run
from refold.events.identity import Stream
from refold.ledger.ledger import open_ledger
from refold.runtime.posting import post_signal


async def test_a_child_under_the_key_of_a_run_is_that_run(tmp_path: Path) -> None:
    app = App("t")

    @app.workflow()
    async def part(run: Run, number: int) -> int:
        return 2 * number

    @app.workflow()
    async def whole(run: Run) -> list[int | str]:
        return [await run.child(part, 4, key="k"), await run.child(part, 4, key="k", attached=False)]

    async with app.open(str(tmp_path / "l.db")) as rf, asyncio.timeout(20):
        first = await rf.start(part, 4, key="k")
        assert await (await rf.start(whole)).result() == [8, first.id]


async def test_a_child_under_a_key_that_stands_for_other_work_has_failed(tmp_path: Path) -> None:
    app = App("t")

    @app.workflow()
    async def part(run: Run, number: int) -> int:
        return 2 * number

    @app.workflow()
    async def whole(run: Run) -> str | None:
        with pytest.raises(ChildFailed) as failed:
            await run.child(part, 5, key="k")
        return failed.value.facts["error_code"]  # type: ignore[no-any-return]

    async with app.open(str(tmp_path / "l.db")) as rf, asyncio.timeout(20):
        await rf.start(part, 4, key="k")
        assert await (await rf.start(whole)).result() == "key_conflict"


async def test_a_child_that_ended_before_it_was_cancelled_does_not_stop_its_parent(tmp_path: Path) -> None:
    ledger = str(tmp_path / "l.db")
    children, both = App("t"), App("t")

    async def part(run: Run) -> str:
        return await run.signal("go", str)  # type: ignore[no-any-return]

    child = both.workflow()(part)
    children.workflow()(part)

    @both.workflow()
    async def whole(run: Run) -> str:
        task = asyncio.create_task(run.child(child))
        word: str = await run.signal("stop", str)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return word

    async with both.open(ledger) as rf, asyncio.timeout(20):
        parent = await rf.start(whole)
        async for event in rf.scope.follow(Stream.run(parent.id)):
            if event.type == "child.started":
                part_id = event.facts.child_run_id
                break
    # The child ends where the parent's code is not, and somebody stops the parent meanwhile.
    async with children.open(ledger) as rf, asyncio.timeout(20):
        await rf.signal(part_id, "go", "gone")
        assert await (await rf.get(part_id)).result() == "gone"
    other = await open_ledger(ledger)
    await post_signal(other.scope("default/default"), parent.id, "stop", b'"stopped"')
    await other.close()
    async with both.open(ledger) as rf, asyncio.timeout(20):
        assert await (await rf.get(parent.id)).result() == "stopped"
