"""What the processes of the kill sweep do: run a workflow, die, be followed by the next, and be judged by the services'
own logs.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

from refold import DidNotHappen, Happened, InferenceSkipping, seam
from refold.clock import SystemClock
from refold.events.envelope import Event
from refold.events.identity import Stream
from refold.gateway.errors import AlreadyResolved, NotInDoubt
from refold.gateway.identity import downstream_key
from refold.ledger.ledger import open_ledger
from refold.ledger.proof import verify_run
from refold.ledger.reading import exact_content
from refold.projections.rows import IntentRow, RunRow, ToolCallRow
from refold.runtime.opened import Refold
from refold.testing import faults
from refold.testing.crash import Ack
from tests.invariants.checks import check_all
from tests.runtime.kill_apps import ORDERS, STEPS, Desk, Outside, account_of, build, receipt
from tests.runtime.kill_truth import judged

KEY = "the run"
LEDGER = "ledger.db"


class LaterClock(SystemClock):
    """The machine's clock, so many hours on: what an earlier process had sent has settled, no long sleep is over."""

    def __init__(self, hours: int) -> None:
        self._ahead = hours * 3_600_000_000

    def now(self) -> int:
        return super().now() + self._ahead


def _clock(directory: Path) -> LaterClock:
    """Each process's clock is an hour ahead of the one before."""
    path = directory / "processes"
    hours = int(path.read_text()) if path.exists() else 0
    path.write_text(str(hours + 1))
    return LaterClock(hours)


@asynccontextmanager
async def opened(outside: Outside, directory: Path, probing: bool, vfs: str | None = None) -> AsyncIterator[Refold]:
    desk = Desk(outside, account_of(directory), directory, probing=probing)
    app = build(desk)
    ledger = await open_ledger(directory / LEDGER, clock=_clock(directory), vfs=vfs)
    rf = Refold(app, ledger, ledger.scope())
    try:
        await rf.begin(recover=True)
        yield rf
    finally:
        await rf.close()
        await desk.aclose()


async def go_on(rf: Refold, workflow: str, outside: Outside, directory: Path) -> Any:
    """Starts the run, or goes on with it, to its end. A person looks into the log wherever there is a doubt."""
    run = await rf.start(workflow, key=KEY)
    person = asyncio.create_task(_settle(rf, outside, account_of(directory)))
    end = asyncio.create_task(rf.end_of(run.id))
    try:
        await asyncio.wait((person, end), return_when=asyncio.FIRST_COMPLETED)
        if person.done():
            person.result()
        await end
        return await run.result()
    finally:
        person.cancel()
        end.cancel()
        await asyncio.gather(person, end, return_exceptions=True)


async def _settle(rf: Refold, outside: Outside, account: str) -> None:
    """Resolves as the log says what is in doubt and no probe asks about."""
    while True:
        async with rf.scope.reader() as reader:
            rows = await reader.rows(IntentRow, {"status": "in_doubt"})
            rows = [row for row in rows if rf.app.find_tool(row.tool).probe is None]
            calls = {row.intent_id: await reader.rows(ToolCallRow, {"intent_id": row.intent_id}) for row in rows}
        for row in rows:
            key = downstream_key(rf.scope.secret, row.intent_id, row.settled)
            found = [line for line in outside.charges(account) if line["key"] == key]
            answer = Happened(receipt(found[0])) if found else DidNotHappen()
            (call,) = [each for each in calls[row.intent_id] if each.mode == "executed"]
            try:
                await rf.resolve(call.tool_call_id, answer, basis="the service's log", by="ada")
            except (NotInDoubt, AlreadyResolved):
                continue
        await rf.ledger.store.changed()


# What is killed


def run_it(workflow: str, probing: bool, outside: Outside, directory: Path, ack: Ack) -> None:
    """A process that is killed."""
    asyncio.run(_run_it(workflow, probing, outside, directory, ack))


async def _run_it(workflow: str, probing: bool, outside: Outside, directory: Path, ack: Ack) -> None:
    async with opened(outside, directory, probing, faults.register()) as rf:
        ack(json.dumps(await go_on(rf, workflow, outside, directory)))


def run_again(
    died_at: str, number: int, workflow: str, probing: bool, outside: Outside, directory: Path, ack: Ack
) -> None:
    """One process is killed at a point of its own; the next, which finds what it left, is the one under test."""
    child = os.fork()
    if not child:
        seam.install(partial(_kill_at, died_at, [number]))
        run_it(workflow, probing, outside, directory, lambda line: None)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    run_it(workflow, probing, outside, directory, ack)


def _kill_at(wanted: str, left: list[int], point: str) -> None:
    if point == wanted:
        left[0] -= 1
        if left[0] == 0:
            faults.kill(point)


# What comes after


def comes_back(workflow: str, probing: bool, outside: Outside, directory: Path, acks: list[str]) -> None:
    """The next process brings the run to its end. Then the code's claims, the ledger and the services' logs agree."""
    asyncio.run(_comes_back(workflow, probing, outside, directory, acks))
    check_all(directory / LEDGER)


async def _comes_back(workflow: str, probing: bool, outside: Outside, directory: Path, acks: list[str]) -> None:
    desk = Desk(outside, account_of(directory), directory, probing=probing)
    before = await _recorded(directory)
    noted, called = desk.steps.lines(), desk.calls.lines()
    async with opened(outside, directory, probing) as rf:
        receipts = await go_on(rf, workflow, outside, directory)
        async with rf.scope.reader() as reader:
            runs = [row async for row in reader.each(RunRow, {})]
            intents = [row async for row in reader.each(IntentRow, {})]
        tally = await judged(rf.scope, runs, intents, receipts, outside.charges(account_of(directory)))
        tally.write(directory.parent.parent / "tally")
        assert (tally.doubled, tally.lost, tally.guessed) == (0, 0, 0), tally
        assert [each["request"]["order"] for each in receipts] == ORDERS[workflow]
        assert acks in ([], [json.dumps(receipts)])
        for run in runs:
            assert run.status == "succeeded"
            assert (await verify_run(rf.scope, run.run_id)).ok
            replayed = await rf.replay(run.run_id, InferenceSkipping())
            assert replayed.equal, replayed.divergences
    # What was recorded was not run again; what was not, was run once more.
    assert len(desk.steps.lines()) - len(noted) == STEPS[workflow] - before["step.completed"]
    assert not set(desk.calls.lines()[len(called) :]) & set(before.keys()) - {"same"}


async def _recorded(directory: Path) -> Counter[str]:
    """How many steps are on record, and for which orders an outcome is."""
    found: Counter[str] = Counter()
    if not (directory / LEDGER).exists():
        return found
    async with await open_ledger(directory / LEDGER) as ledger:
        scope = ledger.scope()
        async with scope.reader() as reader:
            runs = [row.run_id async for row in reader.each(RunRow, {})]
        for run in runs:
            orders: dict[str, str] = {}
            async for event in scope.read(Stream.run(run)):
                found[event.type] += event.type == "step.completed"
                if getattr(event.facts, "claim", None) is not None and event.facts.claim.attempt == 1:
                    async with scope.reader() as reader:
                        content = await exact_content(reader, Stream.run(run), event)
                    orders[event.facts.tool_call_id] = content["arguments"]["order"]
                if event.type == "tool.answered" or _happened(event):
                    found[orders[event.facts.tool_call_id]] += 1
    return found


def _happened(event: Event) -> bool:
    return event.type == "tool.resolved" and event.facts.resolution == "happened"
