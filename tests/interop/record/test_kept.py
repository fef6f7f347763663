"""What of a request and an answer is kept: all of it but credentials, byte for byte, and no more than is new."""

from __future__ import annotations

import asyncio
import gzip
import json
from base64 import b64encode
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import refold
from refold.events import values
from refold.events.redaction import Redactor
from refold.gateway.usage import usage_of
from refold.interop.record.answers import operation_of, read_answer
from refold.interop.record.bodies import kept_bytes, read_body
from refold.interop.record.streams import read_stream
from refold.interop.record.traffic import Curtain
from tests.interop.record.servers import Reply, as_json, asking, chat, one_after_the_other, serving
from tests.interop.record.sides import NAMES, SIDES, Side
from tests.interop.record.support import FILE, contents, cost_rows, endings, offline, step_rows, within

sides = pytest.mark.parametrize("side", SIDES, ids=NAMES)
SECRETS = {
    "authorization": "Bearer northwind-credential-1",
    "proxy-authorization": "Basic northwind-credential-2",
    "x-api-key": "northwind-credential-3",
    "api-key": "northwind-credential-4",
    "x-goog-api-key": "northwind-credential-5",
    "ocp-apim-subscription-key": "northwind-credential-6",
    "cookie": "session=northwind-credential-7",
    "x-northwind": "registered-credential-8",
}


@sides
def test_credentials_are_nowhere_in_the_ledger(side: Side, tmp_path: Path) -> None:
    async def opened() -> refold.Ledger:
        return await refold.open_ledger(tmp_path / FILE, secrets=["registered-credential-8"])

    reply = as_json(chat("yes"), 200, ("set-cookie", "session=northwind-credential-9"), ("x-request-id", "req_1"))
    with serving(one_after_the_other(reply)) as server, refold.record("nightly", ledger=opened) as rec:
        url = server.url.replace("//", "//ada:northwind-credential-10@") + "/v1/chat/completions"
        query = "?api_version=1&api-key=northwind-credential-11&key=northwind-credential-12"
        side.ask(rec, url + query, asking("?"), headers={**SECRETS, "x-kept": "kept"})
        stored = [path.read_bytes() for path in tmp_path.iterdir()]  # With what is still in the log.
    stored += [path.read_bytes() for path in tmp_path.iterdir()]
    assert server.asked[0].headers["x-api-key"] == SECRETS["x-api-key"]
    assert b64encode(b"ada:northwind-credential-10") in server.asked[0].headers["authorization"].encode()
    told = msgspec.json.encode(contents(tmp_path, rec.run_id, "inference.requested", "inference.completed"))
    for place in (*stored, told):
        assert b"credential" not in place
        assert b64encode(b"ada:northwind-credential-10") not in place
    (asked,) = contents(tmp_path, rec.run_id, "inference.requested")
    assert asked["request"]["url"].endswith("/completions?api_version=1&api-key=[removed]&key=[removed]")
    assert set(SECRETS) <= set(asked["request"]["removed"])
    assert ["x-kept", "kept"] in [list(each) for each in asked["request"]["headers"]]
    (answered,) = contents(tmp_path, rec.run_id, "inference.completed")
    assert answered["response"]["removed"] == ["set-cookie"]
    assert ["x-request-id", "req_1"] in [list(each) for each in answered["response"]["headers"]]


def test_a_client_s_complaint_about_a_header_does_not_bring_it_into_the_ledger(tmp_path: Path) -> None:
    def agent(url: str) -> None:
        with refold.record("nightly", ledger=tmp_path / FILE) as rec:
            run_ids.append(rec.run_id)
            SIDES[0].ask(rec, url, asking("?"), headers={"authorization": "Bearer northwind-credential-1\n"})

    run_ids: list[str] = []
    with serving(one_after_the_other()) as server, pytest.raises(httpx.LocalProtocolError, match="credential"):
        agent(server.url)
    told = contents(tmp_path, run_ids[0], "inference.failed", "run.failed")
    assert len(told) == 2
    assert b"credential" not in msgspec.json.encode(told)


