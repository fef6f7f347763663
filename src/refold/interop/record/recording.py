"""`refold.record`: an agent that nobody rewrites, recorded at the transport of its HTTP clients."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

from refold import seam
from refold.errors import RefoldError
from refold.events.identity import Scope
from refold.interop.record import session
from refold.interop.record.bridge import Bridge
from refold.interop.record.clients import Clients
from refold.interop.record.errors import RecordingOver
from refold.interop.record.places import Place, open_place
from refold.interop.record.session import Session
from refold.interop.record.traffic import Curtain, Ending, Exchange
from refold.interop.record.transports import Package
from refold.ledger.ledger import Ledger


def record(
    name: str,
    *,
    key: str | None = None,
    ledger: Place = "refold.db",
    scope: Scope | str = Scope(),  # noqa: B008 - an immutable tuple
    user_id: str | None = None,
) -> Recording:
    """Records what the clients of a block ask and are answered, as one run of the ledger.

    `with refold.record("nightly", key=day) as rec:`, or `async with`; inside, hand `rec.httpx_client()` or one of its
    siblings to the SDK. Every request is durable before it leaves, every answer before its end is seen. The run ends
    with the block: succeeded, or failed with the block's error.

    `name` is the run's workflow. `key` is your own name for it, unique in the scope for ever. `ledger` is a file (made
    when it is not there), an open `Ledger`, or a function that opens one, called on the recording's own thread: use it
    for `secrets`. `user_id` says for whom the agent ran.

    Raises, at the block's begin: RecordingExists when the key was used before, KeyConflict when by another name; at its
    end: NothingRecorded, and whatever the ledger refused while the block ran.
    """
    return Recording(name, key, ledger, scope, user_id)


class Recording(Clients):
    """A recording under way; made by `record`. Its clients may be used from any thread and any event loop."""

    def __init__(self, name: str, key: str | None, ledger: Place, scope: Scope | str, user_id: str | None) -> None:
        super().__init__(_Line(self))
        self._what = (name, key, scope, user_id)
        self._place = ledger
        self._bridge: Bridge | None = None
        self._ledger: Ledger | None = None
        self._session: Session | None = None

    @property
    def run_id(self) -> str:
        """The run that is being made, or was."""
        return self._under_way().run_id

    def __enter__(self) -> Self:
        bridge = self._bridge = Bridge()
        try:
            bridge.call(self._begin())
        except BaseException as error:
            if self._session is not None:  # Interrupted while it began.
                bridge.call(self._finish(error))
            bridge.stop()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        bridge = self.bridge
        try:
            bridge.call(self._finish(error))
        finally:
            bridge.stop()

    async def __aenter__(self) -> Self:
        bridge = self._bridge = Bridge()
        try:
            await bridge.acall(self._begin())
        except BaseException as error:
            if self._session is not None:  # Cancelled while it began.
                await bridge.acall(self._finish(error))
            bridge.stop()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        bridge = self.bridge
        try:
            await bridge.acall(self._finish(error))
        finally:
            bridge.stop()

    async def _begin(self) -> None:
        ledger = self._ledger = await open_place(self._place)
        name, key, scope, user_id = self._what
        try:
            self._session = await session.create(ledger.scope(scope), name, key, user_id)
        except BaseException:
            await ledger.close()
            raise

    async def _finish(self, error: BaseException | None) -> None:
        assert self._ledger is not None
        try:
            await self._under_way().finish(error)
        finally:
            await self._ledger.close()

    # What the line needs.

    @property
    def bridge(self) -> Bridge:
        if self._bridge is None:
            raise RecordingOver("The recording has not begun: use its clients inside its `with` block.")
        return self._bridge

    @property
    def curtain(self) -> Curtain:
        return self._under_way().curtain

    def _under_way(self) -> Session:
        if self._session is None:
            raise RecordingOver("The recording has not begun: use its clients inside its `with` block.")
        return self._session

    def begin(self, exchange: Exchange) -> None:
        """Puts a request on record."""
        try:
            self.bridge.call(self._under_way().begin(exchange))
        except BaseException as error:
            # Its commit may be under way: what will not be sent must not stand there as sent.
            with suppress(RefoldError):
                self.end(exchange, "failed", error)
            raise

    async def abegin(self, exchange: Exchange) -> None:
        try:
            await self.bridge.acall(self._under_way().begin(exchange))
        except BaseException as error:
            with suppress(RefoldError):
                await self.aend(exchange, "failed", error)
            raise

    def end(self, exchange: Exchange, how: Ending, error: BaseException | None = None) -> None:
        """Puts the end of a request on record, once."""
        if exchange.ended:
            return
        self.bridge.call(self._under_way().end(exchange, how, error))

    async def aend(self, exchange: Exchange, how: Ending, error: BaseException | None = None) -> None:
        if exchange.ended:
            return
        await self.bridge.acall(self._under_way().end(exchange, how, error))


class _Line:
    """Sends requests on, and has both ends of each on record."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording

    def send(self, package: Package, inner: Any, request: Any) -> Any:
        recording = self._recording
        exchange = self._exchange(request, request.read())
        recording.begin(exchange)
        try:
            seam.reach("http.send")
            response = inner.handle_request(request)
        except BaseException as error:
            recording.end(exchange, "failed", error)
            raise
        return self._answer(package, exchange, response)

    async def asend(self, package: Package, inner: Any, request: Any) -> Any:
        recording = self._recording
        exchange = self._exchange(request, await request.aread())
        await recording.abegin(exchange)
        try:
            seam.reach("http.send")
            response = await inner.handle_async_request(request)
        except BaseException as error:
            await recording.aend(exchange, "failed", error)
            raise
        return self._answer(package, exchange, response)

    def _exchange(self, request: Any, body: bytes) -> Exchange:
        curtain = self._recording.curtain
        return Exchange(curtain.sent(request.method, str(request.url), request.headers.raw, body))

    def _answer(self, package: Package, exchange: Exchange, response: Any) -> Any:
        headers, extensions = response.headers.raw, response.extensions
        texts = {name: each for name, each in extensions.items() if isinstance(each, bytes)}
        received = exchange.received = self._recording.curtain.received(response.status_code, headers, texts)
        if encoding := received.header("content-encoding"):
            received.decode = lambda body: package.decoded(body, encoding)
        chunks = _Chunks(self._recording, exchange, response.stream)
        return package.response(response.status_code, headers, chunks, extensions)


