"""What a `with` block hands out: clients of both packages, sync and async, and transports."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from refold.interop.record import transports

if TYPE_CHECKING:
    import httpx
    import httpx2


class Clients:
    """Clients of httpx and httpx2 whose requests take one line. Their parameters are those of the package's own; they
    are the caller's to close.
    """

    def __init__(self, line: transports.Line) -> None:
        self._line = line

    def httpx_client(self, **settings: Any) -> httpx.Client:
        """A `httpx.Client`."""
        made: httpx.Client = transports.client("httpx", self._line, "sync", settings)
        return made

    def httpx_async_client(self, **settings: Any) -> httpx.AsyncClient:
        """A `httpx.AsyncClient`."""
        made: httpx.AsyncClient = transports.client("httpx", self._line, "async", settings)
        return made

    def httpx2_client(self, **settings: Any) -> httpx2.Client:
        """A `httpx2.Client`."""
        made: httpx2.Client = transports.client("httpx2", self._line, "sync", settings)
        return made

    def httpx2_async_client(self, **settings: Any) -> httpx2.AsyncClient:
        """A `httpx2.AsyncClient`."""
        made: httpx2.AsyncClient = transports.client("httpx2", self._line, "async", settings)
        return made

    def transport(self, inner: Any) -> Any:
        """A transport for a client that you make yourself, in the place of `inner`: of httpx or httpx2, sync or async,
        as `inner` is.
        """
        return transports.transport(self._line, inner)
