"""Recorded traffic, served on loopback: what code gets is what the `openai` package makes of the same bytes."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import openai
import pytest
from openai.lib.streaming.chat import ChatCompletionStreamState

from refold.gateway.answers import part_of
from refold.gateway.model_errors import ProviderError
from refold.gateway.models import Completion, Part
from refold.gateway.providers.chat import Assembling
from refold.gateway.providers.openai_compatible import openai_compatible
from refold.gateway.providers.sse import EventStream
from refold.ledger.ledger import open_ledger
from tests.gateway.models_support import Desk, begin
from tests.gateway.serving import Recorded, always, cassettes, serving

FINISH = {"tool_calls": "tool_use", "function_call": "tool_use"}


def ours(answer: Completion) -> dict[str, Any]:
    """What is compared of an answer."""
    calls = answer.message.get("tool_calls") or []
    return {
        "text": answer.message.get("content") or None,
        "refusal": answer.refusal,
        "calls": [(call["id"], call["function"]["name"], call["function"]["arguments"]) for call in calls],
        "finish": answer.finish,
        "usage": answer.raw_usage,
        "id": answer.response_id,
        "model": answer.model,
    }


def theirs(answer: Any, usage: Any) -> dict[str, Any]:
    """The same of what the package returns."""
    choice = answer.choices[0]
    calls = choice.message.tool_calls or []
    return {
        "text": choice.message.content or None,
        "refusal": choice.message.refusal or None,
        "calls": [(call.id, call.function.name, call.function.arguments) for call in calls],
        "finish": FINISH.get(choice.finish_reason, choice.finish_reason),
        "usage": None if usage is None else usage.to_dict(),
        "id": answer.id,
        "model": answer.model,
    }


async def asked_by_the_package(url: str, recorded: Recorded) -> dict[str, Any] | tuple[int, Any]:
    async with openai.AsyncOpenAI(base_url=url, api_key="key", max_retries=0) as client:
        request = {name: recorded.asked[name] for name in ("model", "messages", "tools") if recorded.asked.get(name)}
        try:
            if not recorded.is_stream:
                answer = await client.chat.completions.create(**request)
                return theirs(answer, answer.usage)
            state, usage = ChatCompletionStreamState(), None
            async for each in await client.chat.completions.create(**request, stream=True):
                state.handle_chunk(each)
                usage = each.usage or usage
            return theirs(state.current_completion_snapshot, usage)
        except openai.APIStatusError as error:
            return error.status_code, error.body


@pytest.mark.parametrize("recorded", cassettes())
def test_a_recorded_answer_is_what_the_openai_package_makes_of_it(tmp_path: Path, recorded: Recorded) -> None:
    async def work() -> None:
        async with serving(always(recorded.response())) as url:
            wanted = await asked_by_the_package(url, recorded)
            provider = openai_compatible(url, recorded.asked["model"], api_key="key")
            async with await open_ledger(tmp_path / "ledger.db") as ledger, await begin(ledger.scope()) as writer:
                desk = Desk(ledger, writer, provider)
                ask = desk.ask(
                    messages=recorded.asked["messages"],
                    tools=recorded.asked.get("tools") or (),
                    stream=desk.stream if recorded.is_stream else None,
                )
                if isinstance(wanted, tuple):
                    for again in (desk.answer(ask), desk.replayed()):
                        with pytest.raises(ProviderError) as refused:
                            await again
                        status, body = wanted
                        assert refused.value.status == status
                        assert json.loads(refused.value.body or "")["error"] == body
                        assert body["message"] in refused.value.message
                else:
                    live = await desk.answer(ask)
                    assert ours(live) == wanted
                    assert await desk.replayed() == live
                    if recorded.is_stream:
                        await _parts_are_the_answer(desk, live)
            await provider.aclose()

    asyncio.run(work())


async def _parts_are_the_answer(desk: Desk, answer: Completion) -> None:
    parts = [part_of(event, await desk.exact(event)) for event in await desk.record("inference.part")]
    assert [part.index for part in parts] == list(range(len(parts)))
    assert "".join(part.text for part in parts) == answer.text
    arguments: dict[int, str] = {}
    for part in parts:
        for call in part.calls:
            arguments[call.place] = arguments.get(call.place, "") + call.arguments
    asked = [call["function"]["arguments"] for call in answer.message.get("tool_calls", ())]
    assert [arguments[place] for place in sorted(arguments)] == asked


@pytest.mark.parametrize(
    "recorded", [each for each in cassettes() if each.values[0] is None or each.values[0].is_stream]
)
def test_a_recorded_stream_is_the_same_wherever_it_is_cut(recorded: Recorded) -> None:
    body = recorded.body
    stream = EventStream()
    whole = list(stream.feed(body))
    assert [json.loads(data) for data in whole[:-1]]
    assert whole[-1] == "[DONE]"
    for cut in range(1, len(body), max(1, len(body) // 400)):
        stream = EventStream()
        assert [*stream.feed(body[:cut]), *stream.feed(body[cut:])] == whole
    stream = EventStream()
    assert [data for byte in body for data in stream.feed(bytes([byte]))] == whole
    assembling = Assembling()
    parts = [part for data in whole[:-1] for part in assembling.add(json.loads(data))]
    answer = assembling.end(200)
    assert "".join(part.text for part in parts if isinstance(part, Part)) == answer.text
