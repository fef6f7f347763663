"""HTTP/1.1 on loopback, as much of it as the demo's services need, and as rude as a test wants it."""

from __future__ import annotations

import asyncio
import json
import socket
import struct
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Literal, Protocol
from urllib.parse import parse_qsl, urlsplit

__all__ = ["Answer", "Request", "Service", "listen"]

LOOPBACK = "127.0.0.1"
_LARGEST_BODY = 64 << 20
_RESET = struct.pack("ii", 1, 0)


@dataclass(frozen=True, slots=True)
class Request:
    """One request; names of headers are in lower case."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        """The body's value, or None when it is not JSON."""
        try:
            return json.loads(self.body)
        except ValueError:
            return None


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer. With several parts it goes out in chunks, one for each; `ends` says how the connection fares."""

    status: int
    parts: tuple[bytes, ...]
    content_type: str = "application/json"
    chunked: bool = False
    ends: Literal["answer", "half", "close", "reset"] = "answer"

    @classmethod
    def of(cls, status: int, value: Any) -> Answer:
        return cls(status, (json.dumps(value).encode(),))


class Service(Protocol):
    """What answers requests."""

    async def answer(self, request: Request) -> Answer: ...


class _Unreadable(Exception):
    pass


def _always() -> bool:
    return True


async def listen(service: Service, port: int, *, takes: Callable[[], bool] = _always) -> asyncio.Server:
    """Serve on loopback. Port 0 takes a free one; the server's sockets say which.

    `takes` is asked for each new connection; one that is not taken is reset unread.
    """

    async def converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            if takes():
                await _converse(service, reader, writer)
            else:
                _reset(writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            # The client is gone. What was done for it is in the log.
            pass
        finally:
            writer.close()

    return await asyncio.start_server(converse, LOOPBACK, port)


async def _converse(service: Service, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while True:
        try:
            request = await _read(reader)
        except _Unreadable as problem:
            await _send(writer, Answer.of(400, {"error": {"type": "bad_request", "message": str(problem)}}))
            return
        if request is None:
            return
        answer = await service.answer(request)
        match answer.ends:
            case "answer":
                await _send(writer, answer)
            case "half":
                await _send_half(writer, answer)
                return
            case "close":
                return
            case "reset":
                _reset(writer)
                return


async def _read(reader: asyncio.StreamReader) -> Request | None:
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return None
    except asyncio.LimitOverrunError as problem:
        raise _Unreadable("The head is too long.") from problem
    first, *lines = head.decode("latin-1").split("\r\n")[:-2]
    words = first.split(" ")
    if len(words) != 3:
        raise _Unreadable("The first line is no request.")
    headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    target = urlsplit(words[1])
    body = await reader.readexactly(_length(headers))
    return Request(words[0], target.path, dict(parse_qsl(target.query)), headers, body)


def _length(headers: dict[str, str]) -> int:
    said = headers.get("content-length", "0")
    if "transfer-encoding" in headers or not (said.isascii() and said.isdigit()) or int(said) > _LARGEST_BODY:
        raise _Unreadable(f"A body needs a Content-Length of at most {_LARGEST_BODY}.")
    return int(said)


def _head(answer: Answer) -> bytes:
    framing = "Transfer-Encoding: chunked" if answer.chunked else f"Content-Length: {sum(map(len, answer.parts))}"
    reason = HTTPStatus(answer.status).phrase
    return f"HTTP/1.1 {answer.status} {reason}\r\nContent-Type: {answer.content_type}\r\n{framing}\r\n\r\n".encode()


def _framed(answer: Answer, part: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(part), part) if answer.chunked else part


async def _send(writer: asyncio.StreamWriter, answer: Answer) -> None:
    writer.write(_head(answer))
    for part in answer.parts:
        writer.write(_framed(answer, part))
        await writer.drain()
    if answer.chunked:
        writer.write(b"0\r\n\r\n")
    await writer.drain()


async def _send_half(writer: asyncio.StreamWriter, answer: Answer) -> None:
    """Half of the chunks, or half of the body: in both cases less than was promised."""
    writer.write(_head(answer))
    if answer.chunked:
        for part in answer.parts[: len(answer.parts) // 2]:
            writer.write(_framed(answer, part))
    else:
        body = b"".join(answer.parts)
        writer.write(body[: len(body) // 2])
    await writer.drain()


def _reset(writer: asyncio.StreamWriter) -> None:
    # Lingering for no time at all makes the kernel send RST instead of FIN.
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    writer.transport.abort()
