"""What SDKs do on the side: retries, tool calls, streams that are left; and errors that they would hide."""

from __future__ import annotations

import asyncio
import json
from functools import partial
from pathlib import Path
from typing import Any

import anthropic
import openai
import pytest

import refold
from refold import seam
from refold.ledger.errors import LedgerFull
from refold.testing import faults
from tests.interop.record.servers import Reply, as_events, as_json, asking, chat, one_after_the_other, piece, serving
from tests.interop.record.support import FILE, contents, endings, offline, run_row, step_rows

KEY = "sk-proj-this-is-the-key-of-nobody-1234567890"
TOOLS: list[Any] = [{"type": "function", "function": {"name": "refund", "parameters": {"type": "object"}}}]


def calling(place: int, arguments: str, name: str | None = None) -> dict[str, Any]:
    function = {"arguments": arguments, **({} if name is None else {"name": name})}
    return piece(
        tool_calls=[{"index": place, **({} if name is None else {"id": f"call_{place}"}), "function": function}]
    )


def test_an_agent_with_tools_over_a_stream_runs_again_offline(tmp_path: Path) -> None:
    first = as_events(
        calling(0, "", "refund"), calling(0, '{"order":'), calling(0, '"88412"}'), piece(finish="tool_calls"), "[DONE]"
    )
    second = as_json(chat("Refunded."))

    def agent(client: openai.OpenAI) -> str | None:
        messages: list[Any] = [{"role": "user", "content": "Refund order 88412."}]
        with client.chat.completions.stream(model="northwind-large-2", messages=messages, tools=TOOLS) as stream:
            message = stream.get_final_completion().choices[0].message
        (call,) = message.tool_calls or ()
        messages += [
            message.model_dump(exclude_none=True),
            {"role": "tool", "tool_call_id": call.id, "content": "paid"},
        ]
        answer = client.chat.completions.create(model="northwind-large-2", messages=messages, tools=TOOLS)
        return f"{call.function.name} {call.function.arguments}: {answer.choices[0].message.content}"

    with (
        serving(one_after_the_other(first, second)) as server,
        refold.record("refunds", ledger=tmp_path / FILE) as rec,
        openai.OpenAI(base_url=server.url, api_key=KEY, http_client=rec.httpx2_client()) as client,
    ):
        said = agent(client)
    assert said == 'refund {"order":"88412"}: Refunded.'
    assert [step.finish for step in step_rows(tmp_path, rec.run_id)] == ["tool_use", "stop"]
    (kept, _) = contents(tmp_path, rec.run_id, "inference.completed")
    assert kept["message"][0]["tool_calls"][0]["function"] == {"name": "refund", "arguments": '{"order":"88412"}'}
    with (
        offline(),
        refold.replay_recording(rec.run_id, ledger=tmp_path / FILE) as again,
        openai.OpenAI(base_url=server.url, api_key="another", http_client=again.httpx2_client()) as client,
    ):
        assert agent(client) == said
    assert again.report.equal


@pytest.mark.parametrize("status", [408, 429, 500, 503])
def test_each_try_of_an_sdk_is_on_record_and_a_replay_does_not_sleep_between_them(status: int, tmp_path: Path) -> None:
    busy = as_json({"error": {"message": "busy"}}, status, ("retry-after-ms", "1"), ("retry-after", "60"))

    def agent(client: openai.OpenAI) -> Any:
        return client.chat.completions.create(**asking("Where is it?")).to_dict()

    with (
        serving(one_after_the_other(busy, busy, as_json(chat("here")))) as server,
        refold.record("refunds", ledger=tmp_path / FILE) as rec,
        openai.OpenAI(base_url=server.url, api_key=KEY, http_client=rec.httpx2_client()) as client,
    ):
        said = agent(client)
    assert endings(tmp_path, rec.run_id) == [("failed", "provider_error")] * 2 + [("completed", None)]
    tries = [dict(each["request"]["headers"]) for each in contents(tmp_path, rec.run_id, "inference.requested")]
    assert [each["x-stainless-retry-count"] for each in tries] == ["0", "1", "2"]
    with (
        offline(),
        refold.replay_recording(rec.run_id, ledger=tmp_path / FILE) as again,
        openai.OpenAI(base_url=server.url, api_key=KEY, http_client=again.httpx2_client()) as client,
    ):
        assert agent(client) == said
    assert again.report.equal


@pytest.mark.parametrize("status", [200, 429, 503])
def test_a_client_that_is_told_to_wait_is_told_not_to_by_a_replay(status: int, tmp_path: Path) -> None:
    busy = as_json({}, status, ("retry-after-ms", "60000"), ("retry-after", "60"))
    with (
        serving(one_after_the_other(busy)) as server,
        refold.record("refunds", ledger=tmp_path / FILE) as rec,
        rec.httpx_client() as client,
    ):
        client.get(server.url)
    with refold.replay_recording(rec.run_id, ledger=tmp_path / FILE) as again, again.httpx_client() as client:
        headers = client.get(server.url).headers
    assert (headers["retry-after-ms"], headers["retry-after"]) == ("60000" if status == 200 else "1", "60")


def test_errors_of_the_provider_reach_the_code_as_the_same_exception(tmp_path: Path) -> None:
    error = {"type": "error", "error": {"type": "invalid_request_error", "message": "no such model"}}

    def agent(client: anthropic.Anthropic) -> str:
        with pytest.raises(anthropic.BadRequestError) as caught:
            client.messages.create(model="x", max_tokens=1, messages=[{"role": "user", "content": "?"}])
        return str(caught.value)

    with (
        serving(one_after_the_other(as_json(error, 400))) as server,
        refold.record("refunds", ledger=tmp_path / FILE) as rec,
        anthropic.Anthropic(base_url=server.url, api_key=KEY, http_client=rec.httpx2_client()) as client,
    ):
        said = agent(client)
    assert step_rows(tmp_path, rec.run_id)[0].error_message == "no such model"
    with (
        offline(),
        refold.replay_recording(rec.run_id, ledger=tmp_path / FILE) as again,
        anthropic.Anthropic(base_url=server.url, api_key=KEY, http_client=again.httpx2_client()) as client,
    ):
        assert agent(client) == said


