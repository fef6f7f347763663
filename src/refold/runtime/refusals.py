"""What asyncio offers and a run's loop does not have: sockets, processes, threads, signals of the system."""

from __future__ import annotations

import asyncio
from typing import Any, NoReturn

from refold.runtime.errors import NotDeterministic


def refuse(what: str) -> NoReturn:
    """Raises NotDeterministic."""
    raise NotDeterministic(
        f"Workflow code asked its event loop for {what}, which no replay can give again: make it a step or a tool."
    )


class Refusals(asyncio.AbstractEventLoop):
    """An event loop of refusals, to be filled with what is there."""

    def run_in_executor(self, *args: Any) -> NoReturn:  # type: ignore[override]
        refuse("a thread (run_in_executor, asyncio.to_thread)")

    def run_forever(self) -> NoReturn:
        refuse("a loop inside the loop")

    def run_until_complete(self, future: Any) -> NoReturn:
        refuse("a loop inside the loop")

    def add_reader(self, *args: Any, **options: Any) -> NoReturn:  # type: ignore[override]
        refuse("add reader")

    def remove_reader(self, *args: Any, **options: Any) -> NoReturn:
        refuse("remove reader")

    def add_writer(self, *args: Any, **options: Any) -> NoReturn:  # type: ignore[override]
        refuse("add writer")

    def remove_writer(self, *args: Any, **options: Any) -> NoReturn:
        refuse("remove writer")

    def add_signal_handler(self, *args: Any, **options: Any) -> NoReturn:  # type: ignore[override]
        refuse("add signal handler")

    def remove_signal_handler(self, *args: Any, **options: Any) -> NoReturn:
        refuse("remove signal handler")

    async def getaddrinfo(self, *args: Any, **options: Any) -> NoReturn:
        refuse("getaddrinfo")

    async def getnameinfo(self, *args: Any, **options: Any) -> NoReturn:
        refuse("getnameinfo")

    async def create_connection(self, *args: Any, **options: Any) -> NoReturn:
        refuse("create connection")

    async def create_server(self, *args: Any, **options: Any) -> NoReturn:
        refuse("create server")

    async def create_unix_connection(self, *args: Any, **options: Any) -> NoReturn:
        refuse("create unix connection")

    async def create_unix_server(self, *args: Any, **options: Any) -> NoReturn:
        refuse("create unix server")

    async def create_datagram_endpoint(self, *args: Any, **options: Any) -> NoReturn:
        refuse("create datagram endpoint")

    async def connect_accepted_socket(self, *args: Any, **options: Any) -> NoReturn:
        refuse("connect accepted socket")

    async def connect_read_pipe(self, *args: Any, **options: Any) -> NoReturn:
        refuse("connect read pipe")

    async def connect_write_pipe(self, *args: Any, **options: Any) -> NoReturn:
        refuse("connect write pipe")

    async def subprocess_shell(self, *args: Any, **options: Any) -> NoReturn:
        refuse("subprocess shell")

    async def subprocess_exec(self, *args: Any, **options: Any) -> NoReturn:
        refuse("subprocess exec")

    async def sendfile(self, *args: Any, **options: Any) -> NoReturn:
        refuse("sendfile")

    async def sock_sendfile(self, *args: Any, **options: Any) -> NoReturn:
        refuse("sock sendfile")

    async def sock_recv(self, *args: Any, **options: Any) -> NoReturn:
        refuse("sock recv")

    async def sock_recv_into(self, *args: Any, **options: Any) -> NoReturn:
        refuse("sock recv into")

    async def sock_recvfrom(self, *args: Any, **options: Any) -> NoReturn:
        refuse("sock recvfrom")

    async def sock_recvfrom_into(self, *args: Any, **options: Any) -> NoReturn:
        refuse("sock recvfrom into")

    async def sock_sendall(self, *args: Any, **options: Any) -> NoReturn:
        refuse("sock sendall")

    async def sock_sendto(self, *args: Any, **options: Any) -> NoReturn:
        refuse("sock sendto")

    async def sock_connect(self, *args: Any, **options: Any) -> NoReturn:
        refuse("sock connect")

    async def sock_accept(self, *args: Any, **options: Any) -> NoReturn:
        refuse("sock accept")

    async def start_tls(self, *args: Any, **options: Any) -> NoReturn:
        refuse("start tls")

    def set_default_executor(self, *args: Any, **options: Any) -> NoReturn:
        refuse("set default executor")

    def set_exception_handler(self, *args: Any, **options: Any) -> NoReturn:
        refuse("set exception handler")

    def stop(self) -> NoReturn:
        refuse("its end")
