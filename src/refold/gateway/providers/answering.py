"""A provider's HTTP response, read within bounds of size and time."""

from __future__ import annotations

import asyncio
import json
import zlib
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import aclosing
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any

from refold.gateway.model_errors import AnswerIncomplete, InferenceFailed, ProviderError
from refold.gateway.providers.chat import Assembling, refused
from refold.gateway.providers.sse import EventStream

if TYPE_CHECKING:
    import httpx

MOST_BYTES = 32 * 1024 * 1024
"""Bytes of an answer, unpacked, after which it is refused: no model writes that much."""
_MOST_ERROR = 64 * 1024
_PIECE = 64 * 1024
_DRAIN = 0.1


class Answer:
    """A response that has begun. `deadline` is on the event loop's clock. Reading raises InferenceFailed, TimeoutError
    after the deadline, and httpx's own errors.
    """

    def __init__(self, response: httpx.Response, key: str | None, deadline: float) -> None:
        self._response = response
        self._key = key
        self._deadline = deadline
        self.status = response.status_code
        self.is_stream = "text/event-stream" in response.headers.get("content-type", "").lower()
        self._encoding = response.headers.get("content-encoding", "identity").strip().lower()

    async def check(self) -> None:
        """Raises ProviderError for an error status, and for a packing that nobody asked for."""
        if not 200 <= self.status < 300:
            body = self._without_key(await self._error_body())
            raise refused(self.status, _message_in(body), body, _retry_after(self._response.headers))
        if self._encoding not in ("identity", "gzip"):
            told = f"The provider packs its answer as {self._encoding[:40]!r}, which nobody asked for."
            raise ProviderError(told, status=self.status)

    async def json(self) -> Any:
        """The whole body. Raises ProviderError when it is no JSON."""
        data = b"".join([piece async for piece in self._bytes(MOST_BYTES)])
        try:
            return json.loads(data)
        except (ValueError, RecursionError) as error:
            body = self._without_key(data[:_MOST_ERROR].decode("utf-8", "replace"))
            told = f"The provider's answer is not JSON: {type(error).__name__}."
            raise ProviderError(told, status=self.status, body=body, retryable=True) from None

    async def events(self, assembling: Assembling) -> AsyncGenerator[Any, None]:
        """The data of each event up to `[DONE]` or the body's end, decoded."""
        stream = EventStream()
        async with aclosing(self._bytes(MOST_BYTES)) as pieces:
            async for piece in pieces:
                try:
                    for data in stream.feed(piece):
                        if data.startswith("[DONE]"):
                            await _drain(pieces)
                            return
                        yield json.loads(data)
                except (ValueError, RecursionError) as error:
                    told = f"The provider's stream cannot be read: {type(error).__name__}."
                    raise assembling.broken(ProviderError(told, status=self.status, retryable=True)) from None

    async def _bytes(self, most: int) -> AsyncGenerator[bytes, None]:
        """The body, unpacked. Raises ProviderError when it is longer than `most`."""
        unpacker = zlib.decompressobj(zlib.MAX_WBITS | 16) if self._encoding == "gzip" else None
        size = 0
        async with aclosing(self._chunks()) as chunks:
            async for chunk in chunks:
                for piece in (chunk,) if unpacker is None else _unpacked(unpacker, chunk, self.status):
                    size += len(piece)
                    if size > most:
                        raise ProviderError(f"The provider's answer is longer than {most} bytes.", status=self.status)
                    yield piece
        if unpacker is not None and not unpacker.eof:
            raise AnswerIncomplete("The provider's packed answer ends in the middle.", status=self.status)

    async def _chunks(self) -> AsyncGenerator[bytes, None]:
        raw = self._response.aiter_raw()
        while True:
            # Around the read alone: whoever reads slowly must not be interrupted in the middle of his own work.
            async with asyncio.timeout_at(self._deadline):
                chunk = await anext(raw, None)
            if chunk is None:
                return
            yield chunk

    async def _error_body(self) -> str:
        pieces: list[bytes] = []
        try:
            async for piece in self._bytes(_MOST_ERROR):
                pieces.append(piece)
        except InferenceFailed:
            pass  # What came of it is enough to show.
        return b"".join(pieces).decode("utf-8", "replace")

    def _without_key(self, text: str) -> str:
        # A server may say what it was sent.
        return text.replace(self._key, "[redacted:api_key]") if self._key else text


async def _drain(pieces: AsyncGenerator[bytes, None]) -> None:
    """Reads what follows `[DONE]` if it is there at once, so that the connection can be used again. The answer is whole
    already: no trouble here is its trouble.
    """
    try:
        async with asyncio.timeout(_DRAIN):
            async for _ in pieces:
                pass
    except Exception:  # noqa: BLE001 - httpx's errors, ours, the timeout: the connection is then closed
        return


def _unpacked(unpacker: Any, chunk: bytes, status: int) -> Iterator[bytes]:
    """A chunk in pieces of bounded size: a few bytes may be made to unfold into gigabytes."""
    packed = chunk
    while True:
        try:
            piece = unpacker.decompress(packed, _PIECE)
        except zlib.error:
            raise ProviderError("The provider's answer cannot be unpacked.", status=status, retryable=True) from None
        packed = unpacker.unconsumed_tail
        if piece:
            yield piece
        if not packed and len(piece) < _PIECE:
            return


def _message_in(body: str) -> str:
    try:
        told = json.loads(body)
    except (ValueError, RecursionError):
        return ""
    error = told.get("error", told) if isinstance(told, dict) else None
    message = error.get("message") if isinstance(error, dict) else error
    return message if isinstance(message, str) else ""


def _retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds that the provider wants to be left alone: said in milliseconds, in seconds, or as a date, which is
    compared with the server's own clock.
    """
    for name, unit in (("retry-after-ms", 1000), ("retry-after", 1)):
        try:
            seconds = float(headers[name]) / unit
        except (KeyError, ValueError):
            continue
        return seconds if 0 <= seconds < float("inf") else None
    try:
        pause = parsedate_to_datetime(headers["retry-after"]) - parsedate_to_datetime(headers["date"])
    except (KeyError, ValueError, TypeError):
        return None
    return max(0.0, pause.total_seconds())
