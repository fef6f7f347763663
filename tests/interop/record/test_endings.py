"""However a request ends, it is on record once: read, left, reset, refused, timed out, cancelled. (Case 38.)"""

from __future__ import annotations

import asyncio
import gc
import socket
import threading
from pathlib import Path
from typing import Any

import httpx
import pytest

import refold
from refold.interop.record.errors import RecordingOver
from tests.interop.record.servers import (
    Asked,
    Reply,
    as_events,
    as_json,
    asking,
    chat,
    one_after_the_other,
    piece,
    serving,
)
from tests.interop.record.sides import NAMES, SIDES, Side
from tests.interop.record.support import FILE, contents, cost_rows, endings, events, run_row, step_rows

sides = pytest.mark.parametrize("side", SIDES, ids=NAMES)
CHAT = "/v1/chat/completions"


@sides
def test_an_answer_that_was_read_is_completed(side: Side, tmp_path: Path) -> None:
    with (
        serving(one_after_the_other(as_json(chat("In Leipzig.")))) as server,
        refold.record("nightly", ledger=tmp_path / FILE) as rec,
    ):
        side.ask(rec, server.url + CHAT, asking("Where is it?"))
    assert endings(tmp_path, rec.run_id) == [("completed", None)]
    assert run_row(tmp_path, rec.run_id).status == "succeeded"
    (step,) = step_rows(tmp_path, rec.run_id)
    assert (step.node, step.status, step.finish) == ("northwind-large-2", "succeeded", "stop")
    assert (step.input_summary, step.output_summary) == ("Where is it?", "In Leipzig.")
    (cost,) = cost_rows(tmp_path, rec.run_id)
    assert (cost.tokens_prompt, cost.tokens_completion, cost.amount) == (12, 3, None)


@sides
def test_a_stream_that_was_left_is_aborted_with_what_was_read(side: Side, tmp_path: Path) -> None:
    reply = as_events(piece("In "), piece("Leip"), piece("zig."), then="stall")
    with serving(one_after_the_other(reply)) as server, refold.record("nightly", ledger=tmp_path / FILE) as rec:
        chunks = side.ask(rec, server.url + CHAT, asking("Where?"), read=1).chunks
        assert endings(tmp_path, rec.run_id) == [("failed", "aborted")]
    (left,) = contents(tmp_path, rec.run_id, "inference.failed")
    assert (left["ended"], left["response"]["body"].encode()) == ("closed", chunks[0])
    assert run_row(tmp_path, rec.run_id).status == "succeeded"


@sides
def test_a_stream_that_said_its_end_is_completed_though_its_body_was_not_read_to_its(
    side: Side, tmp_path: Path
) -> None:
    events_ = "".join(f"data: {each}\n\n" for each in ('{"choices":[{"delta":{"content":"Yes"}}]}', "[DONE]"))
    reply = Reply([events_.encode()], 200, (("content-type", "text/event-stream"),), "stall")
    with serving(one_after_the_other(reply)) as server, refold.record("nightly", ledger=tmp_path / FILE) as rec:
        side.ask(rec, server.url + CHAT, asking("Is it there?"), read=1)
    assert endings(tmp_path, rec.run_id) == [("completed", None)]


@sides
def test_a_reset_in_the_middle_keeps_what_came(side: Side, tmp_path: Path) -> None:
    reply = as_events(piece("In "), then="reset")
    with (
        serving(one_after_the_other(reply)) as server,
        refold.record("nightly", ledger=tmp_path / FILE) as rec,
        pytest.raises(side.module.TransportError),
    ):
        side.ask(rec, server.url + CHAT, asking("Where?"))
    assert endings(tmp_path, rec.run_id) == [("failed", "connection")]
    (left,) = contents(tmp_path, rec.run_id, "inference.failed")
    assert left["raised"]["type"] in ("ReadError", "RemoteProtocolError")


@sides
def test_no_answer_a_refused_connection_and_a_timeout_are_told_apart(side: Side, tmp_path: Path) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))  # Bound and not listening: nobody else can be there.
        nowhere = f"http://127.0.0.1:{closed.getsockname()[1]}"
        stalled = as_json(chat("never"))._replace(chunks=[], then="stall")
        with (
            serving(one_after_the_other(None, stalled)) as server,
            refold.record("nightly", ledger=tmp_path / FILE) as rec,
        ):
            for url in (nowhere, server.url, server.url):
                with pytest.raises(side.module.TransportError):
                    side.ask(rec, url + CHAT, asking("Where?"), timeout=side.module.Timeout(30, read=0.2))
    assert endings(tmp_path, rec.run_id) == [("failed", "connection"), ("failed", "connection"), ("failed", "timeout")]


