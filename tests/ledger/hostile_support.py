"""What the tests of bad input share: a live ledger, a dump of all of it, a run that goes on after a refusal."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import apsw

from refold.events.catalog.steps import StepCompleted
from refold.ledger.conformance.place import step, verified
from refold.ledger.ledger import Ledger, ScopedLedger, open_ledger
from refold.ledger.writer import StreamWriter

SCOPE = "acme/main"


def live(path: Path, work: Callable[[Ledger], Awaitable[None]], **options: Any) -> None:
    async def run() -> None:
        async with await open_ledger(path, **options) as ledger:
            await work(ledger)

    asyncio.run(run())


def dump(path: Path) -> list[str]:
    """Everything that is in the ledger's tables."""
    connection = apsw.Connection(str(path))
    tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
    lines = [f"{name}: {row!r}" for name in tables for row in connection.execute(f"SELECT * FROM {name}")]
    connection.close()
    return lines


def nested(levels: int, inner: Any = None) -> Any:
    for _ in range(levels):
        inner = [inner]
    return inner


def completed(scope: ScopedLedger, **facts: Any) -> StepCompleted:
    return StepCompleted(scope.ledger.ids.new("st"), facts.pop("name", "score"), **facts)


async def goes_on(scope: ScopedLedger, writer: StreamWriter, count: int) -> None:
    """The writer is as it was: it takes an event, and the stream has `count` then."""
    writer.append(step(scope.ledger, "on"))
    await writer.close()
    assert len(await verified(scope, writer.stream)) == count
