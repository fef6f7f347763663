"""Attempts of one inference: what is recorded of each, what it costs, and what code gets, live and from the record."""

from __future__ import annotations

import asyncio
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from refold.events.catalog.inference import Usage
from refold.gateway.answers import standing
from refold.gateway.model_errors import (
    AnswerIncomplete,
    BadRequest,
    InferenceAborted,
    InferenceFailed,
    InferenceTimeout,
    ProviderError,
    ProviderUnreachable,
    ScriptExhausted,
)
from refold.gateway.models import CallDelta, Completion, ModelCall, ModelRequest, Part, fingerprint, request_for
from refold.gateway.prices import amount_text, estimate
from refold.gateway.providers.scripted import Scripted
from refold.gateway.retry import Retry
from refold.projections.rows import StepRow
from tests.gateway.models_support import BudgetGone, Desk, Purse, Seen, amounts, at_desk

USAGE = Usage(prompt=1000, completion=10, cached=600)
TOOL = {"type": "function", "function": {"name": "refund", "parameters": {"type": "object"}}}


def said(text: str, **more: Any) -> Completion:
    return Completion(message={"role": "assistant", "content": text}, **more)


async def step(desk: Desk, step_id: str = "st_1") -> StepRow:
    await desk.writer.barrier()
    async with desk.scope.reader() as reader:
        rows = [row async for row in reader.each(StepRow, {"run_id": desk.writer.stream.run_id})]
    return next(row for row in rows if row.step_id == step_id)


ANSWERS = [
    pytest.param(said("yes", usage=USAGE, raw_usage={"prompt_tokens": 1000}, response_id="r", model="m-2"), id="text"),
    pytest.param(
        Completion(
            message={
                "role": "assistant",
                "content": None,
                "tool_calls": [
                    {"id": "c1", "type": "function", "function": {"name": "refund", "arguments": '{"n": 1.5}'}},
                    {"id": "c2", "type": "function", "function": {"name": "refund", "arguments": '{"n": '}},
                ],
            },
            finish="tool_use",
        ),
        id="calls, one of them cut",
    ),
    pytest.param(Completion(message={"role": "assistant", "refusal": "no", "content": None}), id="refusal"),
    pytest.param(said("half of a pair: \ud83d", finish="length"), id="lone surrogate"),
    pytest.param(said("", finish="content_filter", raw_usage={"x": float("inf"), "y": 2**70}), id="odd numbers"),
    pytest.param(said("", finish="other"), id="nothing"),
]


@pytest.mark.parametrize("answer", ANSWERS)
def test_code_gets_the_same_completion_live_and_from_the_record(tmp_path: Path, answer: Completion) -> None:
    async def work(desk: Desk) -> tuple[Completion, Completion]:
        return await desk.answer(desk.ask()), await desk.replayed()

    live, replayed = at_desk(tmp_path, Scripted([answer]), work)
    assert live == answer
    assert replayed == answer
    assert replayed.calls == answer.calls


FAILURES = [
    ProviderError("answered 400: no", status=400, body="bad", retryable=False),
    InferenceTimeout("too slow", retryable=False),
    ProviderUnreachable("reset", retryable=False),
    AnswerIncomplete("cut", retryable=False, usage=USAGE, raw_usage={"a": 1}),
    InferenceFailed("what?"),
    BadRequest("not set up", sent=False),
]


@pytest.mark.parametrize("error", FAILURES, ids=lambda error: error.code)
def test_code_gets_the_same_failure_live_and_from_the_record(tmp_path: Path, error: InferenceFailed) -> None:
    async def work(desk: Desk) -> None:
        with pytest.raises(type(error)) as live:
            await desk.answer(desk.ask())
        with pytest.raises(type(error)) as replayed:
            await desk.replayed()
        for found in (live.value, replayed.value):
            told = (found.message, found.status, found.body, found.retryable, found.usage, found.raw_usage)
            assert told == (error.message, error.status, error.body, False, error.usage, error.raw_usage)
        (failed,) = await desk.record("inference.failed")
        assert failed.facts.error_code == error.error_code
        assert (await step(desk)).status == "failed"

    at_desk(tmp_path, Scripted([error]), work)