def test_names_of_headers_that_only_sound_secret_are_kept() -> None:
    kept = [(b"Idempotency-Key", b"k-1"), (b"X-RateLimit-Remaining-Tokens", b"7"), (b"Content-Type", b"text/plain")]
    sent = Curtain(Redactor()).sent("GET", "http://a/?max_tokens=5&page_token=2#top", kept, b"")
    assert [value for _, value in sent.headers] == ["k-1", "7", "text/plain"]
    assert sent.url.startswith("http://a/?max_tokens=5")


CACHED = {"cached_tokens": 80}

_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
_request = st.fixed_dictionaries(
    {"model": st.text()},
    optional=dict.fromkeys(("messages", "input", "tools", "system", "instructions", "n"), _json),
)


@given(value=_json | _request, style=st.sampled_from([(",", ":"), (", ", ": "), (",", ": ")]), ascii_only=st.booleans())
def test_a_json_body_that_is_read_is_written_the_same(value: Any, style: tuple[str, str], ascii_only: bool) -> None:
    text = json.dumps(value, separators=style, ensure_ascii=ascii_only)
    data = text.encode("utf-8", "surrogatepass")
    body = read_body(data)
    if body is not None:
        assert kept_bytes({"body": body.value, "style": body.style}, {}) == data
        assert values.decode(values.encode(body.value)) is not None or body.value is None


def always(answer: Any) -> httpx.MockTransport:
    return httpx.MockTransport(lambda request: httpx.Response(200, json=answer))


