"""An App with one tool that pays over real HTTP, and the moments at which a test may hold it."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest

from refold import App, RunPaused, Stream
from refold.clock import SystemClock
from refold.events.envelope import Event
from refold.gateway import http
from refold.gateway.tools import Retry
from refold.runtime.handle import RunHandle
from refold.runtime.opened import Refold
from tests.world.client import ask
from tests.world.world import Account, World

EFFECTS = ("read", "idempotent", "unsafe")


class JumpingClock(SystemClock):
    """The machine's clock, and an hour more whenever a test says so."""

    def __init__(self) -> None:
        self._ahead = 0

    def now(self) -> int:
        return super().now() + self._ahead

    def jump(self) -> None:
        self._ahead += 3_600_000_000


class Moment:
    """A place in the tool's code: `reached` when it is there, and it goes on once `let_go` is set."""

    def __init__(self, *, held: bool) -> None:
        self.reached = asyncio.Event()
        self.let_go = asyncio.Event()
        if not held:
            self.let_go.set()

    async def __call__(self) -> None:
        self.reached.set()
        await self.let_go.wait()


class Till:
    """`pay(order)` of an effect class, against books that show every request that was sent twice. A `read` asks for a
    charge that was made beforehand.
    """

    def __init__(self, world: World, effect: Any, *, url: str | None = None, held: str = "", **contract: Any) -> None:
        self.app = App("till")
        self.account = world.account(forgetful=effect == "unsafe")
        self.service = world.forgetful if effect == "unsafe" else world.payments
        self.before = Moment(held=held == "before the send")
        self.after = Moment(held=held == "after the answer")
        self._url = url or self.account.url
        if effect == "read":
            assert ask("POST", self.account.url, {"order": "7"}, key="known").status == 201
        contract = {"retry": Retry(first=0.0), "timeout": 20.0, **contract}
        self.pay: Any = self.app.tool(effect=effect, **contract)(self._look if effect == "read" else self._pay)

    async def _pay(self, order: str) -> Any:
        return await self._send("POST", json={"order": order})

    async def _look(self, order: str) -> Any:
        return await self._send("GET", params={"key": "known"})

    async def _send(self, method: str, **request: Any) -> Any:
        await self.before()
        async with http.async_client(transport=httpx.AsyncHTTPTransport(verify=False)) as client:
            answer = (await client.request(method, self._url, **request)).raise_for_status().json()
        await self.after()
        return answer


def receipts(account: Account) -> list[dict[str, Any]]:
    """What the service answers for the charges in its log."""
    return [{"id": f"ch_{line['n']}", "status": "charged", "request": line["body"]} for line in account.charges()]


async def events_of(rf: Refold, run: RunHandle, prefix: str = "tool.") -> list[Event]:
    return [event async for event in rf.scope.read(Stream.run(run.id)) if event.type.startswith(prefix)]


async def wait_for(rf: Refold, run: RunHandle, type_: str, count: int = 1) -> None:
    """Returns when so many events of a type are on record."""
    async for event in rf.scope.follow(Stream.run(run.id)):
        count -= event.type == type_
        if not count:
            return


async def doubts_of(run: RunHandle) -> list[str]:
    """The calls for which the run waits."""
    with pytest.raises(RunPaused) as paused:
        await run.result()
    assert paused.value.reason == "in_doubt"
    found: list[str] = paused.value.facts["doubts"]
    return found