def test_a_request_is_durable_before_it_leaves(tmp_path: Path) -> None:
    seen: list[Any] = []

    async def look(request: ModelRequest) -> str:
        async with desks[0].scope.reader() as reader:
            events = await reader.events(desks[0].writer.stream)
        seen.append((events[-1].type, await desks[0].exact(events[-1])))
        return "done"

    desks: list[Desk] = []

    async def work(desk: Desk) -> None:
        desks.append(desk)
        await desk.answer(desk.ask("a question", settings={"temperature": 0.5}, tools=[TOOL]))

    at_desk(tmp_path, Scripted(look), work)
    asked = {"messages": [{"role": "user", "content": "a question"}], "settings": {"temperature": 0.5}, "tools": [TOOL]}
    assert seen == [("inference.requested", asked)]


def test_a_growing_conversation_stores_each_message_once(tmp_path: Path) -> None:
    async def work(desk: Desk) -> None:
        messages: list[dict[str, Any]] = []
        for turn in range(20):
            messages.append({"role": "user", "content": f"question {turn}"})
            answer = await desk.answer(desk.ask(messages=messages, tools=[TOOL], step=f"st_{turn}"))
            messages.append(answer.message)
        # Twenty questions, twenty answers, one tool.
        assert desk.writer.next_blob - 1 == 41
        last = (await desk.record("inference.requested"))[-1]
        assert (await desk.exact(last))["messages"] == messages[:-1]

    at_desk(tmp_path, Scripted(f"answer {number}" for number in range(20)), work)


def test_a_failed_attempt_is_on_record_with_its_cost_and_the_count_goes_on(tmp_path: Path) -> None:
    refusal = ProviderError("answered 503", status=503, retryable=True, retry_after=0)
    script = [refusal, InferenceTimeout("slow"), said("at last", usage=USAGE)]

    async def work(desk: Desk) -> None:
        ask = desk.ask(settings={"max_tokens": 100})
        assert (await desk.answer(ask)).text == "at last"
        events = await desk.record()
        assert [event.type for event in events[2:]] == [
            *("inference.requested", "inference.failed", "cost.recorded"),
            *("inference.requested", "inference.failed", "cost.recorded"),
            *("inference.requested", "inference.completed", "cost.recorded"),
        ]
        attempts = [event.facts.attempt for event in events[2:] if event.type != "cost.recorded"]
        assert attempts == [1, 1, 2, 2, 3, 3]
        assert [event.facts.retrying for event in events if event.type == "inference.failed"] == [True, True]
        most = estimate(ask.request)
        assert most.completion == 100
        priced = Decimal(most.prompt * 2 + 800) / 1_000_000
        assert amounts(events) == [
            ("0", False, 0, 0),  # A provider that answers with an error asks no money for it.
            (amount_text(priced), True, most.prompt, 100),
            ("0.00118", False, 1000, 10),
        ]
        row = await step(desk)
        assert (row.status, row.attempts, row.error_code, row.tokens_cached) == ("succeeded", 3, None, 600)

    at_desk(tmp_path, Scripted(script), work)


def test_a_step_between_two_attempts_is_running(tmp_path: Path) -> None:
    async def work(desk: Desk) -> None:
        async def again(request: ModelRequest) -> str:
            row = desk.writer.state.open.steps["st_1"]
            seen.append((row.status, row.attempts))
            if len(seen) == 1:
                raise ProviderUnreachable("reset")
            return "fine"

        seen: list[Any] = []
        desk.provider._say = again  # type: ignore[attr-defined]
        await desk.answer(desk.ask())
        assert seen == [("running", 1), ("running", 2)]
        assert "st_1" not in desk.writer.state.open.steps

    at_desk(tmp_path, Scripted([]), work)


@pytest.mark.parametrize(
    ("error", "retry", "asked"),
    [
        (ProviderUnreachable("reset"), Retry(attempts=3, first=0), 3),
        (ProviderUnreachable("reset"), Retry(attempts=1), 1),
        (ProviderError("answered 400", status=400), Retry(attempts=3, first=0), 1),
        (ProviderError("busy", status=429, retryable=True, retry_after=61), Retry(attempts=3, first=0), 1),
        (ProviderError("busy", status=429, retryable=True, retry_after=0), Retry(attempts=3, first=3600), 3),
    ],
    ids=["as often as allowed", "not again", "useless", "told to wait too long", "told to come back at once"],
)
def test_how_often_is_asked(tmp_path: Path, error: InferenceFailed, retry: Retry, asked: int) -> None:
    async def work(desk: Desk) -> None:
        with pytest.raises(type(error)):
            await desk.answer(desk.ask(retry=retry))
        assert len(await desk.record("inference.requested")) == asked
        assert len(await desk.record("inference.failed")) == asked
        assert len(await desk.record("cost.recorded")) == asked

    def fail(request: ModelRequest) -> InferenceFailed:
        return type(error)(error.message, status=error.status, retryable=error.retryable, retry_after=error.retry_after)

    at_desk(tmp_path, Scripted(fail), work)


