"""What a check gets, what it says when an adapter fails it, and the steps that most checks share."""

from __future__ import annotations

import traceback
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from hashlib import sha256
from typing import Any, NamedTuple, Protocol, TypeVar

from refold.errors import RefoldError
from refold.events import values
from refold.events.catalog.run import RunCreated
from refold.events.catalog.steps import StepCompleted
from refold.events.content import decode_content
from refold.events.envelope import GENESIS, Chain, Event, EventRow
from refold.events.identity import Stream, scope_digest
from refold.ledger.drafts import Draft
from refold.ledger.ledger import Existing, Ledger, ScopedLedger
from refold.ledger.writer import StreamWriter
from refold.projections import Row, fold, new_state
from refold.projections.rows import IntentRow

E = TypeVar("E", bound=RefoldError)

SCOPE = "acme/main"
"""The scope that checks work in unless they are about several."""


class Place(Protocol):
    """An empty place for one ledger of the adapter that is judged."""

    async def open(self) -> Ledger:
        """Opens the ledger of this place, made at the first call; each call is another incarnation."""
        ...

    def expire_leases(self) -> None:
        """Makes every lease given so far run out, as if its owner had been frozen for long enough."""
        ...


Check = Callable[[Place], Awaitable[None]]


class ConformanceFailed(AssertionError):
    """The adapter did not do what the check asks for; the message says what it did."""


class Report(NamedTuple):
    """The result of the whole suite: names of the checks that passed, and what the others raised."""

    passed_checks: list[str]
    failed: dict[str, Exception]

    @property
    def passed(self) -> bool:
        return not self.failed

    def __str__(self) -> str:
        lines = [f"{len(self.passed_checks)} checks passed, {len(self.failed)} failed"]
        for name, problem in self.failed.items():
            lines.append(f"{name}:")
            lines.extend("  " + line.rstrip() for line in traceback.format_exception(problem))
        return "\n".join(lines)


def require(fine: object, complaint: str) -> None:
    """Raises ConformanceFailed unless `fine`."""
    if not fine:
        raise ConformanceFailed(complaint)


def same(found: object, wanted: object, what: str) -> None:
    """Raises ConformanceFailed unless both are equal."""
    if found != wanted:
        raise ConformanceFailed(f"{what}: found {_short(found)}, wanted {_short(wanted)}")


async def refused(error: type[E], work: Awaitable[Any], what: str) -> E:
    """The error of that type that `work` raises. Raises ConformanceFailed when it does not."""
    try:
        result = await work
    except error as raised:
        return raised
    raise ConformanceFailed(f"{what} was not refused with {error.code}, but gave {_short(result)}")


@asynccontextmanager
async def opened(place: Place) -> AsyncIterator[Ledger]:
    """The place's ledger, closed at the end."""
    ledger = await place.open()
    try:
        yield ledger
    finally:
        await ledger.close()


def creation(workflow: str = "orders", **facts: Any) -> Draft:
    """A `run.created`."""
    return Draft(RunCreated(workflow, "test", "root", **facts))


def step(ledger: Ledger, output: Any = None) -> Draft:
    """A pure step that gave `output`: one event, one row."""
    return Draft(StepCompleted(ledger.ids.new("st"), "score"), content={"output": output}, output=output)


async def new_run(scope: ScopedLedger, steps: int = 0, **options: Any) -> StreamWriter:
    """A run with that many steps, durable."""
    created = await scope.create(creation(), **options)
    if isinstance(created, Existing):
        raise ConformanceFailed(f"a new run was taken for {created.run_id}")
    for number in range(steps):
        created.append(step(scope.ledger, number))
    await created.barrier()
    return created


async def all_events(scope: ScopedLedger, stream: Stream, after: int = 0) -> list[Event]:
    """The events of a stream after a position."""
    return [event async for event in scope.read(stream, after)]


def outputs(events: list[Event]) -> list[Any]:
    """The values that the steps among these events put out."""
    return [content_of(event.stored)["output"] for event in events if event.type == "step.completed"]


def content_of(row: EventRow) -> dict[str, Any]:
    """The values of an event's content. Raises ConformanceFailed when they are not there."""
    if row.content is None:
        raise ConformanceFailed(f"event {row.seq} has no content")
    content: dict[str, Any] = values.decode(bytes(decode_content(row.content).values))
    return content


async def verified(scope: ScopedLedger, stream: Stream) -> list[Event]:
    """The events of a stream, proven: gapless, chained, digests and head right, rows equal to the fold."""
    events = await all_events(scope, stream)
    chain = Chain(scope_digest(scope.secret, scope.scope), stream)
    previous = GENESIS
    for place, event in enumerate(events, 1):
        row = event.stored
        same(row.seq, place, f"seq of event {place} of {stream}")
        for stored, digest in ((row.content, row.content_digest), (row.view, row.view_digest)):
            require(
                stored is None or sha256(stored).digest() == digest,
                f"a digest of event {place} of {stream} is wrong",
            )
        wanted = chain.hash(
            previous,
            row.seq,
            row.type.encode(),
            row.version,
            row.epoch,
            row.recorded_at,
            row.occurred_at,
            row.actor.encode(),
            row.site.encode(),
            row.cause,
            row.facts,
            row.content_digest,
            row.view_digest,
            row.format,
        )
        same(row.hash.hex(), wanted.hex(), f"hash of event {place} of {stream}")
        previous = row.hash
    async with scope.reader() as reader:
        head = await reader.head(stream)
        require(head is not None, f"{stream} has no head")
        same(
            (0, GENESIS) if head is None else (head.head.seq, head.head.hash),
            (len(events), previous),
            f"head of {stream}",
        )
        for row_type, folded in _folded(scope, stream, events).items():
            for key, wanted_row in folded.items():
                where = dict(zip(row_type.TABLE.key, key, strict=True))
                same(await reader.rows(row_type, where), [wanted_row], f"row {key} of {row_type.TABLE.name}")
    return events


def _folded(scope: ScopedLedger, stream: Stream, events: list[Event]) -> dict[type[Row], dict[tuple[Any, ...], Row]]:
    state = fold(new_state(scope.scope, stream), events)
    folded: dict[type[Row], dict[tuple[Any, ...], Row]] = {}
    for row in state.take():
        if not isinstance(row, IntentRow):  # Other streams may have touched it since.
            folded.setdefault(type(row), {})[row.identity()] = row
    return folded


def _short(value: object) -> str:
    text = value if isinstance(value, str) else repr(value)
    return text if len(text) <= 300 else text[:300] + "…"


__all__ = ["Check", "ConformanceFailed", "Place", "Report"]
