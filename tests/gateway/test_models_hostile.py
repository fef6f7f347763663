"""Servers that do what they should not: each ends as one typed failure in bounded time and memory, or as the answer."""

from __future__ import annotations

import asyncio
import gzip
import json
import logging
import socket
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from refold.gateway.model_errors import (
    AnswerIncomplete,
    BadRequest,
    InferenceFailed,
    InferenceTimeout,
    ProviderError,
    ProviderUnreachable,
)
from refold.gateway.models import Completion, ModelRequest
from refold.gateway.providers.openai_compatible import OpenAICompatible, openai_compatible
from tests.gateway.models_support import Desk, at_desk, reply
from tests.gateway.serving import Request, Respond, always, chunk, events, head, serving, sized

KEY = "sk-the-very-secret-key-of-this-test"
ASKED = ModelRequest(model="m", messages=[{"role": "user", "content": "hello"}])
SSE = "text/event-stream"


def ask(respond: Respond, *, stream: bool = False, timeout: float = 30, **options: Any) -> Completion:
    """The answer of a server; raises what the provider raises."""

    async def work() -> Completion:
        async with serving(respond) as url:
            provider = openai_compatible(url, "m", api_key=KEY, **options)
            try:
                return await answer_of(provider, stream=stream, timeout=timeout)
            finally:
                await provider.aclose()

    return asyncio.run(work())


async def answer_of(provider: OpenAICompatible, *, stream: bool = False, timeout: float = 30) -> Completion:
    if not stream:
        return await provider.complete(ASKED, timeout=timeout)
    *_, last = [item async for item in provider.stream(ASKED, timeout=timeout)]
    assert isinstance(last, Completion)
    return last


def body(value: Any) -> bytes:
    return json.dumps(value).encode()


GOOD = body(reply("fine", prompt_tokens=3, completion_tokens=1))
HALF = events(chunk("half of "), done=False)

NO_ANSWERS = [
    pytest.param(sized(200, b"<html>log in</html>", "text/html"), ProviderError, True, id="a page"),
    pytest.param(sized(200, b""), ProviderError, True, id="nothing"),
    pytest.param(sized(200, b"[1]"), ProviderError, False, id="a list"),
    pytest.param(sized(200, b"[" * 100_000), ProviderError, True, id="nested too deep"),
    pytest.param(sized(200, b"{}"), ProviderError, True, id="no choices"),
    pytest.param(
        sized(200, body({"choices": [{"message": "text"}]})), ProviderError, True, id="a message that is none"
    ),
    pytest.param(sized(200, body({"error": {"message": "busy", "code": 429}})), ProviderError, True, id="200, busy"),
    pytest.param(sized(200, body({"error": {"message": "no", "code": 400}})), ProviderError, False, id="200, refused"),
    pytest.param(sized(200, b"\xff\xfe\x00", "application/json"), ProviderError, True, id="no text"),
    pytest.param(sized(200, GOOD, Content_Encoding="br"), ProviderError, False, id="packed unasked"),
    pytest.param(sized(200, b"no gzip", Content_Encoding="gzip"), ProviderError, True, id="not packed"),
    pytest.param(
        sized(200, gzip.compress(GOOD)[:-9], Content_Encoding="gzip"), AnswerIncomplete, True, id="packed, cut"
    ),
    pytest.param(sized(301, b"", Location="http://127.0.0.1:1/"), ProviderError, False, id="elsewhere"),
    pytest.param(sized(400, body({"error": {"message": "bad"}})), ProviderError, False, id="400"),
    pytest.param(sized(401, body({"error": "who?"})), ProviderError, False, id="401"),
    pytest.param(sized(408, b""), ProviderError, True, id="408"),
    pytest.param(sized(409, b"[]"), ProviderError, True, id="409"),
    pytest.param(sized(429, b"slow down"), ProviderError, True, id="429"),
    pytest.param(sized(500, b"\xff"), ProviderError, True, id="500"),
    pytest.param(b"220 mail.example ESMTP\r\n", ProviderUnreachable, True, id="no HTTP"),
    pytest.param(head(200, Content_Length="1000") + GOOD[:20], ProviderUnreachable, True, id="body cut"),
    pytest.param(head(200, SSE) + HALF, AnswerIncomplete, True, id="stream without an end"),
    pytest.param(head(200, SSE) + events(done=True), AnswerIncomplete, True, id="stream of nothing"),
    pytest.param(head(200, SSE) + HALF + b"data: {\n\n", ProviderError, True, id="garbage in a stream"),
    pytest.param(head(200, SSE) + HALF + b"data: \xff\n\n", ProviderError, True, id="no text in a stream"),
    pytest.param(head(200, SSE) + HALF + b"data: 7\n\n", ProviderError, True, id="a number in a stream"),
    pytest.param(
        head(200, SSE) + HALF + events({"error": {"message": "overloaded"}}),
        ProviderError,
        True,
        id="error in a stream",
    ),
    pytest.param(
        head(200, SSE, Transfer_Encoding="chunked") + b"%x\r\n%b\r\n" % (len(HALF), HALF),
        ProviderUnreachable,
        True,
        id="stream reset",
    ),
]


