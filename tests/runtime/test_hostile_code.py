"""Code that raises what no code should: every run ends, waits with a reason, or says why it cannot go on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from refold import App, Run, RunPaused

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
