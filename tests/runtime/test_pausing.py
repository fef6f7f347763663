"""Runs that wait, and are gone on with by another process: what they waited for is not reported when it is over."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from refold import (
    App,
    CannotTell,
    DidNotHappen,
    Happened,
    Ledger,
    Resend,
    Run,
    RunEnded,
    RunPaused,
    Stream,
    open_ledger,
)
from refold.clock import SystemClock
from refold.gateway.doubt import resolve
from refold.gateway.resolutions import Decision
from refold.gateway.tools import Doubt
from refold.runtime.opened import Refold
from refold.runtime.posting import post_cancel, post_signal
from refold.runtime.waiting import only_others_move, result_or_let_go, waits_of


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


async def test_a_run_that_waits_for_a_signal_is_let_go_and_goes_on_with_the_signal(tmp_path: Path) -> None:
    place, app = str(tmp_path / "l.db"), waiting_app()
    async with app.open(place, recover=False) as rf:
        run = await rf.start("work")
        with pytest.raises(RunPaused) as paused:
            await result_or_let_go(rf, run.id)
        assert paused.value.reason == "waiting"
        running = rf.running(run.id)
        assert running is not None
        assert [(each.kind, each.name) for each in waits_of(running)] == [("signal", "go")]
        assert (await run.row()).reason == "waiting"
        await rf.signal(run.id, "go", "now")
        assert await result_or_let_go(rf, run.id) == ["now", 8]
        assert (await types_of(rf.ledger, run.id))[1:] == [
            "run.started",
            "run.paused",
            "run.resumed",
            "signal.received",
            "step.completed",
            "run.succeeded",
        ]


async def test_a_signal_that_was_sent_before_is_delivered_and_nothing_is_let_go(tmp_path: Path) -> None:
    place, app = str(tmp_path / "l.db"), waiting_app()
    async with app.open(place) as rf:
        run = await rf.start("work")
    async with await open_ledger(place) as ledger:
        await post_signal(ledger.scope(), run.id, "go", b'"now"')
    async with app.open(place, recover=False) as rf:
        await rf.resume(run.id)
        assert await result_or_let_go(rf, run.id) == ["now", 8]
        assert "run.paused" not in await types_of(rf.ledger, run.id)


async def test_a_signal_that_comes_just_before_it_would_be_let_go_is_delivered(tmp_path: Path) -> None:
    app = waiting_app()
    async with app.open(str(tmp_path / "l.db"), recover=False) as rf:
        run = await rf.start("work")
        running = rf.running(run.id)
        assert running is not None
        while not only_others_move(rf, running):
            await asyncio.sleep(0)
        await post_signal(rf.scope, run.id, "go", b'"now"')
        assert await result_or_let_go(rf, run.id) == ["now", 8]
        assert "run.paused" not in await types_of(rf.ledger, run.id)


async def test_a_run_that_a_timer_will_move_is_not_let_go(tmp_path: Path) -> None:
    app = App("t")

    @app.workflow()
    async def work(run: Run) -> str:
        won = await run.race(word=run.signal("go", str), late=run.sleep(0.2))
        return won.name

    async with app.open(str(tmp_path / "l.db"), recover=False) as rf:
        run = await rf.start(work)
        assert await result_or_let_go(rf, run.id) == "late"
        assert "run.paused" not in await types_of(rf.ledger, run.id)


async def test_a_parent_is_let_go_when_its_child_waits_or_is_in_doubt(tmp_path: Path) -> None:
    app = App("t")

    @app.tool(effect="unsafe")
    async def pay(amount: int) -> str:
        raise ConnectionResetError

    @app.workflow()
    async def part(run: Run) -> str:
        return await pay(7)

    @app.workflow()
    async def work(run: Run) -> str:
        return await run.child(part)

    async with app.open(str(tmp_path / "l.db"), recover=False) as rf:
        run = await rf.start(work)
        with pytest.raises(RunPaused) as paused:
            await result_or_let_go(rf, run.id)
        assert paused.value.reason == "waiting"
        running = rf.running(run.id)
        assert running is not None
        (wait,) = waits_of(running)
        assert wait.child is not None
        assert (await (await rf.get(wait.child)).row()).reason == "in_doubt"


@pytest.mark.parametrize("answer", [Happened("paid"), CannotTell()])
async def test_a_doubt_is_reported_after_its_probe_has_had_a_word(tmp_path: Path, answer: object) -> None:
    app, asked = App("t"), asyncio.Event()

    async def look(doubt: Doubt) -> object:
        await asked.wait()
        return answer

    @app.tool(effect="unsafe", probe=look)
    async def pay(amount: int) -> str:
        raise ConnectionResetError

    @app.workflow()
    async def work(run: Run) -> str:
        return await pay(7)

    async with app.open(str(tmp_path / "l.db"), recover=False) as rf:
        run = await rf.start(work)
        result = asyncio.ensure_future(run.result())
        await until(rf, run.id, "run.paused")
        assert not result.done()
        asked.set()
        if isinstance(answer, Happened):
            assert await result == "paid"
        else:
            with pytest.raises(RunPaused):
                await result


class Later(SystemClock):
    """The machine's clock, an hour on: deadlines have passed and settled."""

    def now(self) -> int:
        return super().now() + 3_600_000_000


async def test_a_run_paused_on_request_is_canceled_and_what_was_held_is_not_sent(tmp_path: Path) -> None:
    app, sent = App("t"), []

    @app.tool(effect="unsafe")
    async def pay(amount: int) -> None:
        sent.append(amount)

    @app.workflow()
    async def work(run: Run) -> None:
        await run.signal("go")
        await pay(7)

    async with app.open(str(tmp_path / "l.db")) as rf:
        run = await rf.start(work)
        await rf.pause(run.id)
        await until(rf, run.id, "run.paused")
        await rf.signal(run.id, "go")
        await until(rf, run.id, "signal.received")
        await rf.cancel(run.id, basis="enough")
        with pytest.raises(RunEnded) as ended:
            await run.result()
        assert (ended.value.facts["status"], sent) == ("canceled", [])


async def test_resuming_a_run_that_another_has_makes_that_one_go_on(tmp_path: Path) -> None:
    place, app = str(tmp_path / "l.db"), waiting_app()
    async with app.open(place) as owner, app.open(place, recover=False) as other:
        run = await owner.start("work")
        await owner.pause(run.id)
        await until(owner, run.id, "run.paused")
        resumed = await other.resume(run.id)
        await other.signal(run.id, "go", "now")
        assert await resumed.result() == ["now", 8]
        assert await owner.scope.posted() == []


async def test_what_was_posted_while_nobody_had_the_run_comes_before_anything_is_begun(tmp_path: Path) -> None:
    place, app, sent = str(tmp_path / "l.db"), App("t"), []

    @app.tool(effect="unsafe")
    async def pay(amount: int) -> None:
        sent.append(amount)

    @app.workflow()
    async def work(run: Run) -> None:
        await run.signal("go")
        await pay(7)

    async with app.open(place) as rf:
        run = await rf.start(work)
        await rf.pause(run.id)
        await until(rf, run.id, "run.paused")
        await rf.signal(run.id, "go")
        await until(rf, run.id, "signal.received")
    async with await open_ledger(place) as ledger:
        await post_cancel(ledger.scope(), run.id, "enough")
    async with app.open(place, recover=False) as rf:
        with pytest.raises(RunEnded) as ended:
            await (await rf.resume(run.id)).result()
        assert (ended.value.facts["status"], sent) == ("canceled", [])
