"""A world outside to act on: a tool whose acts are counted, and an HTTP service on loopback that misbehaves."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from refold.gateway.calls import current_call
from refold.gateway.tools import Tool
from tests.gateway.support import AT_ONCE


class World:
    """Counts what was done, by downstream key. `gate`: acts wait for it before they are over."""

    def __init__(self) -> None:
        self.acts: list[str] = []
        self.began = asyncio.Event()
        self.gate = asyncio.Event()
        self.gate.set()
        self.failing: list[BaseException] = []

    async def act(self, order: str) -> dict[str, str]:
        self.acts.append(current_call().key)
        self.began.set()
        await self.gate.wait()
        if self.failing:
            raise self.failing.pop(0)
        return {"done": order}

    def tool(self, **contract: Any) -> Tool[Any, Any]:
        return Tool(self.act, **{"name": "act", "retry": AT_ONCE, **contract})


class Service:
    """What the paths do: `/status/N` answers so, `/reset` cuts the connection after reading, `/silent` never answers,
    `/late` answers when `let_go` is set.
    """

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.keys: list[str | None] = []
        self.let_go = asyncio.Event()
        self.open = 0

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.open += 1
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            path = head.split(" ", 2)[1]
            names = dict(line.lower().split(": ", 1) for line in head.split("\r\n")[1:] if ": " in line)
            self.keys.append(names.get("idempotency-key"))
            if path == "/silent":
                await reader.read()
            elif path == "/late":
                await self.let_go.wait()
                await _answer(writer, 200)
            elif path == "/reset":
                sock: socket.socket = writer.get_extra_info("socket")
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
                writer.transport.abort()
            else:
                await _answer(writer, int(path.rpartition("/")[2]))
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()
            self.open -= 1


async def _answer(writer: asyncio.StreamWriter, status: int) -> None:
    body = b'{"charged": true}'
    writer.write(b"HTTP/1.1 %d X\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%b" % (status, len(body), body))
    await writer.drain()


@asynccontextmanager
async def service() -> AsyncIterator[Service]:
    found: list[Service] = []
    server = await asyncio.start_server(lambda r, w: found[0].handle(r, w), "127.0.0.1", 0)
    found.append(Service(server.sockets[0].getsockname()[1]))
    async with server:
        yield found[0]
        while found[0].open:  # A thread that was left behind may still be talking to it.
            await asyncio.sleep(0.001)


def refused_port() -> int:
    """A port on loopback at which nobody listens."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])
