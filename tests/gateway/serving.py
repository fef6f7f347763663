"""Real HTTP on loopback that does exactly what a test says, and recorded provider traffic to serve on it."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

SHARED = Path(os.environ.get("REFOLD_SHARED", Path(__file__).resolve().parents[3] / "shared"))
CHAT = "/chat/completions"


class Request(NamedTuple):
    path: str
    headers: dict[str, str]
    body: bytes


Respond = Callable[[Request, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def serving(respond: Respond) -> AsyncIterator[str]:
    """Serves until the end of the block, and gives the base URL. Whatever `respond` writes goes out as it is; then the
    connection is closed.
    """
    open_: set[asyncio.StreamWriter] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        open_.add(writer)
        try:
            first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
            pairs = (line.split(":", 1) for line in lines if line)
            headers = {name.lower(): value.strip() for name, value in pairs}
            body = await reader.readexactly(int(headers.get("content-length", 0)))
            await respond(Request(first.split()[1], headers, body), writer)
            await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # The other side went away, which is what many of these tests are about.
        finally:
            writer.close()
            open_.discard(writer)

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
    finally:
        server.close()
        for writer in open_:
            writer.transport.abort()
        await server.wait_closed()


def head(status: int = 200, content_type: str = "application/json", **headers: str) -> bytes:
    """The beginning of a response without a length: its end is the connection's."""
    lines = [f"HTTP/1.1 {status} Whatever", f"Content-Type: {content_type}", "Connection: close"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode()


def always(*pieces: bytes) -> Respond:
    """Answers every request with these bytes, piece by piece."""

    async def respond(_request: Request, writer: asyncio.StreamWriter) -> None:
        for piece in pieces:
            writer.write(piece)
            await writer.drain()

    return respond


def sized(status: int, body: bytes, content_type: str = "application/json", **headers: str) -> bytes:
    """A whole response with its length."""
    return head(status, content_type, Content_Length=str(len(body)), **headers) + body


def events(*data: Any, done: bool = True) -> bytes:
    """A stream of server-sent events."""
    told = [each if isinstance(each, str) else json.dumps(each) for each in data] + ["[DONE]"] * done
    return "".join(f"data: {each}\n\n" for each in told).encode()


def chunk(content: str | None = None, finish: str | None = None, **more: Any) -> dict[str, Any]:
    """A chunk of a chat stream."""
    delta = {} if content is None else {"content": content}
    return {"id": "r1", "model": "m-1", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}], **more}


class Recorded(NamedTuple):
    """One answer of a provider, as it was recorded."""

    name: str
    asked: dict[str, Any]
    status: int
    content_type: str
    encoding: str | None
    body: bytes

    @property
    def is_stream(self) -> bool:
        return "event-stream" in self.content_type

    def response(self) -> bytes:
        packed = {"Content_Encoding": self.encoding} if self.encoding else {}
        return sized(self.status, self.body, self.content_type, **packed)


def cassettes() -> list[Any]:
    """Every recorded answer of OpenAI's chat API, as parameters; one that is skipped, loudly, without the data."""
    folder = SHARED / "data" / "vcr"
    if not folder.is_dir():
        return [pytest.param(None, marks=pytest.mark.skip(reason=f"no recorded traffic in {folder}"))]
    found = [each for file in sorted(folder.rglob("*.yaml")) for each in _chats(file)]
    assert len(found) > 40
    return [pytest.param(each, id=each.name) for each in found]


def _chats(file: Path) -> list[Recorded]:
    import yaml

    found = []
    for place, each in enumerate(yaml.load(file.read_text(), Loader=yaml.CSafeLoader)["interactions"]):
        request, response = each["request"], each["response"]
        if not request["uri"].endswith(CHAT):
            continue
        asked = request.get("parsed_body") or json.loads(request["body"])
        body = response["parsed_body"] if "parsed_body" in response else response["body"]["string"]
        if not isinstance(body, bytes):
            body = (body if isinstance(body, str) else json.dumps(body)).encode()
        headers = {name.lower(): value[0] for name, value in response["headers"].items()}
        code = response["status"]["code"]
        encoding = headers.get("content-encoding") if body.startswith(b"\x1f\x8b") else None
        found.append(Recorded(f"{file.stem}-{place}", asked, code, headers["content-type"], encoding, body))
    return found
