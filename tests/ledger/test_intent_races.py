"""Two processes and one effect: whoever acts on what has changed since is told, and the other is not hurt."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

from refold.events.catalog.tool import ToolDoubted, ToolResolved
from refold.events.identity import Stream
from refold.ledger.conformance.intents import dispatched
from refold.ledger.conformance.place import new_run, verified
from refold.ledger.drafts import Draft
from refold.ledger.errors import IntentMoved, KeyConflict
from refold.ledger.ledger import ScopedLedger, open_ledger
from refold.ledger.writer import StreamWriter
from refold.projections.rows import IntentRow
from tests.invariants.checks import check_all
from tests.ledger.processes import Child, apart

SCOPE = "acme/main"
ROUNDS = 30

Act = Callable[[ScopedLedger, StreamWriter, int], Awaitable[StreamWriter]]


def test_of_two_processes_that_bring_one_revision_one_is_told_each_time(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    apart(_race_for_revisions, path)
    check_all(path)


def _race_for_revisions(path: Path) -> None:
    async def boss() -> None:
        async with await open_ledger(path) as ledger:
            scope = ledger.scope(SCOPE)
            writer = await new_run(scope)
            for number in range(ROUNDS):
                draft = dispatched(writer, f"int_{number}")
                call = draft.facts.tool_call_id  # type: ignore[attr-defined]
                writer.append(draft)
                writer.append(
                    Draft(ToolDoubted(intent_id=f"int_{number}", tool_call_id=call, revision=2, why="timeout"))
                )
            await writer.close()
            outcomes = _rounds(path, _resolves)
            assert all(sorted(each) == ["IntentMoved", "written"] for each in outcomes), outcomes
            async with scope.reader() as reader:
                rows = await reader.rows(IntentRow, {"owner_run_id": writer.stream.run_id})
            assert [row.revision for row in rows] == [3] * ROUNDS

    asyncio.run(boss())


def test_of_two_processes_that_claim_one_key_one_gets_it_each_time(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    apart(_race_for_keys, path)
    check_all(path)


def _race_for_keys(path: Path) -> None:
    async def boss() -> None:
        async with await open_ledger(path) as ledger:
            outcomes = _rounds(path, _claims)
            async with ledger.scope(SCOPE).reader() as reader:
                rows = {row.idempotency_key: row.intent_id for row in await reader.rows(IntentRow)}
            for number, said in enumerate(outcomes):
                stands = rows[f"key-{number}"]
                assert sorted(said) == sorted(["written", f"KeyConflict with {stands}"])

    asyncio.run(boss())


def _rounds(path: Path, act: Act) -> list[list[str]]:
    """What two processes got that act at the same moment, round by round."""
    rivals = [Child(lambda child: _rival(path, child, act)) for _ in range(2)]
    outcomes = []
    for _ in range(ROUNDS):
        for rival in rivals:
            assert rival.hear() == "ready"
        for rival in rivals:
            rival.go()
        outcomes.append([rival.hear() for rival in rivals])
    for rival in rivals:
        rival.result()
    return outcomes


async def _rival(path: Path, child: Child, act: Act) -> None:
    async with await open_ledger(path) as ledger:
        scope = ledger.scope(SCOPE)
        for number in range(ROUNDS):
            run, neighbour = await new_run(scope), await new_run(scope)
            writer = await act(scope, run, number)
            neighbour.append(dispatched(neighbour, f"int_{neighbour.stream.run_id}"))
            child.say("ready")
            child.wait()
            results = await asyncio.gather(writer.barrier(), neighbour.barrier(), return_exceptions=True)
            assert results[1] is None, "the neighbour in the same commit was hurt"
            there = [event.type for event in await verified(scope, writer.stream)]
            assert any(name.startswith("tool.") for name in there) == (results[0] is None)
            child.say(_said(results[0]))


async def _resolves(scope: ScopedLedger, run: StreamWriter, number: int) -> StreamWriter:
    annex = await scope.writer(Stream.annex(run.stream.run_id))
    intent, call = f"int_{number}", f"tc_{number}"
    await annex.adopt_intents(intent)
    annex.append(Draft(ToolResolved(intent_id=intent, tool_call_id=call, revision=3, resolution="resend", by="probe")))
    return annex


async def _claims(scope: ScopedLedger, run: StreamWriter, number: int) -> StreamWriter:
    run.append(dispatched(run, f"int_{number}_{run.stream.run_id}", key=f"key-{number}"))
    return run


def _said(result: object) -> str:
    if isinstance(result, KeyConflict):
        return f"KeyConflict with {result.facts['intent_id']}"
    return type(result).__name__ if isinstance(result, IntentMoved) else "written" if result is None else repr(result)
