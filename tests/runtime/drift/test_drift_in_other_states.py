"""Drift of runs that were not simply killed: in doubt, paused, past a checkpoint, children, `def` workflows."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, make_dataclass
from pathlib import Path
from typing import Any

import pytest

from refold import App, Happened, InferenceSkipping, Run, RunPaused, Stream, SyncRun
from refold.runtime.opened import Refold
from tests.runtime.drift.support import watch_looks

Workflow = Callable[..., Any]


def double(number: int) -> int:
    return 2 * number


def triple(number: int) -> int:
    return 3 * number


class Bank:
    """A tool whose answer is lost once, and what it was asked to do."""

    def __init__(self) -> None:
        self.paid: list[int] = []
        self.loses = True

    def app(self, workflow: Callable[[Any], Workflow], *others: Workflow) -> App:
        """An App with one version of the code."""
        app = App("bank")

        @app.tool(effect="unsafe")
        def pay(amount: int) -> str:
            self.paid.append(amount)
            if self.loses:
                self.loses = False
                raise ConnectionResetError
            return f"receipt {amount}"

        for each in (workflow(pay), *others):
            app.workflow()(each)
        return app


def paying(amount: int, first: Callable[[int], int] = double) -> Callable[[Any], Workflow]:
    def with_tool(pay: Any) -> Workflow:
        async def work(run: Run) -> list[object]:
            return [await run.step(first, 1), await pay(amount), await pay(8)]

        return work

    return with_tool


async def reason_of(rf: Refold, run_id: str) -> RunPaused:
    with pytest.raises(RunPaused) as paused:
        await (await rf.get(run_id)).result()
    return paused.value


@pytest.mark.parametrize("changed", [paying(9), paying(7, triple)], ids=["the doubtful call", "a step before it"])
async def test_the_code_of_a_run_in_doubt_is_changed(tmp_path: Path, changed: Any) -> None:
    bank, place = Bank(), str(tmp_path / "l.db")
    async with bank.app(paying(7)).open(place) as rf:
        run_id = (await rf.start("work")).id
        (call,) = (await reason_of(rf, run_id)).facts["doubts"]
    async with bank.app(changed).open(place) as rf:
        drifted = await settled(rf, run_id)
        assert drifted.reason == "diverged"
        assert drifted.facts["divergences"][0]["step"] in ("0/pay#1", "0/double#1")
        await rf.resolve(call, Happened("receipt 7"), basis="the bank's log", by="ada")
        assert (await reason_of(rf, run_id)).reason == "diverged"
        assert bank.paid == [7]
    async with bank.app(paying(7)).open(place) as rf:
        run = await rf.resume(run_id)
        assert await run.result() == [2, "receipt 7", "receipt 8"]
        assert (await rf.replay(run_id, InferenceSkipping())).equal
    assert bank.paid == [7, 8]


async def test_the_code_of_a_run_that_was_paused_is_changed(tmp_path: Path) -> None:
    place = str(tmp_path / "l.db")

    def app(function: Callable[[int], int]) -> App:
        made = App("t")

        @made.workflow()
        async def work(run: Run) -> list[object]:
            before = await run.step(function, 1)
            word = await run.signal("go", str)
            return [before, word, await run.step(double, 5)]

        return made

    async with app(double).open(place) as rf:
        run_id = (await rf.start("work")).id
        await until(rf, run_id, "step.completed")
        await rf.pause(run_id, basis="lunch")
        await until(rf, run_id, "run.paused")
        await rf.signal(run_id, "go", "now")
        await until(rf, run_id, "signal.received")
    async with app(triple).open(place) as rf:
        assert (await reason_of(rf, run_id)).reason == "requested"
        await rf.resume(run_id)
        assert (await reason_of(rf, run_id)).reason == "diverged"
    async with app(double).open(place) as rf:
        assert await (await rf.resume(run_id)).result() == [2, "now", 10]


async def until(rf: Refold, run_id: str, type_: str) -> None:
    async for event in rf.scope.follow(Stream.run(run_id)):
        if event.type == type_:
            return


@dataclass
class State:
    turn: int


def turning(state_class: type, before: Callable[[int], int], after: Callable[[int], int], add: int = 1) -> App:
    app = App("t")
    app.register(state_class, name="State")

    @app.workflow()
    async def work(run: Run) -> list[object]:
        turn = run.state.turn if run.state else 0
        if turn == 0:
            await run.step(before, 0)
            state = state_class.__new__(state_class)
            state.turn = turn + add
            await run.checkpoint(state)
        return [turn, await run.step(after, turn), await run.signal("go", str)]

    return app


async def at_the_signal(place: str) -> str:
    async with turning(State, double, double).open(place) as rf:
        run_id = (await rf.start("work")).id
        steps = 0
        async for event in rf.scope.follow(Stream.run(run_id)):
            steps += event.type == "step.completed"
            if steps == 2:
                return run_id
    raise AssertionError


async def test_code_before_a_checkpoint_may_change_and_a_replay_of_the_whole_finds_it(tmp_path: Path) -> None:
    place = str(tmp_path / "l.db")
    run_id = await at_the_signal(place)
    async with turning(State, triple, double).open(place) as rf:
        await rf.signal(run_id, "go", "on")
        assert await (await rf.get(run_id)).result() == [1, 2, "on"]
        replayed = await rf.replay(run_id, InferenceSkipping())
        assert [(each.kind, each.step) for each in replayed.divergences] == [("missing", "0/double#1")]
    async with turning(State, double, double, add=2).open(place) as rf:
        replayed = await rf.replay(run_id, InferenceSkipping())
        (divergence,) = replayed.divergences
        assert (divergence.kind, divergence.step) == ("state", "0/checkpoint#1")
        assert divergence.first_difference == "$.$[2].turn was 1 and is 2"


async def test_code_after_a_checkpoint_is_compared(tmp_path: Path) -> None:
    place = str(tmp_path / "l.db")
    run_id = await at_the_signal(place)
    async with turning(State, double, triple).open(place) as rf:
        (report,) = (await settled(rf, run_id)).facts["divergences"]
        assert (report["kind"], report["step"]) == ("missing", "1/double#1")


async def test_a_state_that_no_longer_fits_its_class_is_a_drift(tmp_path: Path) -> None:
    place = str(tmp_path / "l.db")
    run_id = await at_the_signal(place)
    other = make_dataclass("State", [("turn", int), ("note", str)])
    async with turning(other, double, double).open(place) as rf:
        (report,) = (await settled(rf, run_id)).facts["divergences"]
        assert (report["kind"], report["seq"]) == ("type", 4)
        assert "it now has 'note'" in report["first_difference"]
        replayed = await rf.replay(run_id, InferenceSkipping())
        assert not replayed.equal
    async with turning(State, double, double).open(place) as rf:
        await rf.resume(run_id)
        await rf.signal(run_id, "go", "on")
        assert await (await rf.get(run_id)).result() == [1, 2, "on"]


async def settled(rf: Refold, run_id: str) -> RunPaused:
    """How the run is paused once its code was brought to the end of its record."""
    running = rf.running(run_id)
    assert running is not None
    await running.task
    return await reason_of(rf, run_id)


@dataclass
class Order:
    number: int


@pytest.mark.parametrize("waits", [True, False], ids=["somebody waits for it", "it came before"])
async def test_a_signal_that_no_longer_fits_its_class_is_a_drift_and_no_error_of_the_code(
    tmp_path: Path, waits: bool
) -> None:
    place = str(tmp_path / "l.db")

    def app(order: type) -> App:
        made = App("t")

        async def work(run: Run) -> list[object]:
            if not waits:
                await run.step(double, 1)
            try:
                got = await run.signal("order", order)
            except Exception:  # noqa: BLE001 - what no except clause may see
                return ["swallowed"]
            return [got.number, await run.signal("go", str)]

        made.register(order, name="Order")
        made.workflow()(work)
        return made

    async with app(Order).open(place) as rf:
        run_id = (await rf.start("work")).id
        if waits:
            await until(rf, run_id, "run.started")
        await rf.signal(run_id, "order", Order(7))
        await until(rf, run_id, "signal.received")
    async with app(make_dataclass("Order", [("number", int), ("gift", bool)])).open(place) as rf:
        (report,) = (await settled(rf, run_id)).facts["divergences"]
        assert (report["kind"], report["step"]) == ("type", "0/signal:order#1")
    async with app(Order).open(place) as rf:
        await rf.resume(run_id)
        await rf.signal(run_id, "go", "on")
        assert await (await rf.get(run_id)).result() == [7, "on"]


async def test_a_child_that_drifted_is_not_tried_again_when_its_parent_is_recovered(tmp_path: Path) -> None:
    place = str(tmp_path / "l.db")

    def app(function: Callable[[int], int]) -> App:
        made = App("t")

        @made.workflow()
        async def inner(run: Run) -> list[object]:
            return [await run.step(function, 1), await run.signal("go", str)]

        @made.workflow()
        async def outer(run: Run) -> list[object]:
            return list(await run.child(inner))

        return made

    async with app(double).open(place) as rf:
        outer = (await rf.start("outer")).id
        await until(rf, outer, "child.started")
        events = [event async for event in rf.scope.read(Stream.run(outer))]
        inner = events[-1].facts.child_run_id
        while not await rf.exists(inner):
            await rf.ledger.store.changed()
        await until(rf, inner, "step.completed")
    async with app(triple).open(place) as rf:
        assert (await settled(rf, inner)).reason == "diverged"
        head = await rf.scope.run_head(inner)
    async with app(triple).open(place) as rf:
        looks = watch_looks(rf)
        for _ in range(3):
            await looks.get()
        parent = rf.running(outer)
        assert parent is not None
        assert parent.live is not None
        assert parent.live.executor.at_frontier
        assert rf.running(inner) is None
        assert await rf.scope.run_head(inner) == head
    async with app(double).open(place) as rf:
        await rf.resume(inner)
        await rf.signal(inner, "go", "on")
        assert await (await rf.get(outer)).result() == [2, "on"]


def test_the_code_of_a_def_workflow_is_changed(tmp_path: Path) -> None:
    place = str(tmp_path / "l.db")

    def app(function: Callable[[int], int]) -> App:
        made = App("t")

        @made.workflow()
        def work(run: SyncRun) -> list[object]:
            return [run.step(function, 1), run.signal("go", str)]

        return made

    async def first() -> str:
        async with app(double).open(place) as rf:
            run_id = (await rf.start("work")).id
            await until(rf, run_id, "step.completed")
            return run_id

    run_id = asyncio.run(first())

    async def then() -> Any:
        async with app(triple).open(place) as rf:
            return await settled(rf, run_id)

    (report,) = asyncio.run(then()).facts["divergences"]
    assert (report["kind"], report["step"], report["attempted"]["site"]) == ("missing", "0/double#1", "0/triple#1")
    assert report["at"].startswith(__file__)
    with app(double).open_sync(place) as rf:
        rf.resume(run_id)
        rf.signal(run_id, "go", "on")
        assert rf.get(run_id).result() == [2, "on"]


async def test_a_drift_is_still_told_after_much_was_decided_about_its_run(tmp_path: Path) -> None:
    ledger, calls = str(tmp_path / "l.db"), 20

    def app_of(name: str) -> App:
        app = App("t")

        @app.tool()
        async def act(number: int) -> int:
            await asyncio.Event().wait()
            return number

        def noted() -> str:
            return name

        noted.__qualname__ = name

        @app.workflow(name="work")
        async def work(run: Run) -> list[int]:
            await run.step(noted)
            return list(await asyncio.gather(*(act(each) for each in range(calls))))

        return app

    sent: list[str] = []
    async with app_of("first").open(ledger) as rf, asyncio.timeout(20):
        run = await rf.start("work")
        async for event in rf.scope.follow(Stream.run(run.id)):
            if event.type == "tool.dispatched":
                sent.append(event.facts.tool_call_id)
                if len(sent) == calls:
                    break
    async with app_of("second").open(ledger) as rf, asyncio.timeout(20):
        with pytest.raises(RunPaused) as before:
            await (await rf.get(run.id)).result()
        for each in sent:
            await rf.resolve(each, Happened(1), basis="the other side's log", by="ada")
        with pytest.raises(RunPaused) as after:
            await (await rf.get(run.id)).result()
        assert after.value.facts["divergences"] == before.value.facts["divergences"] != []