@settings(max_examples=15, deadline=None)
@given(bodies=st.lists(st.binary(max_size=40) | _request.map(lambda value: json.dumps(value).encode()), max_size=4))
def test_every_body_comes_back_byte_for_byte(bodies: list[bytes], tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("bodies")
    odd = [b'{"a":1,"a":2}', b'{ "model": "m" }', b"[" * 500 + b"]" * 500, b'"text"', b"1" * 5000, b"\xff\xfe1\x00"]
    long = json.dumps({"system": "s" * 500, "input": "i" * 500, "tools": [{"a": 1.0}, {"a": 1}]}).encode()
    bodies = [*bodies, *odd, long, b""]
    with (
        refold.record("nightly", ledger=folder / FILE) as rec,
        httpx.Client(transport=rec.transport(always({}))) as client,
    ):
        for body in bodies:
            client.post("http://a/", content=body)

    requests = contents(folder, rec.run_id, "inference.requested")
    kept = [kept_bytes(each["request"], {name: list(parts) for name, parts in each.items()}) for each in requests]
    assert kept == bodies
    with (
        offline(),
        refold.replay_recording(rec.run_id, ledger=folder / FILE) as again,
        httpx.Client(transport=again.transport(always("never asked"))) as client,
    ):
        assert [client.post("http://a/", content=body).json() for body in bodies] == [{}] * len(bodies)
    assert again.report.equal


def test_a_conversation_that_is_sent_again_each_turn_costs_what_is_new(tmp_path: Path) -> None:
    def size(turns: int) -> int:
        folder = tmp_path / str(turns)
        folder.mkdir()
        texts = [f"{place}: " + f"{place * 7919:x} " * 150 for place in range(2 * turns)]
        tools = [{"name": "refund", "description": "d" * 4000}]
        with (
            refold.record("nightly", ledger=folder / FILE) as rec,
            httpx.Client(
                transport=rec.transport(httpx.MockTransport(lambda _: httpx.Response(200, json={})))
            ) as client,
        ):
            for turn in range(turns):
                client.post("http://a/v1/messages", json={**asking(*texts[: 2 * turn + 1]), "tools": tools})

        async def stored(scope: refold.ScopedLedger, reader: Any) -> int:
            stream = refold.Stream.run(rec.run_id)
            rows = await reader.raw_events(stream, limit=10_000)
            blobs = await reader.blobs(stream, limit=10_000)
            return sum(len(row.content or b"") for row in rows) + sum(len(blob.stored or b"") for blob in blobs)

        return within(folder, stored)

    assert size(80) < 2.2 * size(40)


@sides
def test_a_compressed_answer_is_kept_as_it_came_and_read_for_the_tables(side: Side, tmp_path: Path) -> None:
    packed = gzip.compress(json.dumps(chat("In Leipzig.")).encode(), mtime=0)
    headers = (("content-type", "application/json"), ("content-encoding", "gzip"))
    replies = [Reply([packed[:10], packed[10:]], 200, headers), Reply([packed[:60]], 200, headers)]
    with serving(one_after_the_other(*replies)) as server, refold.record("nightly", ledger=tmp_path / FILE) as rec:
        for _ in replies:
            side.ask(rec, server.url + "/v1/chat/completions", asking("?"))
    assert step_rows(tmp_path, rec.run_id)[0].output_summary == "In Leipzig."
    assert [each["response"]["body"] for each in contents(tmp_path, rec.run_id, "inference.completed")] == [
        packed,
        packed[:60],
    ]


@sides
def test_a_body_that_is_produced_piece_by_piece_is_kept_and_sent_whole(side: Side, tmp_path: Path) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        yield b"first,"
        yield b"second"

    async def ask(url: str) -> None:
        async with side.client(rec) as client:
            await client.post(url, content=pieces())

    with serving(one_after_the_other(as_json({}))) as server, refold.record("nightly", ledger=tmp_path / FILE) as rec:
        if side.asynchronous:
            asyncio.run(ask(server.url))
        else:
            with side.client(rec) as client:
                client.post(server.url, content=iter([b"first,", b"second"]))
    assert server.asked[0].body == b"first,second"
    assert contents(tmp_path, rec.run_id, "inference.requested")[0]["request"]["body"] == "first,second"


def test_uploads_are_found_again_whatever_boundary_their_client_chose(tmp_path: Path) -> None:
    with (
        serving(one_after_the_other(as_json({}))) as server,
        refold.record("nightly", ledger=tmp_path / FILE) as rec,
        rec.httpx_client() as client,
    ):
        client.post(server.url + "/v1/files", files={"file": ("a.txt", b"\x00\xff")})
    with (
        offline(),
        refold.replay_recording(rec.run_id, ledger=tmp_path / FILE) as again,
        again.httpx_client() as client,
    ):
        assert client.post(server.url + "/v1/files", files={"file": ("a.txt", b"\x00\xff")}).json() == {}
    assert again.report.equal


@pytest.mark.parametrize(
    ("raw", "wanted"),
    [
        (
            {"prompt_tokens": 100, "completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": 80}},
            (100, 5, 80, 0),
        ),
        ({"input_tokens": 100, "output_tokens": 5, "input_tokens_details": CACHED}, (100, 5, 80, 0)),
        ({"input_tokens": 20, "output_tokens": 5, "cache_read_input_tokens": 80}, (100, 5, 80, 0)),
        (
            {"input_tokens": 10, "output_tokens": 5, "cache_read_input_tokens": 80, "cache_creation_input_tokens": 10},
            (100, 5, 80, 10),
        ),
        ({"input_tokens": "many", "output_tokens": -5, "cache_read_input_tokens": 10**30}, (0, 0, 0, 0)),
    ],
)
def test_cached_tokens_are_counted_once_whoever_counts_them(raw: dict[str, Any], wanted: tuple[int, ...]) -> None:
    """Case 37: one provider's input count includes them and another's does not."""
    usage = usage_of(raw)
    assert (usage.prompt, usage.completion, usage.cached, usage.cache_write) == wanted


