"""Code that raises what no code should: every run ends, waits with a reason, or says why it cannot go on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from refold import (
    App,
    BadArguments,
    Doubt,
    InferenceFailed,
    InferenceSkipping,
    ModelCall,
    Run,
    RunEnded,
    RunPaused,
    Scripted,
    StepFailed,
    Stream,
)
from refold.clock import SystemClock
from refold.errors import RefoldError
from refold.ledger.errors import LedgerClosed

PATIENCE = 10.0
"""Seconds after which a run counts as stuck."""


class NotAnException(BaseException):
    """What only `except BaseException` catches."""


def raises(error: type[BaseException]) -> Callable[[], Any]:
    async def act() -> None:
        raise error("out of the blue")

    return act


@pytest.mark.parametrize("error", [NotAnException, GeneratorExit, SystemExit, asyncio.CancelledError])
async def test_whatever_an_unsafe_tool_raises_is_a_doubt(error: type[BaseException], tmp_path: Path) -> None:
    app = App("t")
    charge = app.tool(name="charge", effect="unsafe")(raises(error))

    @app.workflow()
    async def pays(run: Run) -> None:
        await charge()

    async with app.open(str(tmp_path / "l.db")) as rf:
        run = await rf.start(pays)
        with pytest.raises(RunPaused) as paused:
            await asyncio.wait_for(run.result(), PATIENCE)
    assert paused.value.reason == "in_doubt"


@pytest.mark.parametrize("plain", [False, True], ids=["async", "plain"])
@pytest.mark.parametrize("error", [NotAnException, GeneratorExit, SystemExit, asyncio.CancelledError])
async def test_whatever_a_step_raises_fails_the_step(error: type[BaseException], plain: bool, tmp_path: Path) -> None:
    app = App("t")

    def look() -> None:
        raise error("out of the blue")

    @app.workflow()
    async def looks(run: Run) -> str:
        try:
            await run.step(look if plain else raises(error))
        except StepFailed as failed:
            return str(failed.facts["type"])
        return "nothing was raised"

    async with app.open(str(tmp_path / "l.db")) as rf:
        run = await rf.start(looks)
        assert await asyncio.wait_for(run.result(), PATIENCE) == error.__name__
        assert (await rf.replay(run.id, InferenceSkipping())).equal


@pytest.mark.parametrize("error", [NotAnException, GeneratorExit, SystemExit, asyncio.CancelledError])
async def test_whatever_the_code_raises_fails_the_run_and_not_the_process(
    error: type[BaseException], tmp_path: Path
) -> None:
    app = App("t")

    @app.workflow()
    async def leaves(run: Run) -> None:
        await asyncio.gather(run.sleep(0), raises(error)())

    async with app.open(str(tmp_path / "l.db")) as rf:
        run = await rf.start(leaves)
        with pytest.raises(RunEnded) as ended:
            await asyncio.wait_for(run.result(), PATIENCE)
        assert ended.value.facts["status"] == "failed"
        assert (await rf.replay(run.id, InferenceSkipping())).equal


async def test_what_refold_did_not_expect_is_told_to_whoever_waits(tmp_path: Path) -> None:
    app = App("t")

    @app.workflow()
    async def asks(run: Run) -> str | None:
        return await run.env("\ud800")

    async with app.open(str(tmp_path / "l.db")) as rf:
        run = await rf.start(asks)
        with pytest.raises(RefoldError, match="UnicodeEncodeError") as told:
            await asyncio.wait_for(run.result(), PATIENCE)
        assert told.value.code == "internal"
        assert (await run.row()).status == "running"


async def test_a_models_arguments_that_nest_too_deeply_do_not_fit(tmp_path: Path) -> None:
    app = App("t")

    @app.tool(effect="read")
    async def look(n: int) -> int:
        return n

    @app.workflow()
    async def obeys(run: Run) -> str:
        try:
            await run.call(ModelCall("c1", "look", "[" * 100_000))
        except BadArguments as error:
            return error.code
        return "called"

    async with app.open(str(tmp_path / "l.db")) as rf:
        run = await rf.start(obeys)
        assert await asyncio.wait_for(run.result(), PATIENCE) == "bad_arguments"


class PutBack(SystemClock):
    """A clock that somebody puts back while a run uses it."""

    behind_us = 0

    def now(self) -> int:
        return super().now() - self.behind_us

    def put_back(self) -> None:
        self.behind_us = 3_600_000_000


async def test_a_clock_that_was_put_back_does_not_lengthen_a_sleep(tmp_path: Path) -> None:
    app = App("t")
    clock = PutBack()

    @app.workflow()
    async def rests(run: Run) -> str:
        await run.step(clock.put_back)
        await run.sleep(0.01)
        return "awake"

    async with app.open(str(tmp_path / "l.db"), clock=clock) as rf:
        run = await rf.start(rests)
        assert await asyncio.wait_for(run.result(), PATIENCE) == "awake"
        assert (await rf.replay(run.id, InferenceSkipping())).equal


async def test_after_the_ledger_was_closed_nothing_waits_and_nothing_is_written(tmp_path: Path) -> None:
    app = App("t")

    @app.workflow()
    async def waits(run: Run) -> None:
        await run.signal("never")

    async with app.open(str(tmp_path / "l.db")) as rf:
        run = await rf.start(waits)
        waiting = asyncio.create_task(run.result())
    for late in (waiting, run.result(), rf.start(waits)):
        with pytest.raises(LedgerClosed):
            await asyncio.wait_for(late, PATIENCE)


@pytest.mark.parametrize("error", [NotAnException, SystemExit, asyncio.CancelledError])
async def test_whatever_a_probe_raises_it_cannot_tell(error: type[BaseException], tmp_path: Path) -> None:
    app = App("t")
    doubts: list[Doubt] = []

    async def look_up(doubt: Doubt) -> None:
        doubts.append(doubt)
        raise error("out of the blue")

    charge = app.tool(name="charge", effect="unsafe", probe=look_up)(raises(ConnectionResetError))

    @app.workflow()
    async def pays(run: Run) -> None:
        await charge()

    async with app.open(str(tmp_path / "l.db")) as rf:
        run = await rf.start(pays)
        with pytest.raises(RunPaused):
            await asyncio.wait_for(run.result(), PATIENCE)
        async with asyncio.timeout(PATIENCE):
            while len(doubts) < 2:  # It is asked again.
                await rf.ledger.store.changed()


@pytest.mark.parametrize("error", [NotAnException, SystemExit, asyncio.CancelledError])
async def test_whatever_a_provider_raises_fails_the_inference(error: type[BaseException], tmp_path: Path) -> None:
    def answer(request: object) -> str:
        raise error("out of the blue")

    app = App("t", models={"main": Scripted(answer)})

    @app.workflow()
    async def asks(run: Run) -> str:
        try:
            return (await run.infer("main", messages=[{"role": "user", "content": "?"}])).text
        except InferenceFailed as failed:
            return failed.code

    async with app.open(str(tmp_path / "l.db")) as rf:
        run = await rf.start(asks)
        assert await asyncio.wait_for(run.result(), PATIENCE) == "inference_failed"


async def test_code_that_spins_while_a_call_is_out_ends_when_the_call_has_settled(tmp_path: Path) -> None:
    app, answer = App("t"), asyncio.Event()

    @app.tool(effect="unsafe")
    async def pay(amount: int) -> str:
        await answer.wait()
        return "paid"

    @app.workflow()
    async def work(run: Run) -> None:
        asyncio.create_task(pay(7), name="paying")  # noqa: RUF006 - the spinning below keeps it
        await run.sleep(0.01)
        while True:
            await asyncio.sleep(0)

    async with app.open(str(tmp_path / "l.db")) as rf:
        run = await rf.start(work)
        async for event in rf.scope.follow(Stream.run(run.id)):
            if event.type == "timer.fired":
                answer.set()
        with pytest.raises(RunEnded) as ended:
            await asyncio.wait_for(run.result(), PATIENCE)
        assert ended.value.facts["error_code"] == "never_quiet"
        assert "tool.answered" in [event.type async for event in rf.scope.read(Stream.run(run.id))]
        assert (await rf.replay(run.id, InferenceSkipping())).equal
