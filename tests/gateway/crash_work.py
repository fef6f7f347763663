"""What the crash campaign kills, and what goes on afterwards: a run that makes calls of every kind, and the truth about
what was done, in a file of its own.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

from refold import seam
from refold.clock import SystemClock
from refold.events.catalog.run import RunCreated, RunStarted, RunSucceeded
from refold.events.identity import Stream
from refold.gateway.calls import current_call
from refold.gateway.doubt import resolve
from refold.gateway.outcomes import outcome, read_fields
from refold.gateway.resolutions import DidNotHappen, Happened
from refold.gateway.tools import Tool
from refold.ledger.drafts import Draft
from refold.ledger.ledger import ScopedLedger, open_ledger
from refold.ledger.writer import StreamWriter
from refold.projections.rows import IntentRow
from refold.runtime.frontier import Role, role_of
from refold.testing import crash, faults
from tests.gateway.support import Run
from tests.invariants.checks import check_all

NAMES = ("charge", "ship", "look", "wire", "export")
HOUR = 3_600_000_000


class Later(SystemClock):
    """The machine's clock, an hour on: deadlines have passed and settled."""

    def now(self) -> int:
        return super().now() + HOUR


def tools(truth: Path) -> dict[str, Tool[Any, Any]]:
    """Tools whose acts are lines of the file, each on disk before it is over."""

    def act(name: str) -> str:
        seam.reach("act")
        descriptor = os.open(truth, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.write(descriptor, f"{name} {current_call().key}\n".encode())
        os.fsync(descriptor)
        os.close(descriptor)
        seam.reach("acted")
        return _result(name)

    async def charge(order: int) -> str:
        return act("charge")

    def ship(order: int) -> str:
        return act("ship")

    async def look(order: int) -> str:
        return act("look")

    async def wire(order: int) -> str:
        async with current_call().sending():
            return act("wire")

    async def export(order: int) -> str:
        return act("export")

    return {
        "charge": Tool(charge),
        "ship": Tool(ship, key="ship:{order}"),
        "look": Tool(look, effect="read"),
        "wire": Tool(wire, marks_sending=True),
        "export": Tool(export, key="export:{order}"),
    }


def _result(name: str) -> str:
    return "x" * 9000 if name == "export" else name


async def go_on(scope: ScopedLedger, truth: Path, ack: crash.Ack) -> list[str]:
    """Starts the run, or resumes it, and brings it to its end. Returns the calls that were in doubt."""
    existing = await scope.find("k")
    if existing is not None and existing.row.status == "succeeded":
        return []
    if existing is None:
        created = await scope.create(Draft(RunCreated("w", "domain", "root")), key="k")
        assert isinstance(created, StreamWriter)
        run = Run(scope, created, "domain")
    else:
        run = Run(scope, await scope.writer(Stream.run(existing.run_id)), "domain")
    row = run.writer.state.open.run
    if row is not None and row.status == "queued":
        run.writer.append(Draft(RunStarted()))
    doubts: list[str] = []
    for name, tool in tools(truth).items():
        if await one_call(run, name, tool, truth):
            doubts.append(name)
        ack(name)
    run.writer.append(Draft(RunSucceeded()))
    await run.writer.close()
    run.gateway.close()
    return doubts


async def one_call(run: Run, name: str, tool: Tool[Any, Any], truth: Path) -> bool:
    """Makes a call, or takes what the record has of it. Returns whether it was in doubt, and a person had to look."""
    site = f"1//{name}#1"
    events = [event async for event in run.scope.read(run.writer.stream) if event.site == site]
    delivered = next((event for event in events if role_of(event) is Role.OUTCOME), None)
    if delivered is not None:
        async with run.scope.reader() as reader:
            fields = await read_fields(reader, run.scope.ledger.files, run.id, delivered)
        assert outcome(delivered, fields, tool) == _result(name)
        return False
    call = await run.recorded(tool, 1) if events else run.call(tool, 1, site=site)
    result = asyncio.ensure_future(run.result(call))
    while not result.done() and not run.gateway.waiting:
        await asyncio.sleep(0.001)
    doubtful = not result.done()
    if doubtful:
        done = any(line.startswith(name) for line in lines(truth))
        answer = Happened(_result(name)) if done else DidNotHappen()
        await resolve(run.scope, call.tool_call_id, answer, basis="the file", by="ada")
    assert await result == _result(name)
    return doubtful


def lines(truth: Path) -> list[str]:
    return truth.read_text().splitlines() if truth.exists() else []


def calls_of_every_kind(directory: Path, ack: crash.Ack) -> None:
    async def work() -> None:
        async with await open_ledger(directory / "ledger.db", vfs=faults.register()) as ledger:
            await go_on(ledger.scope(), directory / "truth", ack)

    asyncio.run(work())


def each_done_once(directory: Path, acks: list[str]) -> None:
    """The next process brings the run to its end: nothing unsafe is done twice, nothing is left out or guessed."""

    async def check() -> None:
        truth = directory / "truth"
        before = lines(truth)
        async with await open_ledger(directory / "ledger.db", clock=Later()) as ledger:
            scope = ledger.scope()
            doubts = await go_on(scope, truth, lambda line: None)
            assert len(doubts) <= 1
            assert not set(doubts) & {*acks, "look"}
            after = lines(truth)
            names = [line.split()[0] for line in after]
            assert set(names) == set(NAMES)
            assert [name for name in names if name != "look"] == [name for name in NAMES if name != "look"]
            assert len({line for line in after if line.startswith("look")}) == 1
            assert all(after[len(before) :].count(line) == 0 for line in before if line.split()[0] in acks)
            existing = await scope.find("k")
            assert existing is not None
            assert existing.row.status == "succeeded"
            async with scope.reader() as reader:
                assert {row.status for row in await reader.rows(IntentRow)} == {"succeeded"}

    asyncio.run(check())
    check_all(directory / "ledger.db")