def test_the_provider_s_own_figures_are_kept(tmp_path: Path) -> None:
    usage = {"prompt_tokens": 9, "completion_tokens": 1, "prompt_tokens_details": {"cached_tokens": 4}, "cost": 0.1}
    with (
        serving(one_after_the_other(as_json(chat("yes", usage)))) as server,
        refold.record("nightly", ledger=tmp_path / FILE) as rec,
    ):
        SIDES[0].ask(rec, server.url + "/v1/chat/completions", asking("?"))
    (cost,) = cost_rows(tmp_path, rec.run_id)
    assert (cost.tokens_prompt, cost.tokens_cached, cost.tokens_total) == (9, 4, 10)
    assert contents(tmp_path, rec.run_id, "inference.completed")[0]["usage"] == usage


@given(body=st.binary() | _json.map(lambda value: json.dumps(value).encode()))
def test_reading_an_answer_never_fails(body: bytes) -> None:
    read_answer(body)
    read_stream(b"data: " + body + b"\n\n")


_LOOKS = (
    "choices",
    "usage",
    "output",
    "type",
    "object",
    "error",
    "data",
    "message",
    "delta",
    "index",
    "response",
    "content_block",
)
_hostile = st.dictionaries(
    st.sampled_from(_LOOKS),
    _json
    | st.sampled_from(["response", "message", "message_start", "content_block_start", "content_block_delta", "list"])
    | st.lists(st.dictionaries(st.sampled_from(["delta", "index", "tool_calls", "message", "text"]), _json)),
)


@given(st.lists(_hostile, max_size=5))
def test_nor_does_one_that_looks_like_a_model_s(events: list[dict[str, Any]]) -> None:
    for event in events:
        read_answer(json.dumps(event).encode())
    start = {"type": "message_start"}, {"choices": []}, {"type": "response.created"}
    for first in start:
        read_stream(b"".join(b"data: %b\n\n" % json.dumps(each).encode() for each in (first, *events)))


@pytest.mark.parametrize(
    ("path", "operation"),
    [
        ("/v1/chat/completions", "chat"),
        ("/v1/messages", "chat"),
        ("/openai/v1/responses", "chat"),
        ("/v1/completions", "completion"),
        ("/v1/embeddings", "embedding"),
        ("/v2/rerank", "rerank"),
        ("/v1/messages/count_tokens", "other"),
        ("/", "other"),
    ],
)
def test_what_is_asked_is_told_by_the_path(path: str, operation: str) -> None:
    assert operation_of(path) == operation


def test_requests_that_are_no_model_s_are_on_record_too(tmp_path: Path) -> None:
    with (
        serving(one_after_the_other(as_json({"data": []}))) as server,
        refold.record("n", ledger=tmp_path / FILE) as rec,
    ):
        SIDES[0].ask(rec, server.url + "/v1/models")
    assert endings(tmp_path, rec.run_id) == [("completed", None)]
    (step,) = step_rows(tmp_path, rec.run_id)
    assert (step.node, step.input_summary) == ("unknown", "GET /v1/models")


def test_a_recording_has_its_evidence(tmp_path: Path) -> None:
    with (
        serving(one_after_the_other(as_json(chat("yes")), as_json({}, 500))) as server,
        refold.record("nightly", ledger=tmp_path / FILE, user_id="u-17") as rec,
    ):
        for _ in range(2):
            SIDES[0].ask(rec, server.url + "/v1/chat/completions", asking("?"))

    async def items() -> dict[str, str]:
        async with await refold.open_ledger(tmp_path / FILE) as ledger:
            assert (await refold.verify_run(ledger.scope(), rec.run_id)).ok
            async with ledger.scope().reader() as reader:
                found = await refold.evidence_items(reader, rec.run_id, ledger.files)
        return {each["key"]: each["status"] for each in found}

    found = asyncio.run(items())
    assert (found["actor_scope"], found["trace_timeline"], found["secret_boundary"]) == ("pass", "pass", "pass")
    assert found["cost_attribution"] == "warning"  # Unpriced, and none missing.
