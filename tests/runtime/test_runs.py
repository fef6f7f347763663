"""Runs from start to end, and through a death in between."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from refold import (
    App,
    Happened,
    InferenceSkipping,
    ModelCall,
    NotOffered,
    Partial,
    Run,
    RunPaused,
    Scripted,
    Stream,
    ToolFailed,
)
from refold.runtime.opened import Refold


def double(number: int) -> int:
    return 2 * number


async def types_of(rf: Refold, run_id: str) -> list[str]:
    return [event.type async for event in rf.scope.read(Stream.run(run_id))]


async def test_a_key_names_one_run_and_its_result_is_read_from_the_record(tmp_path: Path) -> None:
    app = App("t")

    @app.workflow()
    async def work(run: Run, number: int) -> list[int]:
        return [await run.step(double, each) for each in range(number)]

    async with app.open(str(tmp_path / "l.db")) as rf:
        first = await rf.start(work, 3, key="k")
        assert await first.result() == [0, 2, 4]
        again = await rf.start(work, 3, key="k")
        assert (again.id, await again.result()) == (first.id, [0, 2, 4])
    async with app.open(str(tmp_path / "l.db")) as rf:
        assert await (await rf.start(work, 3, key="k")).result() == [0, 2, 4]


async def test_a_run_let_go_goes_on_where_it_was_and_repeats_no_step(tmp_path: Path) -> None:
    app, ran = App("t"), []

    def noted(number: int) -> int:
        ran.append(number)
        return number

    @app.workflow()
    async def work(run: Run, number: int) -> list[object]:
        before = [await run.step(noted, each) for each in range(number)]
        drawn = run.random().random()
        word = await run.signal("go", str)
        return [*before, drawn, run.now().isoformat(), await run.step(noted, 99), word]

    async with app.open(str(tmp_path / "l.db")) as rf:
        run = await rf.start(work, 3, key="k")
        async for event in rf.scope.follow(Stream.run(run.id)):
            if event.type == "step.completed" and event.seq == 5:
                break
    async with app.open(str(tmp_path / "l.db")) as rf:
        await rf.signal(run.id, "go", "now")
        out = await (await rf.get(run.id)).result()
        assert (out[:3], out[5:]) == ([0, 1, 2], [99, "now"])
        assert ran == [0, 1, 2, 99]
        replayed = await rf.replay(run.id, InferenceSkipping())
        assert replayed.equal
        assert replayed.state["output"] == out
        assert ran == [0, 1, 2, 99]


async def test_asking_again_after_a_timeout_takes_the_answer_that_nobody_got(tmp_path: Path) -> None:
    app, paid = App("t"), []
    out_there = asyncio.Event()

    @app.tool(effect="unsafe", timeout=20)
    async def pay(amount: int) -> str:
        paid.append(amount)
        await out_there.wait()
        return f"receipt {amount}"

    @app.workflow()
    async def work(run: Run) -> list[str]:
        said = []
        try:
            async with asyncio.timeout(0.01):
                await pay(7)
        except TimeoutError:
            said.append("timed out")
        said.append(await pay(7))
        return said

    async with app.open(str(tmp_path / "l.db")) as rf:
        run = await rf.start(work)
        async for event in rf.scope.follow(Stream.run(run.id)):
            if event.type == "timer.fired":
                out_there.set()
        assert await run.result() == ["timed out", "receipt 7"]
        assert paid == [7]
        assert (await rf.replay(run.id, InferenceSkipping())).equal


async def test_a_doubt_suspends_its_task_and_its_resolution_goes_on_with_the_run(tmp_path: Path) -> None:
    app = App("t")

    @app.tool(effect="unsafe")
    def pay(amount: int) -> str:
        raise ConnectionResetError

    @app.workflow()
    async def work(run: Run) -> list[object]:
        try:
            return [await run.step(double, 1), await pay(7)]
        except Exception as error:  # noqa: BLE001 - what no except clause may see
            return [repr(error)]

    async with app.open(str(tmp_path / "l.db")) as rf:
        run = await rf.start(work)
        with pytest.raises(RunPaused) as paused:
            await run.result()
        assert paused.value.reason == "in_doubt"
        (call,) = paused.value.facts["doubts"]
        await rf.resolve(call, Happened("receipt 7"), basis="the bank's log", by="ada")
        assert await run.result() == [2, "receipt 7"]
        assert (await types_of(rf, run.id))[3:] == [
            "tool.dispatched",
            "tool.doubted",
            "run.paused",
            "run.resumed",
            "tool.resolved",
            "run.succeeded",
        ]


async def test_a_checkpoint_begins_a_segment_and_what_was_before_is_not_run_again(tmp_path: Path) -> None:
    app, begun = App("t"), []

    @app.workflow()
    async def work(run: Run, upto: int) -> int:
        turn: int = run.state or 0
        begun.append(turn)
        await run.step(double, turn)
        if turn < upto:
            await run.checkpoint(turn + 1)
        return turn

    async with app.open(str(tmp_path / "l.db")) as rf:
        run = await rf.start(work, 3)
        assert await run.result() == 3
        assert begun == [0, 1, 2, 3]
        assert (await rf.replay(run.id, InferenceSkipping())).equal


async def test_models_and_their_calls_go_through_the_record(tmp_path: Path) -> None:
    asks = [ModelCall("c1", "add", {"a": 1, "b": 2})]
    app = App("t", models={"main": Scripted([asks, "three"])})

    @app.tool(effect="read")
    def add(a: int, b: int) -> int:
        return a + b

    @app.workflow()
    async def work(run: Run, question: str) -> str:
        messages = [{"role": "user", "content": question}]
        answer = await run.infer("main", messages=messages, tools=[add])
        (asked,) = answer.calls
        messages += [answer.message, {"role": "tool", "tool_call_id": asked.id, "content": str(await run.call(asked))}]
        return (await run.infer("main", messages=messages, tools=[add])).text

    async with app.open(str(tmp_path / "l.db")) as rf:
        run = await rf.start(work, "1 + 2?")
        assert await run.result() == "three"
        assert (await rf.replay(run.id, InferenceSkipping())).equal
        part = await rf.replay(run.id, Partial(until=3))
        assert [each["kind"] for each in part.state["waits_for"]] == ["infer"]


async def test_a_model_gets_no_tool_that_it_was_not_offered(tmp_path: Path) -> None:
    app, called = App("t", models={"main": Scripted([[ModelCall("c1", "wipe", {"what": "all"})]])}), []

    @app.tool(effect="read")
    def look(what: str) -> str:
        return what

    @app.tool(effect="unsafe")
    def wipe(what: str) -> str:
        called.append(what)
        return what

    @app.workflow()
    async def work(run: Run) -> str:
        answer = await run.infer("main", messages=[{"role": "user", "content": "?"}], tools=[look])
        try:
            await run.call(answer.calls[0])
        except NotOffered as error:
            return error.code
        return "called"

    async with app.open(str(tmp_path / "l.db")) as rf:
        run = await rf.start(work)
        assert await run.result() == "not_offered"
        assert called == []
        assert (await rf.replay(run.id, InferenceSkipping())).equal


async def test_a_failure_that_the_other_side_answered_reaches_the_code(tmp_path: Path) -> None:
    app = App("t")

    @app.tool(effect="unsafe")
    async def pay(amount: int) -> str:
        raise ToolFailed("no such account")

    @app.workflow()
    async def work(run: Run) -> str:
        try:
            await pay(1)
        except ToolFailed as error:
            return error.message
        return "paid"

    async with app.open(str(tmp_path / "l.db")) as rf:
        assert await (await rf.start(work)).result() == "no such account"


async def test_decorators_need_no_parentheses(tmp_path: Path) -> None:
    app = App("t")

    @app.tool
    async def pay(amount: int) -> int:
        return amount

    @app.workflow
    async def work(run: Run) -> int:
        return await pay(7)

    async with app.open(str(tmp_path / "l.db")) as rf:
        assert await (await rf.start(work)).result() == 7
    assert (pay.effect, work.version) == ("unsafe", 1)


def test_a_workflow_without_await_runs_the_same_way(tmp_path: Path) -> None:
    from refold import SyncRun

    app = App("t")

    @app.tool(effect="read")
    def look(name: str) -> str:
        return name.upper()

    @app.workflow()
    def work(run: SyncRun, name: str) -> list[object]:
        run.sleep(0.01)
        with run.scope(name):
            found = look(name)
        return [found, run.step(double, 4), run.uuid().version]

    with app.open_sync(str(tmp_path / "l.db")) as rf:
        run = rf.start(work, "ada")
        assert run.result() == ["ADA", 8, 4]
        assert rf.replay(run.id, InferenceSkipping()).equal
