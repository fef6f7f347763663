"""Pauses before a run has begun, and while its end is being recorded."""

from __future__ import annotations

import asyncio
from pathlib import Path

from refold import App, Run, Stream, open_ledger, seam
from refold.events.catalog.run import RunCreated
from refold.events.content import seal
from refold.ledger.drafts import Draft
from refold.ledger.port import InboxItem
from refold.ledger.writer import StreamWriter
from refold.runtime.posting import pause
from refold.runtime.running import Running


async def test_a_pause_that_comes_as_the_run_ends_does_not_disturb_the_end(tmp_path: Path) -> None:
    app = App("t")
    payload, _ = seal(b'{"basis": "too late"}', bytes(16))
    ends: list[Running] = []

    @app.workflow()
    async def work(run: Run) -> str:
        await run.signal("go")
        ends.append(running)
        return "over"

    def at(point: str) -> None:
        if point == "stream.append" and ends:
            ends.pop().hand(InboxItem("pause:1", "pause", payload, "", 0))

    with seam.installed(at):
        async with app.open(str(tmp_path / "l.db")) as rf, asyncio.timeout(20):
            run = await rf.start(work)
            found = rf.running(run.id)
            assert found is not None
            running = found
            await rf.signal(run.id, "go")
            assert await run.result() == "over"
            await running.task
            assert running.error is None


async def test_a_run_that_was_paused_again_and_again_before_it_began_begins_once(tmp_path: Path) -> None:
    app, ledger = App("t"), str(tmp_path / "l.db")

    @app.workflow()
    async def work(run: Run) -> str:
        return await run.signal("go")  # type: ignore[no-any-return]

    async with await open_ledger(ledger) as made:
        scope = made.scope("default/default")
        run_id = made.ids.new("run")
        created = RunCreated("work", run_id, run_id, workflow_version=1, subject_id="work", seed="00")
        # Its process dies before the run begins.
        writer = await scope.create(Draft(created, {"input": None}), run_id)
        assert isinstance(writer, StreamWriter)
        await writer.close()
        for _ in range(20):
            await pause(scope, run_id, "not now")
    async with app.open(ledger) as rf, asyncio.timeout(20):
        await rf.signal(run_id, "other")  # Somebody has to tell it something for it to be looked at.
        async for event in rf.scope.follow(Stream.run(run_id)):
            if event.type == "signal.received":
                break
        assert (await (await rf.get(run_id)).row()).reason == "requested"
    async with app.open(ledger) as rf, asyncio.timeout(20):
        run = await rf.resume(run_id)
        await rf.signal(run_id, "go", "ok")
        assert await run.result() == "ok"
        types = [event.type async for event in rf.scope.read(Stream.run(run_id))]
        assert types.count("run.started") == 1
