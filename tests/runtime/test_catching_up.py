"""Recorded outcomes that code is given at once, without a turn of its loop: nothing shows that it was so."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from refold import App, InferenceSkipping, Run
from refold.errors import RefoldError


def double(number: int) -> int:
    return 2 * number


async def test_what_was_asked_before_an_outcome_given_at_once_has_begun(tmp_path: Path) -> None:
    app = App("t")

    @app.tool(effect="unsafe")
    async def pay(amount: int) -> str:
        return "paid"

    @app.workflow()
    async def work(run: Run) -> list[Any]:
        await run.step(double, 1)
        paying = asyncio.create_task(pay(7))
        for _ in range(2):
            await asyncio.sleep(0)
        await run.step(double, 2)
        # It may be out by now, so the code is told of its cancellation when it is known how it ended: later.
        paying.cancel()
        await asyncio.wait([paying])
        return [paying.cancelled(), run.now()]

    async with app.open(str(tmp_path / "l.db")) as rf:
        run = await rf.start(work)
        assert (await run.result())[0]
        replayed = await rf.replay(run.id, InferenceSkipping())
    assert replayed.equal, replayed.divergences


async def test_a_result_that_the_code_cannot_hold_any_more_is_reported_and_not_raised_in_it(tmp_path: Path) -> None:
    def app_with(register: bool) -> App:
        app = App("t")

        @dataclass
        class Price:
            amount: int

        if register:
            app.register(Price, name="Price")

        def priced(amount: int) -> Any:
            return Price(amount)

        @app.workflow()
        async def work(run: Run) -> int:
            await run.step(double, 1)
            try:
                return int((await run.step(priced, 3)).amount)
            except RefoldError:
                return -1

        return app

    async with app_with(register=True).open(str(tmp_path / "l.db")) as rf:
        run = await rf.start("work")
        assert await run.result() == 3
    async with app_with(register=False).open(str(tmp_path / "l.db")) as rf:
        replayed = await rf.replay(run.id, InferenceSkipping())
    assert [each.kind for each in replayed.divergences] == ["type"]
