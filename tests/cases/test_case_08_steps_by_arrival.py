"""Case 8: `gather` of different steps was recorded by arrival, and recovery failed as "unexpected step" and tried again
for ever. Here a step is known by its place in the code; code that changed pauses the run, explained, and once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from refold import App, InferenceSkipping, Run, RunPaused, Stream


class Gates:
    """Three steps that end when they are let go, and a workflow that waits for all of them."""

    def __init__(self, third: Callable[..., Any] | None = None) -> None:
        self.app = App("t")
        self.open = {name: asyncio.Event() for name in ("bread", "milk", "eggs")}
        self.ran: list[str] = []

        async def bread() -> str:
            return await self._until("bread")

        async def milk() -> str:
            return await self._until("milk")

        async def eggs() -> str:
            return await self._until("eggs")

        @self.app.workflow()
        async def shop(run: Run) -> list[str]:
            return await asyncio.gather(run.step(bread), run.step(milk), run.step(third or eggs))

    async def _until(self, name: str) -> str:
        await self.open[name].wait()
        self.ran.append(name)
        return name


async def _until_two_arrived(gates: Gates, ledger: str) -> str:
    async with gates.app.open(ledger) as rf:
        run = await rf.start("shop")
        gates.open["eggs"].set()
        async for event in rf.scope.follow(Stream.run(run.id)):
            if event.type == "step.completed":
                if event.site.endswith("/bread#1"):
                    return run.id
                gates.open["bread"].set()
    raise AssertionError("the stream ended")


async def _recovered(ledger: str) -> None:
    run_id = await _until_two_arrived(Gates(), ledger)
    later = Gates()
    later.open["milk"].set()
    async with later.app.open(ledger) as rf:
        run = await rf.get(run_id)
        assert await run.result() == ["bread", "milk", "eggs"]
        assert later.ran == ["milk"]
        assert (await rf.replay(run_id, InferenceSkipping())).equal


def test_case_08_steps_that_arrived_in_another_order_are_found_by_their_place(tmp_path: Path) -> None:
    asyncio.run(_recovered(str(tmp_path / "l.db")))


async def _changed(ledger: str) -> None:
    run_id = await _until_two_arrived(Gates(), ledger)

    async def cheese() -> str:
        return "cheese"

    for _ in range(3):
        changed = Gates(cheese)
        async with changed.app.open(ledger) as rf:
            run = await rf.get(run_id)
            with pytest.raises(RunPaused) as paused:
                await run.result()
            assert paused.value.reason == "diverged"
            (divergence,) = paused.value.facts["divergences"]
            assert "eggs" in str(divergence["step"])
            assert divergence["first_difference"].startswith("the record has a step here")
            types = [event.type async for event in rf.scope.read(Stream.run(run_id))]
            assert types.count("run.paused") == 1
            assert changed.ran == []


def test_case_08_changed_steps_pause_the_run_once_and_are_explained(tmp_path: Path) -> None:
    asyncio.run(_changed(str(tmp_path / "l.db")))