@pytest.mark.parametrize(("response", "error", "retryable"), NO_ANSWERS)
def test_what_is_no_answer_is_a_typed_failure(response: bytes, error: type[InferenceFailed], retryable: bool) -> None:
    with pytest.raises(error) as failed:
        ask(always(response), stream=b"event-stream" in response)
    assert failed.value.retryable is retryable
    assert failed.value.sent


@pytest.mark.parametrize(
    ("response", "stream"),
    [
        pytest.param(sized(200, GOOD, "text/plain"), False, id="another content type"),
        pytest.param(sized(200, GOOD), True, id="whole instead of a stream"),
        pytest.param(sized(200, gzip.compress(GOOD), Content_Encoding="gzip"), False, id="packed"),
        pytest.param(
            head(200, SSE, Content_Encoding="gzip") + gzip.compress(events(chunk("fine"), chunk(None, "stop"))),
            True,
            id="packed stream",
        ),
        pytest.param(head(200, SSE) + events(chunk("fine"), chunk(None, "stop"), done=False), True, id="no [DONE]"),
        pytest.param(head(200, SSE) + events(chunk("fine", "stop")) + b"data: {\n\n", True, id="garbage after [DONE]"),
        pytest.param(
            head(200, SSE) + events({"choices": None}, chunk("fine", "stop"), {"choices": []}), True, id="gaps"
        ),
    ],
)
def test_what_is_odd_and_whole_is_an_answer(response: bytes, stream: bool) -> None:
    answer = ask(always(response), stream=stream)
    assert (answer.text, answer.finish) == ("fine", "stop")


@pytest.mark.parametrize("packed", [False, True])
def test_a_stream_that_comes_byte_by_byte_is_the_same(packed: bool) -> None:
    told = events(chunk("grü"), chunk("ße 😀\r\n"), chunk(None, "stop"))
    sent = gzip.compress(told) if packed else told
    beginning = head(200, SSE, Transfer_Encoding="chunked", **({"Content_Encoding": "gzip"} if packed else {}))
    pieces = [b"1\r\n%c\r\n" % byte for byte in sent]
    assert ask(always(beginning, *pieces, b"0\r\n\r\n"), stream=True).text == "grüße 😀\r\n"


def test_what_follows_the_end_mark_is_not_waited_for() -> None:
    async def respond(_request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(head(200, SSE) + events(chunk("fine", "stop")))
        await writer.drain()
        await asyncio.Event().wait()

    assert ask(respond, stream=True).text == "fine"


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("packed", [False, True])
def test_an_endless_answer_is_given_up_in_bounded_memory(stream: bool, packed: bool) -> None:
    piece = b": " + b" " * 1_000_000 + b"\n\n" if stream else b" " * 1_000_000
    how = {"Content_Encoding": "gzip"} if packed else {}
    # A hundred megabytes in a hundred kilobytes.
    bomb = gzip.compress(piece * 100) if packed else piece

    async def respond(_request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(head(200, SSE if stream else "application/json", **how) + bomb)
        while not packed and not writer.is_closing():
            writer.write(piece)
            await writer.drain()

    # What the client makes of it: 32 MB at most are ever kept, and joined once.
    with pytest.raises(ProviderError, match="longer than"), peak_below(90_000_000):
        ask(respond, stream=stream)


@contextmanager
def peak_below(most: int) -> Iterator[None]:
    tracemalloc.start()
    try:
        yield
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < most


def test_an_error_of_any_length_is_shown_by_its_beginning() -> None:
    with pytest.raises(ProviderError) as failed:
        ask(always(sized(500, b"x" * 10_000_000)))
    assert failed.value.body == "x" * 4096


@pytest.mark.parametrize(
    "begun", [b"", head(200), head(200, SSE) + HALF], ids=["silent", "after the head", "in a stream"]
)
def test_an_answer_that_does_not_come_is_a_timeout(begun: bytes) -> None:
    async def respond(_request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(begun)
        await asyncio.Event().wait()

    with pytest.raises(InferenceTimeout) as failed:
        ask(respond, stream=b"event" in begun, timeout=0.2)
    assert (failed.value.retryable, failed.value.sent) == (True, True)


def test_a_server_that_drips_is_a_timeout() -> None:
    async def respond(_request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(head(200, SSE))
        while not writer.is_closing():
            writer.write(b": still here\n\n")
            await writer.drain()
            await asyncio.sleep(0.01)

    with pytest.raises(InferenceTimeout):
        ask(respond, stream=True, timeout=0.3)


def test_a_provider_that_is_not_there_was_not_asked() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # Bound and not listening: nobody else gets the port.
        provider = openai_compatible(f"http://127.0.0.1:{taken.getsockname()[1]}/v1", "m")

        async def work() -> None:
            try:
                await answer_of(provider)
            finally:
                await provider.aclose()

        with pytest.raises(ProviderUnreachable) as failed:
            asyncio.run(work())
    assert (failed.value.retryable, failed.value.sent) == (True, False)


@pytest.mark.parametrize("url", ["", "nowhere", "ftp://127.0.0.1/v1", "http://\x00/v1"])
def test_a_base_url_that_is_none_is_said(url: str) -> None:
    with pytest.raises((BadRequest, ProviderUnreachable)) as failed:
        asyncio.run(answer_of(openai_compatible(url, "m")))
    assert failed.value.sent is False


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"Retry-After": "7"}, 7),
        ({"Retry-After": "0.5"}, 0.5),
        ({"retry-after-ms": "250", "Retry-After": "7"}, 0.25),
        ({"Retry-After": "Fri, 31 Dec 1999 23:59:59 GMT", "Date": "Fri, 31 Dec 1999 23:59:29 GMT"}, 30),
        ({"Retry-After": "Fri, 31 Dec 1999 23:59:59 GMT"}, None),
        ({"Retry-After": "-1"}, None),
        ({"Retry-After": "nan"}, None),
        ({"Retry-After": "inf"}, None),
        ({"Retry-After": "soon"}, None),
        ({}, None),
    ],
)
def test_a_wish_to_be_left_alone_is_read(headers: dict[str, str], seconds: float | None) -> None:
    with pytest.raises(ProviderError) as failed:
        ask(always(sized(429, b"", **headers)))
    assert failed.value.retry_after == seconds