@sides
def test_errors_of_the_provider_are_answers_and_failures(side: Side, tmp_path: Path) -> None:
    error = {"error": {"message": "slow down", "type": "rate_limit"}}
    replies = [as_json(error, status) for status in (400, 429, 500)]
    replies.append(as_events(piece("In "), {"error": {"message": "overloaded"}}))
    replies.append(as_events(piece("In ")))
    with serving(one_after_the_other(*replies)) as server, refold.record("nightly", ledger=tmp_path / FILE) as rec:
        for _ in replies:
            side.ask(rec, server.url + CHAT, asking("Where?"))
    codes = [code for _, code in endings(tmp_path, rec.run_id)]
    assert codes == ["provider_error"] * 4 + ["incomplete"]
    assert [row.error_message for row in step_rows(tmp_path, rec.run_id)[:4]] == ["slow down"] * 3 + ["overloaded"]


@pytest.mark.parametrize("package", ["httpx", "httpx2"])
def test_a_cancelled_request_is_aborted_and_its_cancellation_arrives(package: str, tmp_path: Path) -> None:
    stalled = as_json(chat("never"))._replace(chunks=[], then="stall")

    async def agent() -> None:
        async with refold.record("nightly", ledger=tmp_path / FILE) as rec:
            run_ids.append(rec.run_id)
            async with Side(package, True).client(rec) as client:
                asking_ = asyncio.create_task(client.post(server.url + CHAT, json=asking("Where?")))
                while not server.asked:
                    await asyncio.sleep(0.001)
                asking_.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await asking_

    run_ids: list[str] = []
    with serving(one_after_the_other(stalled)) as server:
        asyncio.run(agent())
    assert endings(tmp_path, run_ids[0]) == [("failed", "aborted")]


@sides
def test_a_stream_that_nobody_closed_ends_with_the_block(side: Side, tmp_path: Path) -> None:
    reply = as_events(piece("In "), piece("Leipzig."), then="stall")
    late: list[Any] = []
    with serving(one_after_the_other(reply)) as server:

        async def leaves_it() -> None:
            async with refold.record("nightly", ledger=tmp_path / FILE) as rec:
                client = side.client(rec)
                run_ids.append(rec.run_id)
                answer = await client.send(
                    client.build_request("POST", server.url + CHAT, json=asking("?")), stream=True
                )
                chunks = answer.aiter_raw()
                late.extend((await anext(chunks), chunks, answer))
            with pytest.raises(RecordingOver):
                await anext(late[1])
            await late[2].aclose()
            with pytest.raises(RecordingOver):
                await client.get(server.url)
            await client.aclose()

        run_ids: list[str] = []
        if side.asynchronous:
            asyncio.run(leaves_it())
        else:
            with refold.record("nightly", ledger=tmp_path / FILE) as rec:
                client = side.client(rec)
                run_ids.append(rec.run_id)
                answer = client.send(client.build_request("POST", server.url + CHAT, json=asking("?")), stream=True)
                chunks = answer.iter_raw()
                late.append(next(chunks))
            with pytest.raises(RecordingOver):
                next(chunks)
            answer.close()
            with pytest.raises(RecordingOver):
                client.get(server.url)
            client.close()
    assert endings(tmp_path, run_ids[0]) == [("failed", "aborted")]
    (left,) = contents(tmp_path, run_ids[0], "inference.failed")
    assert left["response"]["body"].encode() == late[0]
    late.clear()
    gc.collect()


def test_the_block_s_error_is_the_run_s(tmp_path: Path) -> None:
    def agent(url: str) -> None:
        with refold.record("nightly", ledger=tmp_path / FILE) as rec:
            run_ids.append(rec.run_id)
            SIDES[0].ask(rec, url + CHAT, asking("?"))
            raise ZeroDivisionError("no tickets")

    run_ids: list[str] = []
    with serving(one_after_the_other(as_json(chat("yes")))) as server, pytest.raises(ZeroDivisionError):
        agent(server.url)
    row = run_row(tmp_path, run_ids[0])
    assert (row.status, row.error_code, row.error_message) == ("failed", "exception", "ZeroDivisionError: no tickets")


