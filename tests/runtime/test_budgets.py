"""What a run may spend, and when it must stop."""

from __future__ import annotations

import asyncio
from decimal import Decimal
from pathlib import Path

import pytest

from refold import (
    App,
    Budget,
    BudgetExceeded,
    Completion,
    FixedPrices,
    InferenceSkipping,
    Rates,
    Run,
    RunEnded,
    Scripted,
    Stream,
)
from refold.events.catalog.inference import Usage
from refold.gateway.models import ModelRequest


def noted(number: int) -> int:
    return number


@pytest.mark.parametrize(
    ("budget", "done"),
    [(Budget(steps=3), 3), (Budget(calls=2), 2), (Budget(tokens=2_500), 2), (Budget(money=Decimal(3)), 3)],
)
async def test_what_would_go_over_the_budget_is_not_begun(tmp_path: Path, budget: Budget, done: int) -> None:
    answer = Completion(message={"role": "assistant", "content": "yes"}, usage=Usage(prompt=1, completion=1_000))
    prices = FixedPrices({("scripted", "scripted"): Rates(input=Decimal(0), output=Decimal(1000))})
    models = Scripted(lambda request: answer)
    app = App("t", models={"main": models}, prices=prices)
    called = []

    @app.tool(effect="read")
    def look(number: int) -> int:
        called.append(number)
        return number

    @app.workflow()
    async def work(run: Run) -> list[object]:
        done: list[object] = []
        try:
            for each in range(9):
                if budget.calls:
                    await look(each)
                elif budget.steps:
                    await run.step(noted, each)
                else:
                    await run.infer("main", messages=[{"role": "user", "content": "?"}], max_tokens=1_000)
                done.append(each)
        except BudgetExceeded as error:
            done.append(error.facts["budget"])
        return done

    async with app.open(str(tmp_path / "l.db")) as rf:
        run = await rf.start(work, budget=budget)
        out = await run.result()
        assert out[:-1] == list(range(done))
        assert out[-1] in ("steps", "calls", "tokens", "USD")
        assert len(called) == (done if budget.calls else 0)
        assert (await rf.replay(run.id, InferenceSkipping())).equal


async def test_a_deadline_ends_the_run_as_expired(tmp_path: Path) -> None:
    app = App("t")

    @app.workflow()
    async def work(run: Run) -> None:
        await run.sleep(hours=1)

    async with app.open(str(tmp_path / "l.db")) as rf:
        run = await rf.start(work, deadline=0.01)
        with pytest.raises(RunEnded) as ended:
            await run.result()
        assert ended.value.facts["status"] == "expired"
        assert (await rf.replay(run.id, InferenceSkipping())).equal


class Silent(Scripted):
    """A model that takes the question and says nothing."""

    async def complete(self, request: ModelRequest, *, timeout: float) -> Completion:
        await asyncio.Event().wait()
        raise AssertionError


async def test_what_an_attempt_that_died_had_reserved_is_spent_for_the_process_that_finds_it(tmp_path: Path) -> None:
    ledger = str(tmp_path / "l.db")

    def app_of(model: Scripted) -> App:
        app = App("t", models={"main": model})

        @app.workflow(name="work", budget=Budget(tokens=1_900))
        async def work(run: Run) -> str:
            return (await run.infer("main", messages=[{"role": "user", "content": "?"}], max_tokens=1_000)).text

        return app

    async with app_of(Silent([])).open(ledger) as rf:
        run = await rf.start("work")
        async for event in rf.scope.follow(Stream.run(run.id)):
            if event.type == "inference.requested":
                break
    async with app_of(Scripted(["yes"])).open(ledger) as rf:
        with pytest.raises(RunEnded) as ended:
            await (await rf.get(run.id)).result()
        assert ended.value.facts["error_code"] == "budget_exceeded"
