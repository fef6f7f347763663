"""Code that is left where it stands, and code that a cancel scope does not leave alone."""

from __future__ import annotations

import asyncio
from pathlib import Path

import anyio

from refold import App, InferenceSkipping, Run, Stream


async def test_code_that_is_left_calls_no_tool_in_its_finally(tmp_path: Path) -> None:
    app, paid = App("t"), []

    @app.tool(effect="unsafe")
    async def pay(amount: int) -> int:
        paid.append(amount)
        return amount

    @app.workflow()
    async def work(run: Run) -> int:
        try:
            await run.step(int, 0)
            return await run.signal("go", int)  # type: ignore[no-any-return]
        finally:
            await pay(7)

    async with app.open(str(tmp_path / "l.db")) as rf:
        run = await rf.start(work)
        async for event in rf.scope.follow(Stream.run(run.id)):
            if event.type == "step.completed":
                break
    assert paid == []
    async with app.open(str(tmp_path / "l.db")) as rf:
        await rf.signal(run.id, "go", 3)
        assert await (await rf.get(run.id)).result() == 3
        assert paid == [7]
        assert (await rf.replay(run.id, InferenceSkipping())).equal
    assert paid == [7]


async def test_code_that_is_left_within_a_cancel_scope_leaves_nothing_on_the_host_s_loop(tmp_path: Path) -> None:
    app = App("t")

    @app.workflow()
    async def work(run: Run) -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(anyio.sleep, 60)
            await run.step(int, 0)
            await run.signal("go")

    async with app.open(str(tmp_path / "l.db")) as rf:
        run = await rf.start(work)
        async for event in rf.scope.follow(Stream.run(run.id)):
            if event.type == "step.completed":
                break
    await asyncio.sleep(0)
    assert not asyncio.get_running_loop()._ready  # type: ignore[attr-defined]


async def test_a_cancel_scope_over_a_call_that_drains_does_not_keep_the_run_from_its_answer(tmp_path: Path) -> None:
    app, out_there = App("t"), asyncio.Event()

    @app.tool(effect="unsafe")
    async def pay(amount: int) -> str:
        await out_there.wait()
        return f"receipt {amount}"

    async def inside() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(pay(7))  # type: ignore[arg-type]

    @app.workflow()
    async def work(run: Run) -> str:
        async with anyio.create_task_group() as group:
            group.start_soon(inside)
            await run.sleep(0.01)
            group.cancel_scope.cancel()
        return "went on"

    async with app.open(str(tmp_path / "l.db")) as rf:
        run = await rf.start(work)
        async for event in rf.scope.follow(Stream.run(run.id)):
            if event.type == "timer.fired":
                break
        running = rf.running(run.id)
        assert running is not None
        assert running.live is not None
        while not any(each.cancelling for each in running.live.executor.asked.values()):
            await asyncio.sleep(0)
        out_there.set()
        assert await run.result() == "went on"
        assert (await rf.replay(run.id, InferenceSkipping())).equal
