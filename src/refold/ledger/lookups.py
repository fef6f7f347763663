"""What everybody does with a reader: the head of a run that must be there, and a stream's events page by page."""

from __future__ import annotations

from collections.abc import AsyncIterator

from refold.events.envelope import Event
from refold.events.identity import Scope, Stream
from refold.ledger.errors import RunNotFound
from refold.ledger.port import Reader, StreamHead


def no_run(scope: Scope, run_id: str) -> RunNotFound:
    """The error for a run that is not in a scope, whether or not another scope has it."""
    return RunNotFound(f"There is no run {run_id} in scope {scope}.", run_id=run_id, scope=str(scope))


async def run_head(reader: Reader, run_id: str) -> StreamHead:
    """Where a run's stream stands. Raises RunNotFound."""
    head = await reader.head(Stream.run(run_id))
    if head is None:
        raise no_run(reader.scope, run_id)
    return head


async def each_event(
    reader: Reader, stream: Stream, after: int = 0, upto: int | None = None, page: int = 1000
) -> AsyncIterator[Event]:
    """Events with after < seq <= upto, in order, `page` of them in memory at a time. Raises UnknownEvent."""
    while events := await reader.events(stream, after, upto, page):
        for event in events:
            yield event
        after = events[-1].seq


async def last_event(reader: Reader, stream: Stream, type_: str, upto: int) -> Event | None:
    """The last event of a type with seq <= upto; None when there is none. The nearer it is, the less is read."""
    look = 16
    while upto > 0:
        after = max(0, upto - look)
        found = [event async for event in each_event(reader, stream, after, upto) if event.type == type_]
        if found:
            return found[-1]
        upto, look = after, min(4 * look, 1000)
    return None
