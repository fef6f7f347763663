"""What the tests of the cases share: ledgers in a folder, small runs, edits past the ledger's back."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path
from typing import Any, TypeVar

import apsw

from refold.clock import Clock
from refold.events.catalog import CATALOG, Catalog
from refold.events.catalog.run import RunCreated, RunStarted
from refold.events.catalog.steps import StepCompleted
from refold.events.content import decode_content
from refold.events.envelope import Event
from refold.events.identity import Stream
from refold.ledger.conformance.place import content_of
from refold.ledger.drafts import Draft
from refold.ledger.ledger import Ledger, ScopedLedger, open_ledger
from refold.ledger.proof import Proof, verify_all
from refold.ledger.writer import StreamWriter

T = TypeVar("T")
LEDGER = "ledger.db"


def in_ledger(
    folder: Path,
    work: Callable[[Ledger], Awaitable[T]],
    *,
    clock: Clock | None = None,
    catalog: Catalog = CATALOG,
) -> T:
    """What `work` returns, in the ledger of this folder, which is made when it is new and closed at the end."""

    async def run() -> T:
        async with await open_ledger(folder / LEDGER, clock=clock, catalog=catalog) as ledger:
            return await work(ledger)

    return asyncio.run(run())


async def begin(scope: ScopedLedger, content: dict[str, Any] | None = None, **options: Any) -> StreamWriter:
    """A run that has started; not yet committed beyond its first event."""
    facts = RunCreated(workflow="orders", effect_domain="d", lineage_root="root")
    made = await scope.create(Draft(facts, content=content, input=(content or {}).get("input")), **options)
    assert isinstance(made, StreamWriter)
    made.append(Draft(RunStarted()))
    return made


def add_step(writer: StreamWriter, number: int, output: Any = None) -> Event:
    """One more pure step, whose output says which it is."""
    value = number if output is None else output
    return writer.append(Draft(StepCompleted(f"st_{number}", "score"), content={"output": value}, output=value))


def value_of(event: Event, field: str) -> Any:
    """One value of an event's content."""
    return content_of(event.stored)[field]


def payload_of(event: Event) -> bytes:
    """The values of an event's content as they are encoded."""
    assert event.stored.content is not None
    return bytes(decode_content(event.stored.content).values)


def edit(folder: Path, sql: str, *values: Any) -> int:
    """Changes the file behind the ledger's back and says how many rows it changed. Nobody may have it open."""
    with closing(apsw.Connection(str(folder / LEDGER))) as connection:
        connection.execute(sql, values)
        changed: int = connection.changes()
        return changed


def look(folder: Path, sql: str, *values: Any) -> list[Any]:
    """What stands in the file."""
    with closing(apsw.Connection(str(folder / LEDGER), flags=apsw.SQLITE_OPEN_READONLY)) as connection:
        return list(connection.execute(sql, values).fetchall())


def stream_number(folder: Path, stream: Stream) -> int:
    """The number under which the file keeps a stream."""
    ((number,),) = look(folder, "SELECT stream_no FROM stream_heads WHERE stream = ?", str(stream))
    return int(number)


def proven(folder: Path) -> Proof:
    """What a proof of the whole ledger says."""
    return in_ledger(folder, verify_all)
