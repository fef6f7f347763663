"""The ways out of a doubt: by a probe, by a person, in whatever process, and what finds doubts nobody asked about."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from refold.events.identity import Stream
from refold.gateway import ways_out
from refold.gateway.doubt import resolve
from refold.gateway.errors import Abandoned, AlreadyResolved, NoSuchCall, NotInDoubt, TooEarly
from refold.gateway.resolutions import Abandon, CannotTell, DidNotHappen, Happened, Resend
from refold.gateway.retry import Retry
from refold.gateway.sweeping import sweep
from refold.gateway.tools import Doubt, Tool
from refold.ledger.ledger import open_ledger
from refold.projections.rows import AuditRow
from refold.testing.simulated import SimulatedClock
from tests.gateway.outside import World
from tests.gateway.support import Run, ledger_at, start
from tests.gateway.test_claim_table import HOUR, call_of, killed_after_dispatch, until


async def doubtful(run: Run, world: World, tool: Tool[Any, Any]) -> tuple[str, asyncio.Future[Any]]:
    """A call that is in doubt in a living run."""
    world.failing.append(TimeoutError())
    call = run.call(tool, "a")
    result = asyncio.ensure_future(run.result(call))
    await until(lambda: run.gateway.waiting)
    assert (await run.intent("act")).status == "in_doubt"
    return call.tool_call_id, result


# By a person


async def test_a_resolution_is_on_record_with_who_and_why(tmp_path: Path) -> None:
    world = World()
    async with ledger_at(tmp_path) as scope:
        run = await start(scope)
        call_id, result = await doubtful(run, world, world.tool())
        await resolve(scope, call_id, Happened({"done": "x"}), basis="bank log 4711", by="ada")
        assert await result == {"done": "x"}
        async with scope.reader() as reader:
            (row,) = await reader.rows(AuditRow, {"event": "tool.resolved"})
            assert (row.actor, row.outcome, row.detail, row.subject) == ("ada", "happened", "bank log 4711", call_id)
            assert await reader.inbox(run.writer.stream) == []


@pytest.mark.parametrize("living", [True, False], ids=["living owner", "dead owner"])
async def test_the_same_resolution_again_changes_nothing_and_another_is_refused(tmp_path: Path, living: bool) -> None:
    world, clock = World(), SimulatedClock()
    async with ledger_at(tmp_path, clock) as scope:
        run = await start(scope)
        if living:
            call_id, result = await doubtful(run, world, world.tool())
        else:
            await killed_after_dispatch(run, world, world.tool())
            call_id = await call_of(scope, run.id)
        clock.advance(HOUR)
        first = await resolve(scope, call_id, Happened({"done": "x"}), basis="log", by="ada")
        assert first.how == ("posted" if living else "recorded")
        if living:
            await result
        again = await resolve(scope, call_id, Happened({"done": "x"}), basis="log", by="bob")
        assert again.how == "already"
        for other in (Happened({"done": "y"}), DidNotHappen(), Abandon(), Resend()):
            with pytest.raises(AlreadyResolved):
                await resolve(scope, call_id, other, basis="log", by="bob")
        assert (await run.scope.run_head(run.id)).seq == 5


async def test_two_who_decide_at_once_one_wins(tmp_path: Path) -> None:
    world = World()
    async with ledger_at(tmp_path) as scope:
        run = await start(scope)
        call_id, result = await doubtful(run, world, world.tool())
        decided = await asyncio.gather(
            resolve(scope, call_id, Happened({"done": "x"}), basis="log", by="ada"),
            resolve(scope, call_id, Abandon(), basis="tired", by="bob"),
            return_exceptions=True,
        )
        assert sum(isinstance(each, AlreadyResolved) for each in decided) == 1
        ended = await asyncio.gather(result, return_exceptions=True)
        assert (ended[0] == {"done": "x"}) is isinstance(decided[1], AlreadyResolved)


async def test_did_not_happen_counts_only_when_the_call_has_settled(tmp_path: Path) -> None:
    world, clock = World(), SimulatedClock()
    async with ledger_at(tmp_path, clock) as scope:
        run = await start(scope)
        call_id, result = await doubtful(run, world, world.tool(timeout=10, settle=50))
        row = await run.intent("act")
        assert row.settles_us is not None
        assert row.deadline_us is not None
        assert row.settles_us - row.deadline_us == 50_000_000
        clock.advance(59_000_000)
        with pytest.raises(TooEarly) as raised:
            await resolve(scope, call_id, DidNotHappen(), basis="log", by="ada")
        assert raised.value.facts["until"] == row.settles_us
        clock.advance(2_000_000)
        await resolve(scope, call_id, DidNotHappen(), basis="log", by="ada")
        assert await result == {"done": "a"}
        assert len(set(world.acts)) == 2


async def test_a_resend_goes_out_under_the_same_key(tmp_path: Path) -> None:
    world = World()
    async with ledger_at(tmp_path) as scope:
        run = await start(scope)
        call_id, result = await doubtful(run, world, world.tool())
        await resolve(scope, call_id, Resend(), basis="they know the key", by="ada")
        assert await result == {"done": "a"}
        assert len(world.acts) == 2
        assert len(set(world.acts)) == 1


async def test_what_is_given_up_is_a_typed_failure(tmp_path: Path) -> None:
    world = World()
    async with ledger_at(tmp_path) as scope:
        run = await start(scope)
        call_id, result = await doubtful(run, world, world.tool())
        await resolve(scope, call_id, Abandon(), basis="too small", by="ada")
        with pytest.raises(Abandoned):
            await result
        assert (await run.intent("act")).status == "abandoned"


async def test_what_is_not_in_doubt_cannot_be_resolved(tmp_path: Path) -> None:
    world = World()
    async with ledger_at(tmp_path) as scope:
        run = await start(scope)
        with pytest.raises(NoSuchCall):
            await resolve(scope, "tc_none", Abandon(), basis="", by="ada")
        await run.make(world.tool(), "a")
        done = await call_of(scope, run.id)
        with pytest.raises(NotInDoubt):
            await resolve(scope, done, Abandon(), basis="", by="ada")
        with pytest.raises(NoSuchCall):
            await resolve(scope.ledger.scope("some/where"), done, Abandon(), basis="", by="ada")
        world.gate.clear()
        call = run.call(world.tool(), "b")
        out = asyncio.ensure_future(run.result(call))
        await until(lambda: len(world.acts) == 2)
        with pytest.raises(NotInDoubt):
            await resolve(scope, call.tool_call_id, Abandon(), basis="", by="ada")
        world.gate.set()
        await out


async def test_another_process_resolves_what_this_one_is_in_doubt_about(tmp_path: Path) -> None:
    world = World()
    async with ledger_at(tmp_path) as scope, await open_ledger(tmp_path / "ledger.db") as other:
        run = await start(scope)
        call_id, result = await doubtful(run, world, world.tool())
        posted = await resolve(other.scope(), call_id, Happened({"done": "x"}), basis="log", by="ada")
        assert posted.how == "posted"
        assert await result == {"done": "x"}


async def test_a_resolution_that_was_posted_before_the_owner_died_is_found_by_the_next(tmp_path: Path) -> None:
    world = World()
    async with ledger_at(tmp_path) as scope:
        run = await start(scope)
        call_id, result = await doubtful(run, world, world.tool())
        run.gateway.close()  # It does not get to look any more.
        await resolve(scope, call_id, Happened({"done": "x"}), basis="log", by="ada")
        await run.crash()
        result.cancel()
        run = await run.resume()
        assert await run.result(await run.recorded(world.tool(), "a")) == {"done": "x"}
        assert len(world.acts) == 1


# By a probe


class Bank:
    """What the other side says, one answer a question; the last for ever."""

    def __init__(self, *answers: Any) -> None:
        self.answers, self.asked = list(answers), [Doubt("", "", {}, "", "", 0, None)][:0]

    async def find(self, doubt: Doubt) -> Any:
        self.asked.append(doubt)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, BaseException):
            raise answer
        return answer


@pytest.mark.parametrize("plain", [False, True], ids=["async", "plain"])
async def test_a_probe_is_asked_at_once_and_settles_what_happened(tmp_path: Path, plain: bool) -> None:
    world, bank = World(), Bank(Happened({"done": "there"}))

    def plain_find(doubt: Doubt) -> Any:
        bank.asked.append(doubt)
        return bank.answers[0]

    async with ledger_at(tmp_path) as scope:
        run = await start(scope)
        world.failing.append(TimeoutError())
        assert await run.make(world.tool(probe=plain_find if plain else bank.find), "a") == {"done": "there"}
        assert [doubt.key for doubt in bank.asked] == world.acts
        assert bank.asked[0].arguments == {"order": "a"}


async def test_a_probes_no_counts_only_when_it_was_asked_after_the_call_had_settled(tmp_path: Path) -> None:
    world, bank, clock = World(), Bank(DidNotHappen()), SimulatedClock()
    async with ledger_at(tmp_path, clock) as scope:
        run = await start(scope)
        _, result = await doubtful(run, world, world.tool(probe=bank.find))
        await until(lambda: bank.asked)
        run.gateway.wake()
        await until(lambda: len(bank.asked) == 2)
        assert not result.done()
        clock.advance(HOUR)
        run.gateway.wake()
        assert await result == {"done": "a"}
        assert len(set(world.acts)) == 2
        assert len(bank.asked) == 3


async def test_a_probes_no_does_not_count_while_the_call_is_still_running_here(tmp_path: Path) -> None:
    import threading

    let_go, bank, clock = threading.Event(), Bank(DidNotHappen()), SimulatedClock()

    def act(order: str) -> str:
        let_go.wait(30)
        return "late"

    async with ledger_at(tmp_path, clock) as scope:
        run = await start(scope)
        tool = Tool(act, timeout=0.05, probe=bank.find)
        result = asyncio.ensure_future(run.make(tool, "a"))
        await until(lambda: run.gateway.waiting)
        clock.advance(HOUR)
        run.gateway.wake()
        await until(lambda: len(bank.asked) >= 2)
        assert not result.done()
        let_go.set()
        assert await result == "late"
        assert "tool.resolved" not in await run.types_of_events()


async def test_a_probe_that_cannot_tell_is_asked_some_times_and_then_it_is_a_persons_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ways_out, "PATIENCE", Retry(attempts=3, first=0.0))
    world, bank = World(), Bank(CannotTell(), OSError("down"), "nonsense")
    async with ledger_at(tmp_path) as scope:
        run = await start(scope)
        call_id, result = await doubtful(run, world, world.tool(probe=bank.find))
        await until(lambda: len(bank.asked) == 3)
        await asyncio.sleep(0)
        assert not result.done()
        await resolve(scope, call_id, Happened({"done": "x"}), basis="log", by="ada")
        assert await result == {"done": "x"}
        assert len(bank.asked) == 3


# Without anybody asking


async def test_a_sweep_finds_the_doubts_of_the_dead_and_leaves_the_living_alone(tmp_path: Path) -> None:
    world, clock = World(), SimulatedClock()
    async with ledger_at(tmp_path, clock) as scope:
        dead = [await start(scope) for _ in range(3)]
        for run, effect in zip(dead, ("unsafe", "idempotent", "read"), strict=True):
            await killed_after_dispatch(run, world, world.tool(name=effect, effect=effect))
        world.gate.clear()
        living = await start(scope)
        out = asyncio.ensure_future(living.make(world.tool(), "a"))
        await world.began.wait()
        found = await sweep(scope)
        assert [(row.tool, row.status) for row in found] == [("unsafe", "in_doubt")]
        assert await sweep(scope) == []
        clock.advance(25 * HOUR)
        assert [row.tool for row in await sweep(scope)] == ["idempotent"]
        assert not await scope.is_written(Stream.run(dead[0].id))
        world.gate.set()
        await out
        run = await dead[0].resume()
        call = await run.recorded(world.tool(name="unsafe"), "a")
        waiting = asyncio.ensure_future(run.result(call))
        await until(lambda: run.gateway.waiting)
        await resolve(scope, call.tool_call_id, Happened(1), basis="log", by="ada")
        assert await waiting == 1


async def test_a_hundred_doubts_are_watched_with_one_read_at_a_time(tmp_path: Path) -> None:
    world = World()
    async with ledger_at(tmp_path) as scope:
        run = await start(scope)
        world.failing = [TimeoutError() for _ in range(100)]
        calls = [run.call(world.tool(), str(number)) for number in range(100)]
        results = [asyncio.ensure_future(run.result(call)) for call in calls]
        await until(lambda: len(run.gateway.waiting) == 100)
        for number, call in enumerate(calls):
            await resolve(scope, call.tool_call_id, Happened(number), basis="log", by="ada")
        assert await asyncio.gather(*results) == list(range(100))


async def test_a_doubt_that_is_given_up_is_put_on_record_once_however_late_its_outcome_is_delivered(
    tmp_path: Path,
) -> None:
    world = World()
    async with ledger_at(tmp_path) as scope:
        run = await start(scope)
        world.failing.append(TimeoutError())
        call = run.call(world.tool(), "a")
        performed = asyncio.ensure_future(run.gateway.perform(call))
        await until(lambda: run.gateway.waiting)
        await resolve(scope, call.tool_call_id, Abandon(), basis="nobody knows", by="ada")
        drafts = await performed
        for _ in range(5):  # Its turn comes later, and what is posted is looked at meanwhile.
            run.gateway.wake()
            await scope.ledger.store.changed()
        for draft in drafts:
            run.writer.append(draft)
        assert (await run.types_of_events()).count("tool.resolved") == 1
