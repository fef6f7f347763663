"""Following a stream: what came before and what comes now are one sequence, wherever a reader joins."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from refold.events.catalog.governance import FeedbackAdded
from refold.events.catalog.run import RunStarted, RunSucceeded
from refold.events.envelope import Event
from refold.events.identity import Stream
from refold.ledger.conformance.place import SCOPE, Place, all_events, new_run, opened, refused, same, step
from refold.ledger.drafts import Draft
from refold.ledger.errors import BeyondHead, RunNotFound
from refold.ledger.writer import StreamWriter

_PATIENCE = 30
"""Seconds after which a reader that waits counts as stuck; nothing is measured with it."""


async def check_live_equals_catch_up_for_every_cut(place: Place) -> None:
    """Cases 2 and 3: resumed after each event, a reader gets the rest, once each."""
    async with opened(place) as ledger, opened(place) as other:
        scope = ledger.scope(SCOPE)
        writer = await new_run(scope, steps=4)
        live = [
            asyncio.create_task(_seqs(each.scope(SCOPE).follow(writer.stream, after)))
            for each in (ledger, other)
            for after in range(writer.head.seq + 1)
        ]
        await asyncio.sleep(0)
        writer.append(Draft(RunStarted()))
        await writer.barrier()
        for number in range(30):
            writer.append(step(ledger, number))
            if number % 4 == 0:
                await writer.barrier()
        writer.append(Draft(RunSucceeded()))
        await writer.close()
        last = writer.head.seq
        for cut, task in enumerate(live):
            after = cut % 6
            same(
                await asyncio.wait_for(task, _PATIENCE),
                list(range(after + 1, last + 1)),
                f"live after {after}",
            )
        for after in range(last + 1):
            caught_up = await asyncio.wait_for(_seqs(scope.follow(writer.stream, after)), _PATIENCE)
            same(caught_up, list(range(after + 1, last + 1)), f"catch-up after {after}")


async def check_a_thousand_events_of_one_moment_are_told_apart(place: Place) -> None:
    """Cases 2 and 35: seq is the order and the position; times do not matter."""
    async with opened(place) as ledger:
        scope = ledger.scope(SCOPE)
        writer = await new_run(scope)
        for number in range(1000):
            writer.append(Draft(step(ledger).facts, content={"output": number}, occurred_at=10**15 - number % 3))
        await writer.close()
        whole = [event.row for event in await all_events(scope, writer.stream)]
        async with scope.reader() as reader:
            for after in range(1, 1001):
                some = await reader.raw_events(writer.stream, after, limit=20)
                same(some, whole[after : after + 20], f"events after {after}")


async def check_every_reader_hears_of_every_commit_of_another_process(place: Place) -> None:
    """Case 33: however many wait, and whatever notice is lost, each is served by the next look."""
    async with opened(place) as ledger, opened(place) as other:
        writer = await new_run(ledger.scope(SCOPE))
        readers = [other.scope(SCOPE).follow(writer.stream, 1) for _ in range(5)]
        for number in range(6):
            waiting = [asyncio.ensure_future(anext(reader)) for reader in readers]
            await asyncio.sleep(0)
            writer.append(step(ledger, number))
            await writer.barrier()
            heard = await asyncio.wait_for(asyncio.gather(*waiting), _PATIENCE)
            same([event.seq for event in heard], [number + 2] * 5, "what five readers heard")
        for reader in readers:
            await reader.aclose()  # type: ignore[attr-defined]


async def check_a_reader_that_comes_back_late_has_missed_nothing(place: Place) -> None:
    async with opened(place) as ledger:
        scope = ledger.scope(SCOPE)
        writer = await new_run(scope, steps=3)
        reader = scope.follow(writer.stream)
        seen = [await anext(reader) for _ in range(2)]
        for number in range(5):
            writer.append(step(ledger, number))
            await writer.barrier()
        seen += [await asyncio.wait_for(anext(reader), _PATIENCE) for _ in range(7)]
        same([event.seq for event in seen], list(range(1, 10)), "seqs")
        await reader.aclose()  # type: ignore[attr-defined]


async def check_nothing_is_shown_before_it_is_durable(place: Place) -> None:
    async with opened(place) as ledger:
        scope = ledger.scope(SCOPE)
        writer = await new_run(scope, steps=1)
        for number in range(50):
            writer.append(step(ledger, number))
        same(len(await all_events(scope, writer.stream)), 2, "events shown while 50 are in memory")
        await writer.close()


async def check_a_run_that_is_not_there_is_not_waited_for(place: Place) -> None:
    async with opened(place) as ledger:
        scope = ledger.scope(SCOPE)
        missing = Stream.run(ledger.ids.new("run"))
        for stream in (missing, Stream.annex(missing.run_id)):
            work = asyncio.wait_for(_seqs(scope.follow(stream)), _PATIENCE)
            await refused(RunNotFound, work, f"following {stream.kind} of a run that is not there")
        writer = await new_run(scope)
        beyond = writer.head.seq + 1
        await refused(BeyondHead, anext(scope.follow(writer.stream, beyond)), "a position beyond the head")


async def check_an_annex_can_be_awaited_before_it_exists(place: Place) -> None:
    async with opened(place) as ledger:
        scope = ledger.scope(SCOPE)
        writer = await new_run(scope)
        annex = Stream.annex(writer.stream.run_id)
        reader = scope.follow(annex)
        waiting = asyncio.ensure_future(anext(reader))
        await asyncio.sleep(0)
        async with await scope.writer(annex) as late:
            _feedback(late)
        same((await asyncio.wait_for(waiting, _PATIENCE)).type, "feedback.added", "first event of the annex")
        await reader.aclose()  # type: ignore[attr-defined]


def _feedback(writer: StreamWriter) -> None:
    writer.append(Draft(FeedbackAdded("fb_1", "person")))


async def _seqs(events: AsyncIterator[Event]) -> list[int]:
    return [event.seq async for event in events]
