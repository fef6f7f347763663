"""How a call ended: what each thing that a tool's code can do, and a network can do to it, means for each effect."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import httpx
import pytest

from refold.gateway import http
from refold.gateway.calls import NoCall, current_call
from refold.gateway.doubt import resolve
from refold.gateway.errors import NestedCall, NoAnswer, NotSent, ToolFailed
from refold.gateway.resolutions import Happened
from refold.gateway.tools import Tool
from refold.testing.simulated import SimulatedClock
from tests.gateway.outside import Service, World, refused_port, service
from tests.gateway.support import AT_ONCE, ONCE, Run, ledger_at, start
from tests.gateway.test_claim_table import until

TAME, WILD = ("read", "idempotent"), ("unsafe",)


def poster(service: Service, path: str, plain: bool, sending: bool, **contract: Any) -> Tool[Any, Any]:
    """A tool that posts once: a plain function or not, through our transport or httpx alone."""
    url = service.url + path if path != "/refused" else f"http://127.0.0.1:{refused_port()}/"

    async def charge() -> Any:
        async with http.async_client() if sending else httpx.AsyncClient() as client:
            answer = await client.post(url, headers={"Idempotency-Key": current_call().key})
            return answer.raise_for_status().json()

    def charge_plain() -> Any:
        with http.client() if sending else httpx.Client() as client:
            answer = client.post(url, headers={"Idempotency-Key": current_call().key})
            return answer.raise_for_status().json()

    return Tool(charge_plain if plain else charge, **{"name": "charge", "retry": AT_ONCE, "timeout": 5.0, **contract})


async def in_doubt(run: Run, tool: Tool[Any, Any]) -> str:
    """Makes a call that ends in doubt, lets a person say that it happened, and returns why it was in doubt."""
    call = run.call(tool)
    result = asyncio.ensure_future(run.result(call))
    await until(lambda: result.done() or run.gateway.waiting)
    assert run.gateway.waiting == {call.tool_call_id: "in_doubt"}, "it has ended"
    answer = await resolve(run.scope, call.tool_call_id, Happened({"found": 1}), basis="log", by="ada")
    assert answer.how == "posted"
    assert await result == {"found": 1}
    events = [event async for event in run.scope.read(run.writer.stream)]
    return str(next(event.facts.why for event in events if event.type == "tool.doubted"))


@pytest.mark.parametrize("plain", [False, True], ids=["async", "plain"])
@pytest.mark.parametrize("sending", [False, True], ids=["httpx", "ours"])
@pytest.mark.parametrize("effect", [*TAME, *WILD])
@pytest.mark.parametrize("path", ["/status/422", "/status/404", "/status/400"])
async def test_a_no_from_the_other_side_is_a_failure(
    tmp_path: Path, path: str, effect: Any, sending: bool, plain: bool
) -> None:
    async with service() as outside, ledger_at(tmp_path) as scope:
        run = await start(scope)
        with pytest.raises(ToolFailed) as raised:
            await run.make(poster(outside, path, plain, sending, effect=effect))
        assert type(raised.value) is ToolFailed
        assert raised.value.facts["why"] == f"http_{path[-3:]}"
        assert len(outside.keys) == 1
        assert (await run.intent("charge")).settled == 1


@pytest.mark.parametrize("plain", [False, True], ids=["async", "plain"])
@pytest.mark.parametrize("sending", [False, True], ids=["httpx", "ours"])
@pytest.mark.parametrize("effect", [*TAME, *WILD])
async def test_where_nobody_listens_nothing_was_sent(tmp_path: Path, effect: Any, sending: bool, plain: bool) -> None:
    async with service() as outside, ledger_at(tmp_path) as scope:
        run = await start(scope)
        with pytest.raises(NotSent) as raised:
            await run.make(poster(outside, "/refused", plain, sending, effect=effect))
        assert raised.value.retryable
        row = await run.intent("charge")
        assert (row.status, row.attempts, row.settled) == ("failed", 3, 0)


DOUBTFUL = [
    ("/reset", "connection"),
    ("/status/500", "server_error"),
    ("/status/503", "server_error"),
    ("/status/408", "server_error"),
    ("/status/409", "server_error"),
    ("/status/425", "server_error"),
    ("/status/429", "server_error"),
]


@pytest.mark.parametrize("plain", [False, True], ids=["async", "plain"])
@pytest.mark.parametrize("sending", [False, True], ids=["httpx", "ours"])
@pytest.mark.parametrize(("path", "why"), DOUBTFUL)
async def test_anything_else_of_an_unsafe_call_is_a_doubt(
    tmp_path: Path, path: str, why: str, sending: bool, plain: bool
) -> None:
    async with service() as outside, ledger_at(tmp_path) as scope:
        run = await start(scope)
        assert await in_doubt(run, poster(outside, path, plain, sending)) == why
        assert len(outside.keys) == 1


@pytest.mark.parametrize("effect", TAME)
@pytest.mark.parametrize(("path", "why"), DOUBTFUL)
async def test_anything_else_of_a_tame_call_is_tried_again_under_the_same_key(
    tmp_path: Path, path: str, why: str, effect: Any
) -> None:
    async with service() as outside, ledger_at(tmp_path) as scope:
        run = await start(scope)
        with pytest.raises(NoAnswer) as raised:
            await run.make(poster(outside, path, False, True, effect=effect))
        assert raised.value.facts["why"] == why
        assert len(outside.keys) == 3
        assert len(set(outside.keys)) == 1
        row = await run.intent("charge")
        assert (row.status, row.attempts, row.settled) == ("failed", 3, 0)


@pytest.mark.parametrize("plain", [False, True], ids=["async", "plain"])
async def test_no_answer_by_the_deadline_is_a_doubt(tmp_path: Path, plain: bool) -> None:
    async with service() as outside, ledger_at(tmp_path) as scope:
        run = await start(scope)
        path = "/late" if plain else "/silent"
        assert await in_doubt(run, poster(outside, path, plain, True, timeout=0.2)) == "timeout"
        outside.let_go.set()


@pytest.mark.parametrize("plain", [False, True], ids=["async", "plain"])
async def test_an_answer_after_the_deadline_settles_the_doubt(tmp_path: Path, plain: bool) -> None:
    let_go = threading.Event()

    def charge() -> str:
        let_go.wait(30)
        return "late"

    async def stubborn() -> str:
        while not let_go.is_set():
            try:
                await asyncio.sleep(0.01)
            except asyncio.CancelledError:
                continue
        return "late"

    async with ledger_at(tmp_path) as scope:
        run = await start(scope)
        result = asyncio.ensure_future(run.make(Tool(charge if plain else stubborn, name="charge", timeout=0.05)))
        await until(lambda: run.gateway.waiting)
        let_go.set()
        assert await result == "late"
        types = await run.types_of_events()
        assert types[-2:] == ["tool.doubted", "tool.answered"]


class Odd(Exception):
    def __str__(self) -> str:
        raise RuntimeError


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (ValueError("x"), "exception"),
        (Odd(), "exception"),
        (TimeoutError(), "timeout"),
        (ConnectionResetError(), "connection"),
        (asyncio.CancelledError(), "canceled"),
    ],
)
async def test_an_exception_of_an_unsafe_tool_is_a_doubt(tmp_path: Path, error: BaseException, why: str) -> None:
    async with ledger_at(tmp_path) as scope:
        run = await start(scope)

        async def act() -> None:
            raise error

        assert await in_doubt(run, Tool(act)) == why


async def test_a_tame_call_that_is_answered_at_last_has_one_outcome_and_all_its_attempts_on_record(
    tmp_path: Path,
) -> None:
    world = World()
    world.failing = [TimeoutError(), ConnectionResetError()]
    async with ledger_at(tmp_path) as scope:
        run = await start(scope)
        assert await run.make(world.tool(effect="read"), "a") == {"done": "a"}
        events = [event async for event in scope.read(run.writer.stream) if event.type.startswith("tool.")]
        assert [event.type.removeprefix("tool.") for event in events] == [
            "dispatched",
            "failed",
            "dispatched",
            "failed",
            "dispatched",
            "answered",
        ]
        assert [e.facts.error_code for e in events if e.type == "tool.failed"] == ["timeout", "connection"]
        assert [e.facts.claim.attempt for e in events if e.type == "tool.dispatched"] == [1, 2, 3]
        assert len(set(world.acts)) == 1


async def test_a_deadline_that_passes_before_the_write_sends_nothing(tmp_path: Path) -> None:
    clock, world = SimulatedClock(), World()

    async def act() -> None:
        clock.advance(60_000_000)  # Preparing took too long.
        async with current_call().sending():
            world.acts.append("sent")

    async with ledger_at(tmp_path, clock) as scope:
        run = await start(scope)
        for marks in (False, True):
            with pytest.raises(NotSent):
                await run.make(Tool(act, name=f"act{marks}", marks_sending=marks, retry=ONCE))
        assert world.acts == []


async def test_a_run_that_was_taken_over_sends_nothing_more(tmp_path: Path) -> None:
    world = World()
    async with ledger_at(tmp_path) as scope:
        run = await start(scope)
        await run.writer.barrier()

        async def act() -> None:
            # What a process that was frozen past its lease finds when it thaws here.
            await scope.ledger.store.acquire(scope.scope, run.writer.stream)
            async with current_call().sending():
                world.acts.append("sent")

        drafts = await run.gateway.perform(run.call(Tool(act, retry=ONCE)))
        assert drafts[0].facts.how == "not_sent"  # type: ignore[attr-defined]
        assert world.acts == []


async def test_a_tool_that_marks_its_sending_was_not_sent_before_that(tmp_path: Path) -> None:
    async def act() -> None:
        raise ValueError("not ready")

    async with ledger_at(tmp_path) as scope:
        run = await start(scope)
        with pytest.raises(NotSent, match="not ready"):
            await run.make(Tool(act, marks_sending=True, retry=ONCE))
        assert "tool.dispatched" not in await run.types_of_events()


@pytest.mark.parametrize("plain", [False, True], ids=["async", "plain"])
async def test_a_tool_that_marks_its_sending_is_dispatched_there_and_then(tmp_path: Path, plain: bool) -> None:
    async with ledger_at(tmp_path) as scope:
        run = await start(scope)
        seen: list[str] = []

        async def act() -> int:
            seen.append((await run.intent("act")).status)
            async with current_call().sending():
                seen.append((await run.intent("act")).status)
            return 1

        def act_plain() -> int:
            with current_call().sending():
                seen.append("dispatched")
            return 1

        await run.writer.barrier()
        before = scope.ledger.group.commits
        assert await run.make(Tool(act_plain if plain else act, name="act", marks_sending=True)) == 1
        assert scope.ledger.group.commits - before == 3
        assert seen[-1] == "dispatched"
        assert (await run.types_of_events())[-3:] == ["tool.claimed", "tool.dispatched", "tool.answered"]


async def test_after_a_first_request_has_left_no_connection_is_not_nothing_sent(tmp_path: Path) -> None:
    async with service() as outside, ledger_at(tmp_path) as scope:
        run = await start(scope)

        async def act() -> None:
            async with http.async_client() as client:
                await client.post(outside.url + "/status/200")
                await client.post(f"http://127.0.0.1:{refused_port()}/")

        assert await in_doubt(run, Tool(act)) == "connection"


async def test_a_tool_that_says_not_sent_after_something_has_left_is_not_believed(tmp_path: Path) -> None:
    async with service() as outside, ledger_at(tmp_path) as scope:
        run = await start(scope)

        async def act() -> None:
            async with http.async_client() as client:
                await client.post(outside.url + "/status/200")
            raise NotSent("nothing was sent")

        assert await in_doubt(run, Tool(act)) == "connection"


async def test_our_transport_hands_the_key_on(tmp_path: Path) -> None:
    async with service() as outside, ledger_at(tmp_path) as scope:
        run = await start(scope)
        keys: list[str] = []

        async def act() -> None:
            keys.append(current_call().key)
            async with http.async_client() as client:
                await client.post(outside.url + "/status/200")

        await run.make(Tool(act))
        assert outside.keys == keys


@pytest.mark.parametrize("effect", ["pure", "read", "idempotent", "unsafe"])
async def test_a_call_costs_the_commits_that_the_contract_says(tmp_path: Path, effect: Any) -> None:
    world = World()
    async with ledger_at(tmp_path) as scope:
        run = await start(scope)
        await run.writer.barrier()
        before = scope.ledger.group.commits
        await run.delivery(run.call(world.tool(effect=effect), "a"))
        # The answer's commit is the runtime's to ask for.
        assert scope.ledger.group.commits - before == (0 if effect == "pure" else 1)


async def test_more_plain_functions_than_threads_wait_for_one_and_are_not_sent_when_none_is_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from refold.gateway import attempts
    from refold.gateway.threads import DaemonThreads

    monkeypatch.setattr(attempts, "TOOL_THREADS", DaemonThreads(limit=1))
    let_go = threading.Event()

    def hangs() -> int:
        let_go.wait(30)
        return 1

    async with ledger_at(tmp_path) as scope:
        run = await start(scope)
        first = asyncio.ensure_future(run.make(Tool(hangs)))
        await asyncio.sleep(0)
        with pytest.raises(NotSent):
            await run.make(Tool(hangs, name="second", timeout=0.1, retry=ONCE))
        let_go.set()
        assert await first == 1
        assert await run.make(Tool(hangs, name="third")) == 1


async def test_a_tool_inside_a_tool_is_refused(tmp_path: Path) -> None:
    inner = Tool(lambda: 1, name="inner")

    def outer() -> str:
        with pytest.raises(NestedCall):
            inner()
        return "refused"

    async with ledger_at(tmp_path) as scope:
        assert await (await start(scope)).make(Tool(outer)) == "refused"
    assert inner() == 1
    with pytest.raises(NoCall):
        current_call()


async def test_a_canceled_call_that_is_out_is_a_doubt_and_its_resolution_is_recorded(tmp_path: Path) -> None:
    world = World()
    async with ledger_at(tmp_path) as scope:
        run = await start(scope)
        world.gate.clear()
        call = run.call(world.tool(on_cancel="abandon"), "a")
        task = asyncio.ensure_future(run.result(call))
        await world.began.wait()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert (await run.intent("act")).status == "in_doubt"
        await resolve(scope, call.tool_call_id, Happened({"done": "z"}), basis="log", by="ada")
        await until(lambda: not run.writer.awaits(call.tool_call_id))
        assert (await run.intent("act")).status == "succeeded"
