"""Real HTTP servers on loopback: what they answer is scripted, and what they were asked is kept."""

from __future__ import annotations

import json
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal, NamedTuple


class Asked(NamedTuple):
    method: str
    path: str
    headers: dict[str, str]
    body: bytes


class Reply(NamedTuple):
    """An answer in chunks. `then`: how it ends - as it should, reset by the server, or not at all. `status` 0: it does
    not even begin.
    """

    chunks: list[bytes]
    status: int = 200
    headers: tuple[tuple[str, str], ...] = (("content-type", "application/json"),)
    then: Literal["end", "reset", "stall"] = "end"


Script = Callable[[Asked], Reply | None]
"""None: the connection is closed without a word."""


class Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, script: Script) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.script = script
        self.asked: list[Asked] = []
        self.lock = threading.Lock()
        self.over = threading.Event()
        self.sent = threading.Semaphore(0)
        """Counts chunks that were written."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients that go away are what is tested."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    def do_POST(self) -> None:
        body = self._body()
        asked = Asked(self.command, self.path, {name.lower(): value for name, value in self.headers.items()}, body)
        with self.server.lock:
            self.server.asked.append(asked)
            reply = self.server.script(asked)
        if reply is None:
            self._reset()
            return
        if reply.status == 0:
            self.server.over.wait(60)
            self._reset()
            return
        self.send_response(reply.status)
        for name, value in reply.headers:
            self.send_header(name, value)
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        for chunk in reply.chunks:
            self.wfile.write(b"%x\r\n%b\r\n" % (len(chunk), chunk))
            self.server.sent.release()
        if reply.then == "reset":
            self._reset()
        elif reply.then == "stall":
            self.server.over.wait(60)
            self._reset()
        else:
            self.wfile.write(b"0\r\n\r\n")

    do_GET = do_PUT = do_POST

    def _body(self) -> bytes:
        if self.headers.get("transfer-encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("content-length") or 0))
        pieces = []
        while size := int(self.rfile.readline(), 16):
            pieces.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(pieces)

    def _reset(self) -> None:
        self.close_connection = True
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.connection.close()

    def log_message(self, format: str, *args: Any) -> None:
        """Tests print for themselves."""


@contextmanager
def serving(script: Script) -> Iterator[Server]:
    server = Server(script)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.over.set()
        server.shutdown()
        thread.join()
        server.server_close()


def one_after_the_other(*replies: Reply | None) -> Script:
    left = list(replies)
    return lambda asked: left.pop(0)


def as_json(value: Any, status: int = 200, *headers: tuple[str, str]) -> Reply:
    return Reply([json.dumps(value).encode()], status, (("content-type", "application/json"), *headers))


def as_events(*events: Any, then: Literal["end", "reset", "stall"] = "end") -> Reply:
    """A stream of server-sent events, one a chunk; a text stands for itself."""
    chunks = [f"data: {each if isinstance(each, str) else json.dumps(each)}\n\n".encode() for each in events]
    return Reply(chunks, 200, (("content-type", "text/event-stream"),), then)


def chat(text: str, usage: dict[str, Any] | None = None) -> dict[str, Any]:
    """A chat completion."""
    message = {"role": "assistant", "content": text}
    usage = usage or {"prompt_tokens": 12, "completion_tokens": 3, "total_tokens": 15}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    head = {"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "northwind-large-2"}
    return {**head, "choices": [choice], "usage": usage}


def piece(text: str | None = None, finish: str | None = None, **more: Any) -> dict[str, Any]:
    """A chunk of a streamed chat completion."""
    delta = {} if text is None else {"content": text}
    head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "northwind-large-2"}
    return {**head, "choices": [{"index": 0, "delta": {**delta, **more}, "finish_reason": finish}]}


def asking(*texts: str) -> dict[str, Any]:
    """A chat request: user and assistant in turns."""
    roles = ("user", "assistant")
    messages = [{"role": roles[place % 2], "content": text} for place, text in enumerate(texts)]
    return {"model": "northwind-large-2", "messages": messages}
