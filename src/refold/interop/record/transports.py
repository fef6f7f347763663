"""Transports and clients of httpx and of httpx2, made of one implementation: what they pass on goes through a `Line`.

The packages are alike and unrelated, so the classes that their clients insist on are made at run time, of the mixins
here and of the package's own bases.
"""

from __future__ import annotations

import sys
import types
from collections.abc import AsyncIterator, Iterator
from functools import cache
from importlib import import_module
from typing import Any, NamedTuple, Protocol

from refold.interop.record.errors import ClientMissing

PACKAGES = ("httpx", "httpx2")


class Line(Protocol):
    """Takes requests of a client in the place of its transport `inner`, of which it makes what use it wants.

    `package` is the module of the client. The answers have a `Stream` of the same package.
    """

    def send(self, package: Package, inner: Any, request: Any) -> Any: ...

    async def asend(self, package: Package, inner: Any, request: Any) -> Any: ...


class Chunks(Protocol):
    """The body of an answer."""

    def read(self) -> Iterator[bytes]: ...

    def aread(self) -> AsyncIterator[bytes]: ...

    def close(self) -> None: ...

    async def aclose(self) -> None: ...


class Package(NamedTuple):
    """httpx or httpx2, and the classes made for it."""

    module: Any
    transport: Any
    stream: Any
    client: Any
    async_client: Any

    def response(self, status: int, headers: list[tuple[Any, Any]], chunks: Chunks, extensions: dict[str, Any]) -> Any:
        """An answer of this package."""
        return self.module.Response(status, headers=headers, stream=self.stream(chunks), extensions=extensions)

    def decoded(self, body: bytes, encoding: str) -> bytes:
        """A body without its content encoding; as it is where that cannot be undone, or it was cut."""
        try:
            content: bytes = self.module.Response(200, headers={"content-encoding": encoding}, content=body).content
        except self.module.DecodingError:
            return body
        return content


class _Transport:
    def __init__(self, package: Package, line: Line, inner: Any) -> None:
        self._package, self._line, self._inner = package, line, inner

    def handle_request(self, request: Any) -> Any:
        return self._line.send(self._package, self._inner, request)

    async def handle_async_request(self, request: Any) -> Any:
        return await self._line.asend(self._package, self._inner, request)

    def close(self) -> None:
        self._inner.close()

    async def aclose(self) -> None:
        await self._inner.aclose()


class _Stream:
    def __init__(self, chunks: Chunks) -> None:
        self._chunks = chunks

    def __iter__(self) -> Iterator[bytes]:
        return self._chunks.read()

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self._chunks.aread()

    def close(self) -> None:
        self._chunks.close()

    async def aclose(self) -> None:
        await self._chunks.aclose()


class _Client:
    _package: Package
    _line: Line

    def _transport_for_url(self, url: Any) -> Any:
        # Where a client chooses between its own transport, proxies of the environment and mounts: all are covered.
        inner = super()._transport_for_url(url)  # type: ignore[misc]
        return self._package.transport(self._package, self._line, inner)


@cache
def package(name: str) -> Package:
    """The package of this name. Raises ClientMissing."""
    try:
        module: Any = import_module(name)
    except ImportError as error:
        raise ClientMissing(f"There is no {name} in this Python, so it has no client to record with.") from error
    return Package(
        module,
        _made("Transport", _Transport, module.BaseTransport, module.AsyncBaseTransport),
        _made("Stream", _Stream, module.SyncByteStream, module.AsyncByteStream),
        _made("Client", _Client, module.Client),
        _made("AsyncClient", _Client, module.AsyncClient),
    )


def _made(name: str, *bases: type) -> type:
    return types.new_class(name, bases, exec_body=lambda body: body.update(__module__=__name__))


def client(name: str, line: Line, kind: str, settings: dict[str, Any]) -> Any:
    """A client of a package whose requests take this line; `settings` are those of the package's own client."""
    found = package(name)
    made = (found.client if kind == "sync" else found.async_client)(**settings)
    made._package, made._line = found, line
    return made


def transport(line: Line, inner: Any) -> Any:
    """A transport of the same package as `inner`, in its place. Raises TypeError for what is none of a known one."""
    for name in PACKAGES:
        if name in sys.modules:
            found = package(name)
            if isinstance(inner, (found.module.BaseTransport, found.module.AsyncBaseTransport)):
                return found.transport(found, line, inner)
    raise TypeError(f"{type(inner).__qualname__} is not a transport of {' or '.join(PACKAGES)}")