def test_pauses_grow_up_to_their_limit() -> None:
    retry = Retry(attempts=1000, first=1, factor=2, limit=10)
    assert [retry.pause(failures) for failures in (1, 2, 3, 4, 5, 999)] == [1, 2, 4, 8, 10, 10]
    assert retry.pause(1000) is None


def test_a_lost_attempt_costs_what_was_put_aside_for_it_and_the_next_has_the_next_number(tmp_path: Path) -> None:
    async def work(desk: Desk) -> None:
        ask = desk.ask(settings={"max_completion_tokens": 50})
        dying = asyncio.create_task(desk.inference.perform(ask))
        await asked.wait()
        dying.cancel()
        with pytest.raises(asyncio.CancelledError):
            await dying
        found = standing(await desk.record())
        assert (found.attempts, found.failures) == (1, 0)
        assert found.unanswered is not None
        drafts = desk.inference.lost(ask, found.attempts)
        for draft in drafts:
            desk.writer.append(draft)
        again = desk.ask(settings={"max_completion_tokens": 50}, attempt=2)
        assert (await desk.answer(again)).text == "second"
        requested, _ = await desk.record("inference.requested")
        lost, _ = amounts(await desk.record())
        assert lost[1:] == (True, estimate(ask.request).prompt, 50)
        assert requested.facts.reserved_tokens == lost[2] + lost[3]
        assert requested.facts.reserved_amount == lost[0]
        assert requested.facts.reserved_currency == "USD"
        # Nobody gives back what a dead process had put aside: whoever finds the attempt counts it as spent.
        assert len(desk.purse.reserved) == 2
        assert [each.tokens for each in desk.purse.settled[0]] == [0, requested.facts.reserved_tokens]
        assert (await step(desk)).status == "succeeded"
        assert seen.told == [("discarded", 1)]

    asked, seen = asyncio.Event(), Seen()

    async def say(request: ModelRequest) -> str:
        if asked.is_set():
            return "second"
        asked.set()
        await asyncio.Event().wait()
        raise AssertionError

    at_desk(tmp_path, Scripted(say), work, watcher=seen)


def test_a_budget_is_asked_before_anything_is_recorded(tmp_path: Path) -> None:
    async def work(desk: Desk) -> None:
        with pytest.raises(BudgetGone):
            await desk.answer(desk.ask(settings={"max_tokens": 1000}))
        assert await desk.record("inference.requested") == []
        assert provider.asked == []
        desk.purse.left = 10_000
        await desk.answer(desk.ask(settings={"max_tokens": 1000}))
        ((reserved, spent),) = desk.purse.settled
        assert reserved.tokens > 1000
        assert spent == (1010, Decimal("0.00118"), "USD")

    provider = Scripted([said("yes", usage=USAGE)])
    at_desk(tmp_path, provider, work, purse=Purse(1000))


def test_an_answer_without_usage_is_estimated_and_says_so(tmp_path: Path) -> None:
    async def work(desk: Desk) -> None:
        ask = desk.ask()
        await desk.answer(ask)
        (cost,) = amounts(await desk.record())
        assert cost[1:] == (True, estimate(ask.request).prompt, 3)

    at_desk(tmp_path, Scripted(["nine byte"]), work)


def test_an_unknown_price_is_none_and_not_zero(tmp_path: Path) -> None:
    async def work(desk: Desk) -> None:
        await desk.answer(desk.ask())
        assert amounts(await desk.record()) == [(None, False, 1000, 10)]

    at_desk(tmp_path, Scripted([said("yes", usage=USAGE)], model="another"), work)


def test_a_provider_that_breaks_is_a_failure_of_the_step(tmp_path: Path) -> None:
    def broken(request: ModelRequest) -> str:
        raise KeyError("choices")

    async def work(desk: Desk) -> None:
        with pytest.raises(InferenceFailed, match="scripted raised KeyError"):
            await desk.answer(desk.ask())
        assert [event.facts.error_code for event in await desk.record("inference.failed")] == ["other"]

    at_desk(tmp_path, Scripted(broken), work)


