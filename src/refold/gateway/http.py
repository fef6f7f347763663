"""Transports for httpx clients inside tools: they note when bytes leave, and hand the effect's key on.

    async with refold.gateway.http.async_client(base_url=...) as client:
        await client.post("/refunds", json={...})

A tool that makes several requests needs them: after the first one has left, "could not connect" is not "not sent".
"""

from __future__ import annotations

from typing import Any

import httpx

from refold import seam
from refold.gateway.calls import CurrentCall, call_under_way

HEADER = "Idempotency-Key"
_NOT_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)


class AsyncSending(httpx.AsyncBaseTransport):
    """Sends through another transport, as the tool call that is under way."""

    def __init__(self, inner: httpx.AsyncBaseTransport | None = None) -> None:
        self._inner = inner or httpx.AsyncHTTPTransport()

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        call = call_under_way()
        if call is None:
            return await self._inner.handle_async_request(request)
        before = _begin(call, request)
        async with call.sending():
            seam.reach("http.send")
            try:
                return await self._inner.handle_async_request(request)
            except _NOT_SENT:
                call.sent = before
                raise

    async def aclose(self) -> None:
        await self._inner.aclose()


class Sending(httpx.BaseTransport):
    """The same for plain functions."""

    def __init__(self, inner: httpx.BaseTransport | None = None) -> None:
        self._inner = inner or httpx.HTTPTransport()

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        call = call_under_way()
        if call is None:
            return self._inner.handle_request(request)
        before = _begin(call, request)
        with call.sending():
            seam.reach("http.send")
            try:
                return self._inner.handle_request(request)
            except _NOT_SENT:
                call.sent = before
                raise

    def close(self) -> None:
        self._inner.close()


def async_client(**options: Any) -> httpx.AsyncClient:
    """An httpx.AsyncClient for tools; takes what that takes."""
    return httpx.AsyncClient(transport=AsyncSending(options.pop("transport", None)), **options)


def client(**options: Any) -> httpx.Client:
    """An httpx.Client for tools that are plain functions; takes what that takes."""
    return httpx.Client(transport=Sending(options.pop("transport", None)), **options)


def _begin(call: CurrentCall, request: httpx.Request) -> bool:
    """Gives the request its key; returns whether something has left before it."""
    if HEADER not in request.headers:
        request.headers[HEADER] = call.key
    return call.sent