def test_the_key_is_sent_and_nowhere_else(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    sent: list[str] = []

    async def respond(request: Request, writer: asyncio.StreamWriter) -> None:
        sent.append(request.headers["authorization"])
        told = {"error": {"message": f"{request.headers['authorization']} is not known here"}}
        writer.write(sized(401, body(told)))

    async def work(desk: Desk) -> str:
        async with serving(respond) as url:
            provider = openai_compatible(url, "m", api_key=KEY)
            desk.inference._providers = {"main": provider}
            with pytest.raises(ProviderError) as failed:
                await desk.answer(desk.ask())
            await provider.aclose()
            await desk.writer.barrier()
            error = failed.value
            return f"{provider!r} {vars(provider)} {error!r} {error.as_dict()} {error.body} {vars(error)}"

    with caplog.at_level(logging.DEBUG):
        shown = at_desk(tmp_path, openai_compatible("http://127.0.0.1:1", "m"), work)
    assert sent == [f"Bearer {KEY}"]
    assert KEY not in shown
    assert KEY not in caplog.text
    for file in tmp_path.rglob("*"):
        if file.is_file():
            assert KEY.encode() not in file.read_bytes()


def test_a_key_is_read_from_the_environment_when_it_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[str] = []

    async def respond(request: Request, writer: asyncio.StreamWriter) -> None:
        sent.append(request.headers["authorization"])
        writer.write(sized(200, GOOD))

    async def work() -> None:
        async with serving(respond) as url:
            provider = openai_compatible(url, "m", api_key_env="A_KEY_FOR_THIS_TEST")
            with pytest.raises(BadRequest, match="A_KEY_FOR_THIS_TEST"):
                await answer_of(provider)
            monkeypatch.setenv("A_KEY_FOR_THIS_TEST", "later")
            await answer_of(provider)
            await provider.aclose()

    asyncio.run(work())
    assert sent == ["Bearer later"]


def test_a_request_is_what_was_asked_and_nothing_more() -> None:
    got: list[Request] = []

    async def respond(request: Request, writer: asyncio.StreamWriter) -> None:
        got.append(request)
        writer.write(sized(200, GOOD))

    answer = ask(respond, temperature=0.5)
    assert (answer.text, answer.model, answer.response_id) == ("fine", "m-1", "r1")
    (request,) = got
    assert request.path == "/v1/chat/completions"
    assert json.loads(request.body) == {"model": "m", "messages": ASKED.messages}
    with pytest.raises(BadRequest, match="`n`"):
        asyncio.run(openai_compatible("http://127.0.0.1:1", "m").complete(_many(), timeout=1))


def _many() -> ModelRequest:
    return ModelRequest(model="m", messages=[], settings={"n": 2})