def test_an_answer_that_cannot_be_recorded_is_a_failure_that_was_paid(tmp_path: Path) -> None:
    deep: Any = "end"
    for _ in range(300):
        deep = [deep]
    answer = Completion(message={"role": "assistant", "content": "fine", "deep": deep}, usage=USAGE)

    async def work(desk: Desk) -> None:
        with pytest.raises(ProviderError, match="cannot be recorded"):
            await desk.answer(desk.ask())
        with pytest.raises(ProviderError, match="cannot be recorded"):
            await desk.replayed()
        assert amounts(await desk.record()) == [("0.00118", False, 1000, 10)]

    at_desk(tmp_path, Scripted([answer]), work)


@pytest.mark.parametrize("value", [{1, 2}, float("nan"), b"bytes", object()], ids=lambda value: type(value).__name__)
def test_a_request_that_is_not_json_is_refused_before_it_is_one(value: Any) -> None:
    with pytest.raises(BadRequest, match="message 2"):
        request_for(Scripted([]), [{"role": "user"}, {"role": "user", "content": value}])


def test_a_request_is_a_copy_and_its_fingerprint_says_what_it_asks() -> None:
    messages = [{"role": "user", "content": "one"}]
    provider = Scripted([], settings={"seed": 1})
    request = request_for(provider, messages, {"top_p": 1})
    before = fingerprint(b"secret", request)
    messages[0]["content"] = "two"
    assert request.messages == [{"role": "user", "content": "one"}]
    assert request.settings == {"seed": 1, "top_p": 1}
    assert fingerprint(b"secret", request) == before
    assert fingerprint(b"another tenant's", request) != before
    others = [
        request_for(provider, messages, {"top_p": 1}),
        request_for(provider, [{"role": "user", "content": "one"}], {"top_p": 2}),
        request_for(provider, [{"role": "user", "content": "one"}], {"top_p": 1}, [TOOL]),
    ]
    assert len({before, *(fingerprint(b"secret", other) for other in others)}) == 4
    reordered = request_for(provider, [{"content": "one", "role": "user"}], {"top_p": 1})
    assert fingerprint(b"secret", reordered) == before


def test_a_script_that_ends_says_so(tmp_path: Path) -> None:
    async def work(desk: Desk) -> None:
        await desk.answer(desk.ask())
        with pytest.raises(ScriptExhausted, match="has 1 answers"):
            await desk.answer(desk.ask(step="st_2"))

    at_desk(tmp_path, Scripted(["only"]), work)


def test_a_script_says_calls_and_parts() -> None:
    async def work() -> None:
        call = ModelCall("c1", "refund", {"n": 1})
        parts = [
            Part("a"),
            Part(calls=(CallDelta(0, "c1", "refund", '{"n"'),)),
            Part(calls=(CallDelta(0, arguments=": 1}"),)),
        ]
        provider = Scripted([call, [call, call], parts])
        request = request_for(provider, [])
        assert (await provider.complete(request, timeout=1)).calls == [call]
        assert (await provider.complete(request, timeout=1)).calls == [call, call]
        whole = await provider.complete(request, timeout=1)
        assert (whole.text, whole.calls, whole.finish) == ("a", [call], "tool_use")

    asyncio.run(work())


def test_an_aborted_wait_between_two_tries_ends_with_one_record(tmp_path: Path) -> None:
    async def work(desk: Desk) -> None:
        ask = desk.ask(retry=Retry(attempts=3, first=3600, limit=3600))
        answer = asyncio.create_task(desk.answer(ask))
        while not await desk.record("inference.failed"):
            await asyncio.sleep(0)
        assert (await step(desk)).status == "running"
        ask.cut.set()
        with pytest.raises(InferenceAborted):
            await answer
        events = await desk.record("inference.failed", "inference.requested", "cost.recorded")
        told = [
            (event.type, getattr(event.facts, "attempt", None), getattr(event.facts, "retrying", None))
            for event in events
        ]
        assert told == [
            ("inference.requested", 1, None),
            ("inference.failed", 1, True),
            ("cost.recorded", None, None),
            ("inference.failed", 2, False),
            ("cost.recorded", None, None),
        ]
        assert events[-1].facts.requests == 0

    at_desk(tmp_path, Scripted([ProviderUnreachable("reset", sent=False)]), work)
