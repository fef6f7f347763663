"""The four clients of a recording or a replay, driven alike: httpx and httpx2, blocking and not."""

from __future__ import annotations

import asyncio
import importlib
from typing import Any, NamedTuple, cast

from refold.interop.record.clients import Clients


class Answered(NamedTuple):
    status: int
    chunks: list[bytes]


class Side(NamedTuple):
    """One of the four. `ask` raises what the client raises."""

    package: str
    asynchronous: bool

    @property
    def module(self) -> Any:
        return importlib.import_module(self.package)

    def client(self, clients: Clients, **settings: Any) -> Any:
        name = f"{self.package}_async_client" if self.asynchronous else f"{self.package}_client"
        return getattr(clients, name)(**settings)

    def ask(
        self, clients: Clients, url: str, body: Any = None, *, read: int | None = None, **settings: Any
    ) -> Answered:
        """Asks once and reads the answer, or only its first chunks. `body` None: a GET."""
        if self.asynchronous:
            return asyncio.run(self._ask(clients, url, body, read, settings))
        with self.client(clients, **settings) as client, client.stream(**_asked(url, body)) as answer:
            chunks = []
            if read != 0:
                for chunk in answer.iter_raw():
                    chunks.append(chunk)
                    if len(chunks) == read:
                        break
            return Answered(answer.status_code, chunks)

    async def _ask(self, clients: Clients, url: str, body: Any, read: int | None, settings: Any) -> Answered:
        async with self.client(clients, **settings) as client, client.stream(**_asked(url, body)) as answer:
            chunks = []
            if read != 0:
                stream = answer.aiter_raw()
                async for chunk in stream:
                    chunks.append(chunk)
                    if len(chunks) == read:
                        break
                await stream.aclose()
            return Answered(cast(int, answer.status_code), chunks)


def _asked(url: str, body: Any) -> dict[str, Any]:
    return {"method": "GET", "url": url} if body is None else {"method": "POST", "url": url, "json": body}


SIDES = [Side(package, asynchronous) for package in ("httpx", "httpx2") for asynchronous in (False, True)]
NAMES = [f"{side.package}-{'async' if side.asynchronous else 'sync'}" for side in SIDES]