class _Chunks:
    """A body on its way to the client; whatever ends it is on record before the client sees the end."""

    def __init__(self, recording: Recording, exchange: Exchange, inner: Any) -> None:
        self._recording, self._exchange, self._inner = recording, exchange, inner

    def read(self) -> Iterator[bytes]:
        try:
            for chunk in self._inner:
                self._keep(chunk)
                yield chunk
        except GeneratorExit:  # The reader went away; what it read is on record with the close, or the block's end.
            raise
        except BaseException as error:
            self._recording.end(self._exchange, "failed", error)
            raise
        self._recording.end(self._exchange, "whole")

    async def aread(self) -> AsyncIterator[bytes]:
        try:
            async for chunk in self._inner:
                self._keep(chunk)
                yield chunk
        except GeneratorExit:
            raise
        except BaseException as error:
            await self._recording.aend(self._exchange, "failed", error)
            raise
        await self._recording.aend(self._exchange, "whole")

    def _keep(self, chunk: bytes) -> None:
        if self._exchange.ended:
            raise RecordingOver("The block that records this answer has ended, and nothing more of it is on record.")
        received = self._exchange.received
        assert received is not None
        received.chunks.append(chunk)

    def close(self) -> None:
        try:
            self._inner.close()
        finally:
            self._recording.end(self._exchange, "closed")

    async def aclose(self) -> None:
        try:
            await self._inner.aclose()
        finally:
            await self._recording.aend(self._exchange, "closed")
