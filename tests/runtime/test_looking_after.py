"""What a process does for the runs that it has, and what it keeps of those that are over."""

from __future__ import annotations

import asyncio
import gc
import weakref
from pathlib import Path

import pytest

from refold import App, Run, Scripted, Stream
from refold.errors import RefoldError
from refold.events.catalog.inference import Usage
from refold.gateway.prices import Price


class Broken:
    """A price table with a bug."""

    def price(self, provider: str, model: str, usage: Usage, at_us: int) -> Price | None:
        raise LookupError("no such sheet")


async def test_code_of_the_hosts_that_fails_is_told_to_whoever_waits_for_the_result(tmp_path: Path) -> None:
    app = App("t", models={"m": Scripted(["hello"])}, prices=Broken())

    @app.workflow()
    async def work(run: Run) -> str:
        return (await run.infer("m", messages=[{"role": "user", "content": "hi"}])).text

    async with app.open(str(tmp_path / "l.db")) as rf, asyncio.timeout(20):
        with pytest.raises(RefoldError, match="no such sheet"):
            await (await rf.start(work)).result()


async def test_nothing_is_kept_of_a_run_that_ended(tmp_path: Path) -> None:
    app = App("t")

    @app.tool()
    async def act() -> bytes:
        return bytes(1_000)

    @app.workflow()
    async def work(run: Run) -> int:
        return len(await act())

    async with app.open(str(tmp_path / "l.db")) as rf, asyncio.timeout(20):
        handle = await rf.start(work, deadline=3600)
        running = rf.running(handle.id)
        assert running is not None
        kept = weakref.ref(running)
        assert await handle.result() == 1_000
        await running.task
        del running
        gc.collect()
        assert kept() is None
        assert await handle.result() == 1_000


async def test_an_answer_is_not_kept_beyond_its_run(tmp_path: Path) -> None:
    from refold.gateway.under_way import _ATTEMPTS

    app = App("t")

    @app.tool()
    async def act() -> str:
        return "done"

    @app.workflow()
    async def work(run: Run) -> list[str]:
        return list(await asyncio.gather(*(act() for _ in range(3))))

    async with app.open(str(tmp_path / "l.db")) as rf, asyncio.timeout(20):
        assert await (await rf.start(work)).result() == ["done"] * 3
        assert not _ATTEMPTS.get(rf.ledger)


async def test_a_parent_that_cannot_go_on_here_does_not_cancel_its_children(tmp_path: Path) -> None:
    app = App("t", models={"m": Scripted(["hello"])}, prices=Broken())

    @app.workflow()
    async def part(run: Run) -> str:
        return await run.signal("go")  # type: ignore[no-any-return]

    @app.workflow()
    async def whole(run: Run) -> None:
        async def asks() -> None:
            await run.signal("ask")
            await run.infer("m", messages=[{"role": "user", "content": "hi"}])

        async with asyncio.TaskGroup() as group:
            group.create_task(run.child(part))
            group.create_task(asks())

    async with app.open(str(tmp_path / "l.db"), recover=False) as rf, asyncio.timeout(20):
        parent = await rf.start(whole)
        async for event in rf.scope.follow(Stream.run(parent.id)):
            if event.type == "child.started":
                child_id = event.facts.child_run_id
                break
        while not await rf.exists(child_id):
            await rf.ledger.store.changed()
        child = await rf.get(child_id)
        await rf.signal(parent.id, "ask")
        with pytest.raises(RefoldError, match="no such sheet"):
            await parent.result()
        await rf.signal(child.id, "go", "gone")
        assert await child.result() == "gone"
