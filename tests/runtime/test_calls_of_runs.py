"""Calls whose key cannot be made, that were given up before they were sent, and that outlive their run."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from refold import App, Run, Stream, seam
from refold.gateway.errors import BadKey


async def test_a_key_that_cannot_be_made_is_raised_where_the_tool_is_called(tmp_path: Path) -> None:
    app = App("t")

    @app.tool(key="{order}")
    async def ship(order: str) -> str:
        return order

    @app.workflow()
    async def work(run: Run) -> str:
        with pytest.raises(BadKey):
            await ship("")
        return await ship("7")

    async with app.open(str(tmp_path / "l.db")) as rf, asyncio.timeout(20):
        assert await (await rf.start(work)).result() == "7"


async def test_a_tool_that_answers_while_its_run_ends_without_it_does_not_disturb_the_end(tmp_path: Path) -> None:
    app, returned = App("t"), asyncio.Event()
    answers = asyncio.Event()

    @app.tool(on_cancel="abandon")
    async def act() -> str:
        await answers.wait()
        return "late"

    @app.workflow()
    async def work(run: Run) -> str:
        task = asyncio.create_task(act())
        await run.signal("go")
        task.cancel()
        returned.set()
        return "over"

    def at(point: str) -> None:
        if point == "stream.append" and returned.is_set():
            answers.set()

    with seam.installed(at):
        async with app.open(str(tmp_path / "l.db")) as rf, asyncio.timeout(20):
            run = await rf.start(work)
            async for event in rf.scope.follow(Stream.run(run.id)):
                if event.type == "tool.dispatched":
                    break
            await rf.signal(run.id, "go")
            running = rf.running(run.id)
            assert running is not None
            assert await run.result() == "over"
            await running.task
            assert running.error is None


async def test_a_call_that_was_given_up_unsent_before_a_death_has_its_end_before_the_run_has(tmp_path: Path) -> None:
    app, ledger = App("t"), str(tmp_path / "l.db")

    @app.tool(effect="read", marks_sending=True)
    async def look() -> str:
        await asyncio.Event().wait()
        return "never"

    @app.workflow()
    async def work(run: Run) -> str:
        task = asyncio.create_task(look())
        await run.signal("go")
        task.cancel()
        return "over"

    async with app.open(ledger) as rf, asyncio.timeout(20):
        run = await rf.start(work)
        async for event in rf.scope.follow(Stream.run(run.id)):
            if event.type == "tool.claimed":
                await rf.signal(run.id, "go")
            if event.type == "signal.received":
                break
    async with app.open(ledger) as rf, asyncio.timeout(20):
        assert await (await rf.get(run.id)).result() == "over"
        types = [event.type async for event in rf.scope.read(Stream.run(run.id))]
        assert types[-2:] == ["tool.failed", "run.succeeded"]