def test_the_openai_package_takes_a_client_of_httpx_too(tmp_path: Path) -> None:
    with (
        serving(one_after_the_other(as_json(chat("yes")))) as server,
        refold.record("refunds", ledger=tmp_path / FILE) as rec,
        openai.OpenAI(base_url=server.url, api_key=KEY, http_client=rec.httpx_client()) as client,
    ):
        said = client.chat.completions.create(**asking("?")).to_dict()
    with (
        offline(),
        refold.replay_recording(rec.run_id, ledger=tmp_path / FILE) as again,
        openai.OpenAI(base_url=server.url, api_key=KEY, http_client=again.httpx_client()) as client,
    ):
        assert client.chat.completions.create(**asking("?")).to_dict() == said


def test_a_stream_that_an_async_agent_leaves_is_on_record_once(tmp_path: Path) -> None:
    reply = as_events(piece("In "), piece("Leipzig."), piece(finish="stop"), "[DONE]")

    async def agent(url: str) -> str:
        async with (
            refold.record("refunds", ledger=tmp_path / FILE) as rec,
            openai.AsyncOpenAI(base_url=url, api_key=KEY, http_client=rec.httpx2_async_client()) as client,
            await client.chat.completions.create(**asking("Where?"), stream=True) as stream,
        ):
            async for _ in stream:
                break
        return rec.run_id

    with serving(one_after_the_other(reply)) as server:
        run_id = asyncio.run(agent(server.url))
    assert endings(tmp_path, run_id) == [("failed", "aborted")]


def told(text: str) -> dict[str, Any]:
    return {"model": "m", "max_tokens": 1, "messages": [{"role": "user", "content": text}]}


def answer(text: str) -> Reply:
    usage = {"input_tokens": 4, "output_tokens": 1}
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "stop_reason": "end_turn"}
    return as_json({**message, "content": [{"type": "text", "text": text}], "usage": usage})


def test_a_divergence_that_an_sdk_takes_for_a_broken_connection_ends_the_block_as_itself(tmp_path: Path) -> None:
    with (
        serving(one_after_the_other(answer("yes"))) as server,
        refold.record("refunds", ledger=tmp_path / FILE) as rec,
        anthropic.Anthropic(base_url=server.url, api_key=KEY, http_client=rec.httpx2_client()) as client,
    ):
        client.messages.create(**told("Where is it?"))

    def agent() -> None:
        with (
            refold.replay_recording(rec.run_id, ledger=tmp_path / FILE) as again,
            anthropic.Anthropic(
                base_url=server.url, api_key=KEY, http_client=again.httpx2_client(), max_retries=1
            ) as client,
        ):
            reports.append(again)
            client.messages.create(**told("Where was it?"))

    reports: list[Any] = []
    with offline(), pytest.raises(refold.RecordingDiverged, match="content") as caught:
        agent()
    assert isinstance(caught.value.__cause__, anthropic.APIConnectionError)
    assert [each.kind for each in reports[0].report.divergences] == ["changed_request"]


def test_what_the_ledger_refuses_is_not_sent_and_ends_the_block_as_itself(tmp_path: Path) -> None:
    def full(point: str) -> None:
        if armed and point == "vfs.write:wal":
            faults.disk_full(point)

    def agent(url: str) -> None:
        opened = partial(refold.open_ledger, tmp_path / FILE, vfs=faults.register())
        with (
            refold.record("refunds", key="monday", ledger=opened) as rec,
            anthropic.Anthropic(base_url=url, api_key=KEY, http_client=rec.httpx2_client(), max_retries=0) as client,
        ):
            run_ids.append(rec.run_id)
            client.messages.create(**told("one"))
            armed.append(True)
            client.messages.create(**told("two"))

    armed: list[bool] = []
    run_ids: list[str] = []
    with serving(one_after_the_other(answer("yes"))) as server, seam.installed(full), pytest.raises(LedgerFull):
        agent(server.url)
    assert len(server.asked) == 1
    assert run_row(tmp_path, run_ids[0]).status == "running"
    with pytest.raises(refold.RecordingExists), refold.record("refunds", key="monday", ledger=tmp_path / FILE):
        pass
    assert run_row(tmp_path, run_ids[0]).error_code == "process_lost"


def test_an_answer_in_parts_of_a_word_is_read_whole(tmp_path: Path) -> None:
    events = [json.dumps(each, ensure_ascii=False) for each in (piece("grün"), piece(finish="stop"))]
    data = "".join(f"data: {each}\r\n\r\n: a comment\r\n" for each in events).encode()
    reply = Reply([data[at : at + 1] for at in range(len(data))], 200, (("content-type", "text/event-stream"),))
    with (
        serving(one_after_the_other(reply)) as server,
        refold.record("refunds", ledger=tmp_path / FILE) as rec,
        openai.OpenAI(base_url=server.url, api_key=KEY, http_client=rec.httpx2_client()) as client,
    ):
        list(client.chat.completions.create(**asking("?"), stream=True))
    assert step_rows(tmp_path, rec.run_id)[0].output_summary == "grün"
    assert endings(tmp_path, rec.run_id) == [("completed", None)]
