"""The three workflows that are killed, and their tools, which act on the payment services over real HTTP.

Each returns its receipts, as the service gave them: what the code claims. Which order is charged how often does not
depend on where a process died, so that every run of a workflow is compared with the same list of orders.
"""

from __future__ import annotations

import asyncio
import importlib
import os
from pathlib import Path
from typing import Any, NamedTuple

import httpx

from refold import App, CannotTell, DidNotHappen, Happened, Run
from refold.demo.log import read_log
from refold.gateway import http
from refold.gateway.calls import current_call
from refold.gateway.tools import Doubt, Retry

for _late in (
    "anyio._backends._asyncio",
    "httpcore",
    "h11",
    "concurrent.futures.thread",
    "refold.ledger.sqlite.opening",
):
    importlib.import_module(_late)  # Once, where the processes are forked, and not in each of them.

TIMEOUT = 20
"""Seconds that a tool has, and as many until it has settled."""


class Outside(NamedTuple):
    """Two payment services: one honours keys, the other charges for each request. Their own logs are the truth."""

    honest: str
    forgetful: str
    logs: tuple[Path, Path]

    def charges(self, account: str) -> list[dict[str, Any]]:
        """What was charged in this account, by both."""
        return [line for log in self.logs for line in read_log(log) if line["account"] == account]


def receipt(line: dict[str, Any]) -> dict[str, Any]:
    """What the service answers for a line of its log."""
    return {"id": f"ch_{line['n']}", "status": "charged", "request": line["body"]}


class Notes:
    """What was run, one line each, kept through any death of the process."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def add(self, line: str) -> str:
        file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        os.write(file, f"{line}\n".encode())
        os.close(file)
        return line

    def lines(self) -> list[str]:
        return self._path.read_text().splitlines() if self._path.exists() else []


class Desk:
    """The clients and tools of one process. `probing`: whether the tools that can ask about a key do."""

    def __init__(self, outside: Outside, account: str, directory: Path, *, probing: bool) -> None:
        self.app = App("kills")
        self.steps = Notes(directory / "steps")
        self.calls = Notes(directory / "calls")
        self._honest = f"{outside.honest}/accounts/{account}/charges"
        self._forgetful = f"{outside.forgetful}/accounts/{account}/charges"
        self._client = http.async_client(transport=httpx.AsyncHTTPTransport(verify=False))
        self._plain = http.client(transport=httpx.HTTPTransport(verify=False))
        self._probe = self._look_up if probing else None

    async def aclose(self) -> None:
        await self._client.aclose()
        self._plain.close()

    def step(self, name: str) -> str:
        return self.steps.add(name)

    async def later_step(self, name: str) -> str:
        await asyncio.sleep(0)
        return self.steps.add(name)

    async def post(self, url: str, order: str) -> Any:
        self.calls.add(order)
        answer = await self._client.post(url, json={"order": order})
        return answer.raise_for_status().json()

    async def _look_up(self, doubt: Doubt) -> Happened | DidNotHappen | CannotTell:
        async with httpx.AsyncClient(verify=False) as client:
            answer = await client.get(self._forgetful, params={"key": doubt.key})
        if answer.status_code == 404:
            return DidNotHappen()
        return Happened(answer.json()) if answer.status_code == 200 else CannotTell()

    def add_tools(self) -> Tools:
        contract: dict[str, Any] = {"timeout": TIMEOUT, "settle": TIMEOUT, "retry": Retry(first=0.0)}

        @self.app.tool(effect="unsafe", probe=self._probe, **contract)
        async def charge(order: str) -> Any:
            return await self.post(self._forgetful, order)

        @self.app.tool(effect="unsafe", **contract)
        async def blind(order: str) -> Any:
            return await self.post(self._forgetful, order)

        @self.app.tool(effect="unsafe", key="refund:{order}", probe=self._probe, **contract)
        def refund(order: str) -> Any:
            self.calls.add(order)
            return self._plain.post(self._forgetful, json={"order": order}).raise_for_status().json()

        @self.app.tool(effect="unsafe", probe=self._probe, marks_sending=True, **contract)
        async def wire(order: str) -> Any:
            self.calls.add(order)
            async with current_call().sending():
                answer = await self._client.post(self._forgetful, json={"order": order})
            return answer.raise_for_status().json()

        @self.app.tool(effect="idempotent", **contract)
        async def reserve(order: str) -> Any:
            return await self.post(self._honest, order)

        @self.app.tool(effect="read", **contract)
        async def look(order: str) -> int:
            self.calls.add(order)
            return (await self._client.get(self._honest, params={"key": order})).status_code

        return Tools(charge, blind, refund, wire, reserve, look)


class Tools(NamedTuple):
    charge: Any
    blind: Any
    refund: Any
    wire: Any
    reserve: Any
    look: Any


async def patiently(tool: Any, order: str) -> Any:
    """An agent that asks again when it has waited long enough."""
    try:
        async with asyncio.timeout(0.001):
            return await tool(order)
    except TimeoutError:
        return await tool(order)


def build(desk: Desk) -> App:
    """The App of one process."""
    app, do = desk.app, desk.add_tools()

    @app.workflow()
    async def sequential(run: Run) -> list[Any]:
        await run.step(desk.step, "plan")
        receipts = [await do.charge("s1"), await do.refund("s2")]
        assert await do.look("nothing") == 404
        receipts.append(await do.reserve("s3"))
        await run.sleep(0.001)
        await run.step(desk.later_step, "halfway")
        receipts += [await do.wire("s4"), await do.blind("s5")]
        await run.step(desk.step, "done")
        return receipts

    @app.workflow()
    async def wide(run: Run) -> list[Any]:
        await run.step(desk.step, "plan")
        asked = [do.charge("w1"), do.charge("same"), do.charge("same"), do.refund("w4"), do.wire("w5")]
        asked += [do.blind("w6"), do.reserve("w7"), do.charge("w8"), run.step(desk.later_step, "beside")]
        *receipts, beside = await asyncio.gather(*asked)
        assert beside == "beside"
        await run.step(desk.step, "done")
        return receipts

    @app.workflow()
    async def paying(run: Run, order: str) -> Any:
        await run.step(desk.step, f"for {order}")
        return await do.charge(order)

    @app.workflow()
    async def nested(run: Run) -> list[Any]:
        async with run.scope("outer"):
            receipts = [(await run.race(paid=do.charge("n1"), never=run.sleep(days=30))).value]
            async with run.scope(("inner", 1)):
                # A loser that has paid is asked again all the same, and pays once.
                won = await run.race(quick=do.look("nothing"), slow=do.charge("n2"))
                receipts.append(won.value if won.name == "slow" else await do.charge("n2"))
                receipts.append(await patiently(do.blind, "n3"))
        async with asyncio.TaskGroup() as group:
            child = group.create_task(run.child(paying, "n4"))
            beside = group.create_task(do.refund("n5"))
            noted = group.create_task(run.step(desk.later_step, "beside"))
        await noted
        return [*receipts, child.result(), beside.result()]

    return app


ORDERS = {
    "sequential": ["s1", "s2", "s3", "s4", "s5"],
    "wide": ["w1", "same", "same", "w4", "w5", "w6", "w7", "w8"],
    "nested": ["n1", "n2", "n3", "n4", "n5"],
}
STEPS = {"sequential": 3, "wide": 3, "nested": 2}


def account_of(directory: Path) -> str:
    """The account of the run in this directory, the same for all its processes."""
    path = directory / "account"
    if not path.exists():
        path.write_text(os.urandom(8).hex())
    return path.read_text()
