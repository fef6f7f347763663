"""Streams: code sees recorded parts only, and every way out leaves one final record."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

from refold.events.catalog.inference import Usage
from refold.gateway.answers import outcome, part_of
from refold.gateway.model_errors import AnswerIncomplete, InferenceAborted, InferenceFailed, ProviderError
from refold.gateway.models import CallDelta, Completion, ModelRequest, Part
from refold.gateway.prices import estimate
from refold.gateway.providers.openai_compatible import openai_compatible
from refold.gateway.providers.scripted import Scripted
from refold.gateway.streaming import PART_CHARACTERS
from refold.ledger.drafts import Draft
from tests.gateway.models_support import Desk, Seen, amounts, at_desk
from tests.gateway.serving import Request, chunk, events, head, serving


class Dripping(Scripted):
    """Says words one by one, each when it is told to, and notes how its stream ended."""

    def __init__(self, words: int) -> None:
        super().__init__([])
        self.words = words
        self.go = asyncio.Semaphore(0)
        self.closed: list[str] = []

    async def stream(self, request: ModelRequest, *, timeout: float) -> AsyncGenerator[Part | Completion, None]:
        text = ""
        try:
            for number in range(self.words):
                await self.go.acquire()
                text += f"word{number} "
                yield Part(f"word{number} ")
            yield Completion(message={"role": "assistant", "content": text}, usage=Usage(prompt=5, completion=5))
        finally:
            self.closed.append(text)


async def said(desk: Desk) -> list[Part]:
    return [part_of(event, await desk.exact(event)) for event in await desk.record("inference.part")]


def test_deltas_become_parts_of_reasonable_size_and_together_are_the_answer(tmp_path: Path) -> None:
    deltas = [Part(f"{number} ") for number in range(500)]
    deltas.append(Part(calls=(CallDelta(0, "c1", "refund", '{"n":'),)))
    deltas.append(Part(calls=(CallDelta(0, arguments=" 1}"), CallDelta(1, "c2", "look_up", "{}"))))

    async def work(desk: Desk) -> None:
        answer = await desk.answer(desk.ask(stream=desk.stream))
        parts = await said(desk)
        assert [part.index for part in parts] == list(range(len(parts)))
        assert "".join(part.text for part in parts) == answer.text == "".join(f"{n} " for n in range(500))
        assert [call.arguments for call in answer.calls] == [{"n": 1}, {}]
        arguments = {0: "", 1: ""}
        for part in parts:
            for call in part.calls:
                arguments[call.place] += call.arguments
        assert arguments == {0: '{"n": 1}', 1: "{}"}
        assert all(len(part.text) < PART_CHARACTERS + 5 for part in parts)
        assert len(parts) <= 2 + len(answer.text) // PART_CHARACTERS
        order = [event.type for event in await desk.record()][2:]
        assert order == [
            "inference.requested",
            *["inference.part"] * len(parts),
            "inference.completed",
            "cost.recorded",
        ]

    at_desk(tmp_path, Scripted([deltas]), work)


def test_a_slow_stream_is_given_out_as_it_comes(tmp_path: Path) -> None:
    async def work(desk: Desk) -> None:
        provider.go = asyncio.Semaphore(0)
        first = asyncio.Event()

        def stream(draft: Draft) -> None:
            desk.stream(draft)
            first.set()

        answer = asyncio.create_task(desk.answer(desk.ask(stream=stream)))
        provider.go.release()
        # Nothing more comes, and yet the first word is given out.
        await first.wait()
        assert [part.text for part in await said(desk)] == ["word0 "]
        provider.go.release()
        assert (await answer).text == "word0 word1 "
        assert [part.text for part in await said(desk)] == ["word0 ", "word1 "]

    provider = Dripping(2)
    at_desk(tmp_path, provider, work)


def test_case_38_an_abandoned_stream_has_one_final_record_with_what_came_and_what_it_cost(tmp_path: Path) -> None:
    async def work(desk: Desk) -> None:
        provider.go = asyncio.Semaphore(0)

        def stream(draft: Draft) -> None:
            desk.stream(draft)
            ask.cut.set()  # Code stops reading at the first part.

        ask = desk.ask(stream=stream, settings={"max_tokens": 5000})
        answer = asyncio.create_task(desk.answer(ask))
        provider.go.release()
        with pytest.raises(InferenceAborted) as live:
            await answer
        with pytest.raises(InferenceAborted) as replayed:
            await desk.replayed()
        for failed in (live.value, replayed.value):
            assert failed.answer_so_far == {"role": "assistant", "content": "word0 "}
        types = [event.type for event in await desk.record()][2:]
        assert types == ["inference.requested", "inference.part", "inference.failed", "cost.recorded"]
        # What was sent and what came: not the five thousand tokens that might have come.
        assert amounts(await desk.record())[0][1:] == (True, estimate(ask.request).prompt, 2)
        assert provider.closed == ["word0 "]
        assert "st_1" not in desk.writer.state.open.steps

    provider = Dripping(100)
    at_desk(tmp_path, provider, work)


def test_code_that_stopped_reading_is_given_nothing_more(tmp_path: Path) -> None:
    long = "x" * PART_CHARACTERS

    async def work(desk: Desk) -> None:
        def stream(draft: Draft) -> None:
            desk.stream(draft)
            ask.cut.set()

        ask = desk.ask(stream=stream)
        # The model had said it all by then; what it said counts, and so does what it cost.
        assert (await desk.answer(ask)).text == long * 3
        assert [part.text for part in await said(desk)] == [long]

    at_desk(tmp_path, Scripted([[Part(long)] * 3]), work)


ERRORS = [
    ProviderError("overloaded", status=200),
    AnswerIncomplete("cut", retryable=False),
    ValueError("a bug"),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_case_38_a_stream_that_breaks_has_one_final_record_with_what_came(tmp_path: Path, error: Exception) -> None:
    async def work(desk: Desk) -> None:
        with pytest.raises(InferenceFailed) as live:
            await desk.answer(desk.ask(stream=desk.stream))
        assert live.value.answer_so_far == {"role": "assistant", "content": "Once upon "}
        final = await desk.record("inference.completed", "inference.failed", "inference.lost")
        assert len(final) == 1
        ((_, estimated, _, completion),) = amounts(await desk.record())
        assert (estimated, completion) == (True, 4)

    at_desk(tmp_path, Scripted([[Part("Once "), Part("upon "), error]]), work)


def test_a_stream_that_just_ends_is_incomplete(tmp_path: Path) -> None:
    class Ending(Scripted):
        async def stream(self, request: ModelRequest, *, timeout: float) -> AsyncGenerator[Part | Completion, None]:
            yield Part("Once ")

    async def work(desk: Desk) -> None:
        with pytest.raises(AnswerIncomplete):
            await desk.answer(desk.ask(stream=desk.stream))
        assert len(await desk.record("inference.failed")) == 3  # As often as it was allowed to fail.

    at_desk(tmp_path, Ending([]), work)


def test_another_attempt_begins_anew_and_front_ends_are_told(tmp_path: Path) -> None:
    seen = Seen()
    script: list[Any] = [[Part("bad "), AnswerIncomplete("cut")], [Part("good "), Part("end")]]

    async def work(desk: Desk) -> None:
        assert (await desk.answer(desk.ask(stream=desk.stream))).text == "good end"
        parts = [(part.attempt, part.index) for part in await said(desk)]
        assert parts == [(2, 0)]
        assert seen.told == [("delta", 1, "bad "), ("discarded", 1), ("delta", 2, "good "), ("delta", 2, "end")]

    at_desk(tmp_path, Scripted(script), work, watcher=seen)


def test_parts_that_code_saw_of_a_broken_attempt_stay_on_record_as_of_that_attempt(tmp_path: Path) -> None:
    long = "x" * PART_CHARACTERS
    script: list[Any] = [[Part(long), AnswerIncomplete("cut")], [Part("good")]]

    async def work(desk: Desk) -> None:
        await desk.answer(desk.ask(stream=desk.stream))
        assert [(part.attempt, part.index, part.text) for part in await said(desk)] == [(1, 0, long), (2, 0, "good")]

    at_desk(tmp_path, Scripted(script), work)


def test_a_stream_over_http_that_is_abandoned_lets_its_connection_go(tmp_path: Path) -> None:
    async def work(desk: Desk) -> None:
        gone = asyncio.Event()

        async def respond(_request: Request, writer: asyncio.StreamWriter) -> None:
            writer.write(head(200, "text/event-stream"))
            try:
                for number in range(10**9):
                    writer.write(events(chunk(f"word{number} "), done=False))
                    await writer.drain()
                    await asyncio.sleep(0)
            finally:
                gone.set()

        async with serving(respond) as url:
            provider = openai_compatible(url, "m")
            desk.inference._providers = {"main": provider}

            def stream(draft: Draft) -> None:
                desk.stream(draft)
                ask.cut.set()

            ask = desk.ask(stream=stream)
            drafts = await desk.inference.perform(ask)
            await gone.wait()
            await provider.aclose()
            event = desk.writer.append(drafts[0])
            desk.writer.append(drafts[1])
            await desk.writer.barrier()
            with pytest.raises(InferenceAborted) as failed:
                outcome(event, await desk.exact(event))
            assert failed.value.answer_so_far is not None
            assert failed.value.answer_so_far["content"].startswith("word0 word1 ")

    at_desk(tmp_path, Scripted([]), work)
