"""Streams that the code gave up, and whose process died before their end was on record."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from refold import App, Completion, Run, Scripted, Stream
from refold.gateway.models import ModelRequest, Part
from refold.runtime import executor


class Clinging(Scripted):
    """A model that says nothing, and whose connection does not close when it is told to."""

    async def stream(self, request: ModelRequest, *, timeout: float) -> AsyncGenerator[Part | Completion, None]:
        try:
            await asyncio.Event().wait()
            yield Part("never")
        finally:
            await asyncio.Event().wait()


async def test_an_attempt_that_died_is_lost_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executor, "_SLICE", 0)  # The host looks in after every delivery.
    ledger = str(tmp_path / "l.db")

    def app_of(model: Scripted) -> App:
        app = App("t", models={"m": model})

        @app.workflow(name="work")
        async def work(run: Run) -> str:
            async def listen() -> None:
                async with run.stream("m", messages=[{"role": "user", "content": "hi"}]) as stream:
                    async for _ in stream:
                        pass

            task = asyncio.create_task(listen())
            await run.signal("stop")
            task.cancel()
            await asyncio.sleep(0)
            task.cancel()  # As cancel scopes do.
            await asyncio.gather(task, return_exceptions=True)
            return "over"

        return app

    async with app_of(Clinging([])).open(ledger) as rf, asyncio.timeout(20):
        run = await rf.start("work")
        async for event in rf.scope.follow(Stream.run(run.id)):
            if event.type == "inference.requested":
                await rf.signal(run.id, "stop")
            if event.type == "signal.received":
                break
    async with app_of(Scripted(["hello"])).open(ledger) as rf, asyncio.timeout(20):
        assert await (await rf.get(run.id)).result() == "over"
        types = [event.type async for event in rf.scope.read(Stream.run(run.id))]
        assert types.count("inference.lost") == 1
        assert types.count("cost.recorded") == types.count("inference.requested")