def test_a_block_that_was_cancelled_while_it_began_leaves_no_open_run(tmp_path: Path) -> None:
    async def opened() -> refold.Ledger:
        loop.call_soon_threadsafe(entering[0].cancel)
        return await refold.open_ledger(tmp_path / FILE)

    async def enter() -> None:
        async with refold.record("nightly", key="monday", ledger=opened):
            pytest.fail("it was cancelled before this")

    async def agent() -> None:
        nonlocal loop
        loop = asyncio.get_running_loop()
        entering.append(asyncio.create_task(enter()))
        with pytest.raises(asyncio.CancelledError):
            await entering[0]

    entering: list[asyncio.Task[None]] = []
    loop: Any = None
    asyncio.run(agent())
    with (
        pytest.raises(refold.RecordingExists) as caught,
        refold.record("nightly", key="monday", ledger=tmp_path / FILE),
    ):
        pass
    row = run_row(tmp_path, caught.value.facts["run_id"])
    assert (row.status, row.error_code) == ("failed", "interrupted")


def test_a_block_that_stayed_silent_is_an_error_and_a_failed_run(tmp_path: Path) -> None:
    with pytest.raises(refold.NothingRecorded) as caught, refold.record("nightly", ledger=tmp_path / FILE):
        pass
    assert run_row(tmp_path, caught.value.facts["run_id"]).error_code == "nothing_recorded"
    with pytest.raises(ZeroDivisionError), refold.record("nightly", ledger=tmp_path / FILE):
        raise ZeroDivisionError


@sides
def test_each_hop_of_a_redirect_is_a_request_of_its_own(side: Side, tmp_path: Path) -> None:
    def script(asked: Asked) -> Reply:
        return as_json({}, 307, ("location", "/there")) if asked.path == "/here" else as_json(chat("moved"))

    with serving(script) as server, refold.record("nightly", ledger=tmp_path / FILE) as rec:
        side.ask(rec, server.url + "/here", asking("?"), follow_redirects=True)
    assert len(server.asked) == len(endings(tmp_path, rec.run_id)) == 2


def test_threads_share_a_recording(tmp_path: Path) -> None:
    with (
        serving(lambda asked: as_json(chat(asked.body.decode()))) as server,
        refold.record("nightly", ledger=tmp_path / FILE) as rec,
        rec.httpx_client() as client,
    ):

        def work(thread: int) -> None:
            for number in range(10):
                text = f"{thread}/{number}"
                answer = client.post(server.url + CHAT, json=asking(text)).json()
                assert text in answer["choices"][0]["message"]["content"]

        threads = [threading.Thread(target=work, args=(thread,)) for thread in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert endings(tmp_path, rec.run_id) == [("completed", None)] * 80


def test_a_blocking_client_works_inside_a_running_loop(tmp_path: Path) -> None:
    async def agent() -> str:
        async with await refold.open_ledger(tmp_path / FILE) as ledger:
            async with refold.record("nightly", ledger=ledger) as rec:
                with rec.httpx_client() as client:
                    client.post(server.url + CHAT, json=asking("?"))
            return rec.run_id

    with serving(one_after_the_other(as_json(chat("yes")))) as server:
        assert endings(tmp_path, asyncio.run(agent())) == [("completed", None)]


def test_a_request_is_durable_before_it_leaves(tmp_path: Path) -> None:
    def script(asked: Asked) -> Reply:
        seen.append([event.type for event in events(tmp_path, rec.run_id)])
        return as_json(chat("yes"))

    seen: list[list[str]] = []
    with (
        serving(script) as server,
        refold.record("nightly", ledger=tmp_path / FILE) as rec,
        rec.httpx_client() as client,
    ):
        client.post(server.url + CHAT, json=asking("?"))
        seen.append([event.type for event in events(tmp_path, rec.run_id)])
    assert seen[0][-1] == "inference.requested"
    assert seen[1][-2:] == ["inference.completed", "cost.recorded"]


def test_a_transport_of_one_s_own_is_recorded_in_its_place(tmp_path: Path) -> None:
    own = httpx.MockTransport(lambda request: httpx.Response(200, json=chat("from nowhere")))
    with refold.record("nightly", ledger=tmp_path / FILE) as rec:
        with httpx.Client(transport=rec.transport(own)) as client:
            said = client.post("http://model.internal/v1/chat/completions", json=asking("?")).json()
        with pytest.raises(TypeError, match="is not a transport"):
            rec.transport(object())
    assert said["choices"][0]["message"]["content"] == "from nowhere"
    assert endings(tmp_path, rec.run_id) == [("completed", None)]
