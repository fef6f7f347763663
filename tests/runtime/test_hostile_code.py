"""Code that raises what no code should: every run ends, waits with a reason, or says why it cannot go on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from refold import App, BadArguments, InferenceSkipping, ModelCall, Run, RunEnded, RunPaused, StepFailed
from refold.errors import RefoldError

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
