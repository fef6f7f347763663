"""Runs that wait, and are gone on with by another process: what they waited for is not reported when it is over."""

from __future__ import annotations

from pathlib import Path

import pytest

from refold import App, DidNotHappen, Happened, Ledger, Resend, Run, RunPaused, Stream, open_ledger
from refold.clock import SystemClock
from refold.gateway.doubt import resolve
from refold.gateway.resolutions import Decision
from refold.runtime.opened import Refold


def double(number: int) -> int:
    return 2 * number


def waiting_app() -> App:
    app = App("t")

    @app.workflow(name="work")
    async def work(run: Run) -> list[object]:
        word = await run.signal("go", str)
        return [word, await run.step(double, 4)]

    return app


async def until(rf: Refold, run_id: str, type_: str, count: int = 1) -> None:
    """Returns when the record holds so many events of a type."""
    async for event in rf.scope.follow(Stream.run(run_id)):
        count -= event.type == type_
        if count == 0:
            return


async def types_of(ledger: Ledger, run_id: str) -> list[str]:
    return [event.type async for event in ledger.scope().read(Stream.run(run_id))]


async def test_a_run_paused_on_request_goes_on_when_another_process_resumes_it(tmp_path: Path) -> None:
    place, app = str(tmp_path / "l.db"), waiting_app()
    async with app.open(place) as rf:
        run = await rf.start("work")
        await rf.pause(run.id, basis="lunch")
        with pytest.raises(RunPaused) as paused:
            await run.result()
        assert paused.value.reason == "requested"
    async with app.open(place) as rf:
        resumed = await rf.resume(run.id)
        await rf.signal(run.id, "go", "now")
        assert await resumed.result() == ["now", 8]


async def test_a_pause_counts_once_and_not_again_for_each_process_that_resumes(tmp_path: Path) -> None:
    place, app = str(tmp_path / "l.db"), waiting_app()
    async with app.open(place) as rf:
        run = await rf.start("work")
        await rf.pause(run.id)
        await until(rf, run.id, "run.paused")
        await rf.resume(run.id)
        await until(rf, run.id, "run.resumed")
        assert await rf.scope.posted() == []
    async with app.open(place) as rf:
        await rf.signal(run.id, "go", "now")
        assert await (await rf.get(run.id)).result() == ["now", 8]
        assert (await types_of(rf.ledger, run.id)).count("run.paused") == 1


@pytest.mark.parametrize("decision", [Happened("paid"), Resend(), DidNotHappen()])
async def test_a_doubt_resolved_while_nobody_had_the_run_is_over_when_it_is_resumed(
    tmp_path: Path, decision: Decision
) -> None:
    place, app, sent = str(tmp_path / "l.db"), App("t"), []

    @app.tool(effect="unsafe")
    async def pay(amount: int) -> str:
        sent.append(amount)
        if len(sent) == 1:
            raise ConnectionResetError
        return "paid"

    @app.workflow()
    async def work(run: Run) -> str:
        return await pay(7)

    async with app.open(place) as rf:
        run = await rf.start(work)
        with pytest.raises(RunPaused) as paused:
            await run.result()
        (call,) = paused.value.facts["doubts"]
    async with await open_ledger(place, clock=Later()) as ledger:
        done = await resolve(ledger.scope(), call, decision, basis="their log", by="ada")
        assert done.how == "recorded"
    async with app.open(place, recover=False) as rf:
        assert await (await rf.resume(run.id)).result() == "paid"
        assert len(sent) == (1 if isinstance(decision, Happened) else 2)
        types = await types_of(rf.ledger, run.id)
        assert types.count("run.paused") == types.count("run.resumed") == 1


async def test_a_doubt_that_stands_is_reported_again_and_recorded_once(tmp_path: Path) -> None:
    place, app = str(tmp_path / "l.db"), App("t")

    @app.tool(effect="unsafe")
    async def pay(amount: int) -> str:
        raise ConnectionResetError

    @app.workflow()
    async def work(run: Run) -> str:
        return await pay(7)

    run_id = ""
    for _ in range(3):
        async with app.open(place, recover=False) as rf:
            run = await (rf.resume(run_id) if run_id else rf.start(work))
            run_id = run.id
            with pytest.raises(RunPaused) as paused:
                await run.result()
            assert paused.value.reason == "in_doubt"
            assert (await types_of(rf.ledger, run_id)).count("run.paused") == 1


async def test_code_that_was_put_back_is_not_reported_as_diverged(tmp_path: Path) -> None:
    place = str(tmp_path / "l.db")

    def app_of(first: int) -> App:
        app = App("t")

        @app.workflow()
        async def work(run: Run) -> list[object]:
            return [await run.step(double, first), await run.signal("go", str)]

        return app

    async with app_of(1).open(place) as rf:
        run = await rf.start("work")
        await until(rf, run.id, "step.completed")
    async with app_of(2).open(place, recover=False) as rf:
        resumed = await rf.resume(run.id)
        with pytest.raises(RunPaused) as paused:
            await resumed.result()
        assert paused.value.reason == "diverged"
    async with app_of(1).open(place, recover=False) as rf:
        resumed = await rf.resume(run.id)
        await rf.signal(run.id, "go", "now")
        assert await resumed.result() == [2, "now"]


class Later(SystemClock):
    """The machine's clock, an hour on: deadlines have passed and settled."""

    def now(self) -> int:
        return super().now() + 3_600_000_000
