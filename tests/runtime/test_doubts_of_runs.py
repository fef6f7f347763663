"""Runs in doubt: what pauses them, what moves them again, and calls that their code does not wait for any more."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from refold import App, DidNotHappen, Happened, InferenceSkipping, Run, RunPaused, Stream
from refold.clock import SystemClock
from refold.runtime.handle import RunHandle
from refold.runtime.opened import Refold


class Later(SystemClock):
    """The machine's clock, an hour on: deadlines have passed and settled."""

    def now(self) -> int:
        return super().now() + 3_600_000_000


async def wait_for(rf: Refold, run: RunHandle, type_: str, count: int = 1) -> None:
    """Returns when so many events of a type are on record."""
    async for event in rf.scope.follow(Stream.run(run.id)):
        count -= event.type == type_
        if not count:
            return


async def doubts_of(run: RunHandle) -> list[str]:
    with pytest.raises(RunPaused) as paused:
        await run.result()
    assert paused.value.reason == "in_doubt"
    found: list[str] = paused.value.facts["doubts"]
    return found


class Bank:
    """A tool that hangs the first time, and what it did."""

    def __init__(self) -> None:
        self.paid: list[int] = []
        self.hangs = True

    async def pay(self, amount: int) -> str:
        self.paid.append(amount)
        if self.hangs:
            await asyncio.Event().wait()
        return f"receipt {amount}"


async def test_a_call_that_is_sent_again_after_a_doubt_is_waited_for(tmp_path: Path) -> None:
    app, asked = App("t"), asyncio.Event()
    go_on = asyncio.Event()

    @app.tool(effect="unsafe")
    async def pay(amount: int) -> str:
        if not asked.is_set():
            raise ConnectionResetError
        await go_on.wait()
        return "receipt"

    @app.workflow()
    async def work(run: Run) -> str:
        return await pay(1)

    async with app.open(str(tmp_path / "l.db")) as rf:
        run = await rf.start(work)
        (call,) = await doubts_of(run)
        asked.set()
    async with app.open(str(tmp_path / "l.db"), clock=Later()) as rf:
        await rf.resolve(call, DidNotHappen(), basis="the bank's log", by="ada")
        run = await rf.get(run.id)
        await wait_for(rf, run, "tool.dispatched", 2)
        result = asyncio.ensure_future(run.result())
        await asyncio.sleep(0)
        assert (await run.row()).status == "running"
        go_on.set()
        assert await result == "receipt"


@pytest.mark.parametrize("answer", [Happened("receipt 7"), DidNotHappen()], ids=["happened", "did-not"])
async def test_a_doubt_that_the_code_gave_up_before_a_crash_is_settled_and_answers_who_asks_again(
    tmp_path: Path, answer: Any
) -> None:
    app, bank = App("t"), Bank()
    pay = app.tool(effect="unsafe")(bank.pay)

    @app.workflow()
    async def work(run: Run) -> str:
        try:
            async with asyncio.timeout(0.01):
                return await pay(7)
        except TimeoutError:
            return await pay(7)

    async with app.open(str(tmp_path / "l.db")) as rf:
        run = await rf.start(work)
        await wait_for(rf, run, "timer.fired")
    bank.hangs = False
    async with app.open(str(tmp_path / "l.db"), clock=Later()) as rf:
        run = await rf.get(run.id)
        (call,) = await doubts_of(run)
        await rf.resolve(call, answer, basis="the bank's log", by="ada")
        assert await run.result() == "receipt 7"
        assert len(bank.paid) == (1 if isinstance(answer, Happened) else 2)
        assert (await rf.replay(run.id, InferenceSkipping())).equal


@pytest.mark.parametrize("effect", ["read", "idempotent", "unsafe"])
async def test_a_call_that_the_code_gave_up_before_a_crash_lets_the_run_end(tmp_path: Path, effect: Any) -> None:
    app, bank = App("t"), Bank()
    probed = asyncio.Event()

    async def probe(doubt: Any) -> Happened:
        probed.set()
        return Happened("receipt 7")

    pay = app.tool(effect=effect, probe=probe)(bank.pay)

    @app.workflow()
    async def work(run: Run) -> str:
        won = await run.race(paid=pay(7), bored=run.sleep(0.01))
        await run.signal("go", str)
        return won.name

    async with app.open(str(tmp_path / "l.db")) as rf:
        run = await rf.start(work)
        await wait_for(rf, run, "timer.fired")
    bank.hangs = False
    async with app.open(str(tmp_path / "l.db"), clock=Later()) as rf:
        run = await rf.get(run.id)
        await rf.signal(run.id, "go", "on")
        assert await run.result() == "bored"
        assert bank.paid == [7]
        assert probed.is_set() == (effect == "unsafe")
        assert (await rf.replay(run.id, InferenceSkipping())).equal
