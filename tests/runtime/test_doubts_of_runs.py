"""Runs in doubt: what pauses them, what moves them again, and calls that their code does not wait for any more."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from refold import App, DidNotHappen, Happened, InferenceSkipping, Run, Scripted
from refold.clock import SystemClock
from tests.runtime.paying import doubts_of, events_of, wait_for


class Later(SystemClock):
    """The machine's clock, an hour on: deadlines have passed and settled."""

    def now(self) -> int:
        return super().now() + 3_600_000_000


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


@pytest.mark.parametrize("on_cancel", ["drain", "abandon"])
@pytest.mark.parametrize("effect", ["read", "unsafe"])
async def test_a_call_that_was_given_up_may_be_answered_after_a_checkpoint(
    effect: Any, on_cancel: Any, tmp_path: Path
) -> None:
    app, gate = App("t"), asyncio.Event()

    @app.tool(effect=effect, on_cancel=on_cancel)
    async def pay(amount: int) -> str:
        await gate.wait()
        return "r"

    @app.workflow()
    async def work(run: Run) -> str:
        if run.state is None:
            won = await run.race(paid=pay(7), bored=run.sleep(0.01))
            await run.checkpoint(won.name)
        await run.signal("go", str)
        return run.state

    async with app.open(str(tmp_path / "l.db")) as rf:
        run = await rf.start(work)
        if effect == "unsafe" and on_cancel == "drain":
            await wait_for(rf, run, "timer.fired")
            gate.set()
            await wait_for(rf, run, "run.checkpointed")
        else:
            await wait_for(rf, run, "run.checkpointed")
            gate.set()
        await wait_for(rf, run, "tool.answered")
    async with app.open(str(tmp_path / "l.db")) as rf:
        run = await rf.get(run.id)
        await rf.signal(run.id, "go", "on")
        assert await run.result() == "bored"
        assert (await rf.replay(run.id, InferenceSkipping())).equal


@pytest.mark.parametrize("resolved", [True, False], ids=["resolved", "left"])
async def test_a_doubt_that_was_left_before_a_checkpoint_keeps_nothing_from_going_on(
    resolved: bool, tmp_path: Path
) -> None:
    app = App("t")

    @app.tool(effect="unsafe", on_cancel="abandon")
    async def pay(amount: int) -> str:
        await asyncio.Event().wait()
        return "r"

    @app.workflow()
    async def work(run: Run) -> str:
        if run.state is None:
            won = await run.race(paid=pay(7), bored=run.sleep(0.01))
            await run.checkpoint(won.name)
        await run.signal("go", str)
        return run.state

    async with app.open(str(tmp_path / "l.db")) as rf:
        run = await rf.start(work)
        await wait_for(rf, run, "run.checkpointed")
    async with app.open(str(tmp_path / "l.db")) as rf:
        run = await rf.get(run.id)
        await wait_for(rf, run, "tool.doubted")
        call = (await events_of(rf, run))[0].facts.tool_call_id
        if resolved:
            await rf.resolve(call, Happened("r"), basis="b", by="ada")
        await rf.signal(run.id, "go", "on")
        assert await run.result() == "bored"
        assert (await rf.replay(run.id, InferenceSkipping())).equal


class Stuck(Scripted):
    """A model that does not let go of a request."""

    async def complete(self, request: Any, *, timeout: float) -> Any:
        while True:
            with suppress(asyncio.CancelledError):
                await asyncio.Event().wait()
            if self.asked:
                raise asyncio.CancelledError
            self.asked.append(request)


async def test_case_11_an_inference_that_was_given_up_and_lost_with_its_process_has_its_end_and_its_cost(
    tmp_path: Path,
) -> None:
    app = App("t", models={"main": Stuck([])})

    @app.workflow()
    async def work(run: Run) -> str:
        said = run.infer("main", messages=[{"role": "user", "content": "hello"}])
        won = await run.race(said=said, bored=run.sleep(0.01))
        await run.signal("go", str)
        return won.name

    async with app.open(str(tmp_path / "l.db")) as rf:
        run = await rf.start(work)
        await wait_for(rf, run, "timer.fired")
    async with app.open(str(tmp_path / "l.db")) as rf:
        run = await rf.get(run.id)
        await rf.signal(run.id, "go", "on")
        assert await run.result() == "bored"
        ended = [event.type for event in await events_of(rf, run, "") if event.type[:4] in ("infe", "cost")]
        assert ended == ["inference.requested", "inference.lost", "cost.recorded"]
        assert (await rf.replay(run.id, InferenceSkipping())).equal
