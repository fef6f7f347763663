"""Streams: order, durability, closing, annexes, the scope's own stream, group commit."""

from __future__ import annotations

import asyncio
from typing import Any

from refold.events.catalog.governance import AccessRead, FeedbackAdded
from refold.events.catalog.run import RunStarted, RunSucceeded
from refold.events.identity import SCOPE_STREAM, Scope, Stream
from refold.ledger.conformance.place import (
    SCOPE,
    Place,
    all_events,
    new_run,
    opened,
    outputs,
    refused,
    require,
    same,
    step,
    verified,
)
from refold.ledger.drafts import Draft
from refold.ledger.errors import BeyondHead, Fenced, RunNotFound, StreamClosed, StreamOwned
from refold.ledger.ledger import Ledger
from refold.ledger.port import Committed, Lost, StreamBatch
from refold.ledger.writer import StreamWriter


async def check_events_are_numbered_without_gaps_and_chained(place: Place) -> None:
    async with opened(place) as ledger:
        scope = ledger.scope(SCOPE)
        writer = await new_run(scope)
        for size in (1, 7, 50):
            for number in range(size):
                writer.append(step(ledger, number))
            await writer.barrier()
        same(len(await verified(scope, writer.stream)), 59, "events")


async def check_a_barrier_means_durable_for_everybody(place: Place) -> None:
    async with opened(place) as ledger, opened(place) as other:
        writer = await new_run(ledger.scope(SCOPE), steps=3)
        same(
            outputs(await all_events(other.scope(SCOPE), writer.stream)),
            [0, 1, 2],
            "what another process reads",
        )
        writer.append(step(ledger, 3))
        await writer.barrier()
        same(outputs(await verified(other.scope(SCOPE), writer.stream)), [0, 1, 2, 3], "after the next barrier")


async def check_what_was_committed_survives_the_end_of_every_process(place: Place) -> None:
    async with opened(place) as ledger:
        writer = await new_run(ledger.scope(SCOPE), steps=5)
        await writer.close()
    async with opened(place) as ledger:
        scope = ledger.scope(SCOPE)
        again = await scope.writer(writer.stream)
        require(again.head.epoch > writer.head.epoch, "a reopened stream did not get a new epoch")
        again.append(step(ledger, 5))
        await again.close()
        same(outputs(await verified(scope, writer.stream)), list(range(6)), "outputs")


async def check_a_reader_sees_one_state_however_long_it_is_open(place: Place) -> None:
    async with opened(place) as ledger, opened(place) as other:
        writer = await new_run(ledger.scope(SCOPE), steps=2)
        async with other.scope(SCOPE).reader() as reader:
            before = await reader.raw_events(writer.stream)
            for number in range(20):
                writer.append(step(ledger, number))
                await writer.barrier()
            same(await reader.raw_events(writer.stream), before, "an open reader's events")
            head = await reader.head(writer.stream)
            same(None if head is None else head.head.seq, 3, "an open reader's head")


async def check_pages_join_at_every_size_and_position(place: Place) -> None:
    async with opened(place) as ledger:
        scope = ledger.scope(SCOPE)
        writer = await new_run(scope, steps=9)
        await new_run(scope, steps=9)
        async with scope.reader() as reader:
            whole = await reader.raw_events(writer.stream)
            same([row.seq for row in whole], list(range(1, 11)), "seqs")
            for size in (1, 3, 10, 11):
                pages, after = [], 0
                while page := await reader.raw_events(writer.stream, after, limit=size):
                    pages += page
                    after = page[-1].seq
                same(pages, whole, f"pages of {size}")
            same(await reader.raw_events(writer.stream, 3, 6), whole[3:6], "events after 3 up to 6")


async def check_a_position_outside_the_stream_never_shows_another_stream(place: Place) -> None:
    async with opened(place) as ledger:
        scope = ledger.scope(SCOPE)
        streams = [(await new_run(scope, steps=count)).stream for count in (3, 4, 5)]
        async with scope.reader() as reader:
            for stream in streams:
                whole = await reader.raw_events(stream)
                for after in (-1, -(2**31), -(2**63), -(2**80)):
                    same(await reader.raw_events(stream, after), whole, f"events after {after}")
                for after in (len(whole), 2**32 - 1, 2**32, 2**33, 2**40, 2**63, 2**80):
                    same(await reader.raw_events(stream, after), [], f"events after {after}")
                for upto in (2**32, 2**33, 2**40, 2**63, 2**80):
                    same(await reader.raw_events(stream, 0, upto), whole, f"events up to {upto}")
                for upto in (0, -1, -(2**33)):
                    same(await reader.raw_events(stream, 0, upto), [], f"events up to {upto}")
                for number in (-(2**33), -1, 0, 1, 2**32, 2**33, 2**80):
                    same(await reader.blob(stream, number), None, f"blob {number}")
            for after in (7, 2**32, 2**80):
                await refused(BeyondHead, anext(scope.follow(streams[2], after)), f"following after {after}")


async def check_a_closed_stream_takes_nothing_more(place: Place) -> None:
    async with opened(place) as ledger:
        scope = ledger.scope(SCOPE)
        writer = await new_run(scope)
        writer.append(Draft(RunStarted()))
        writer.append(Draft(RunSucceeded(), content={"output": "done"}, output="done"))
        for _ in range(2):
            try:
                writer.append(step(ledger))
            except StreamClosed:
                pass
            else:
                require(False, "an event was taken after the terminal one")
            await writer.barrier()
        await writer.close()
        await refused(StreamClosed, scope.writer(writer.stream), "opening a closed stream")
        same([event.type for event in await verified(scope, writer.stream)][-1], "run.succeeded", "last event")
        async with scope.reader() as reader:
            head = await reader.head(writer.stream)
        require(head is not None and head.closed, "the head does not say closed")


async def check_an_annex_takes_facts_after_the_run_has_ended(place: Place) -> None:
    async with opened(place) as ledger:
        scope = ledger.scope(SCOPE)
        writer = await new_run(scope)
        writer.append(Draft(RunStarted()))
        writer.append(Draft(RunSucceeded()))
        await writer.close()
        before = await all_events(scope, writer.stream)
        async with await scope.writer(Stream.annex(writer.stream.run_id)) as annex:
            annex.append(Draft(FeedbackAdded(ledger.ids.new("fb"), "person", "1"), input="good", actor="usr"))
        async with await scope.writer(annex.stream) as annex:
            annex.append(Draft(FeedbackAdded(ledger.ids.new("fb"), "person", "0"), input="on reflection, bad"))
        same(len(await verified(scope, annex.stream)), 2, "annex events")
        same([e.row for e in await verified(scope, writer.stream)], [e.row for e in before], "the run itself")
        await refused(
            RunNotFound,
            scope.writer(Stream.annex(ledger.ids.new("run"))),
            "the annex of a run that is not there",
        )


async def check_the_scope_has_a_stream_of_its_own(place: Place) -> None:
    async with opened(place) as ledger:
        one, two = ledger.scope("acme/main"), ledger.scope("acme/other")
        for scope, count in ((one, 2), (two, 3)):
            async with await scope.writer(SCOPE_STREAM) as writer:
                for _ in range(count):
                    writer.append(Draft(AccessRead("events"), actor="auditor"))
        same([len(await verified(one, SCOPE_STREAM)), len(await verified(two, SCOPE_STREAM))], [2, 3], "events")


async def check_a_stream_has_one_writer(place: Place) -> None:
    async with opened(place) as ledger, opened(place) as other:
        writer = await new_run(ledger.scope(SCOPE))
        for each in (ledger, other):
            await refused(StreamOwned, each.scope(SCOPE).writer(writer.stream), "a second writer")
        await writer.close()
        async with await other.scope(SCOPE).writer(writer.stream) as second:
            second.append(step(other))
        same(len(await verified(other.scope(SCOPE), writer.stream)), 2, "events")


async def check_no_stream_is_made_by_asking_for_it(place: Place) -> None:
    async with opened(place) as ledger:
        scope = ledger.scope(SCOPE)
        missing = Stream.run(ledger.ids.new("run"))
        await refused(RunNotFound, scope.writer(missing), "writing to a run that is not there")
        await refused(RunNotFound, scope.post(missing.run_id, "k", "signal", b"{}"), "posting to it")
        await refused(RunNotFound, scope.run_head(missing.run_id), "its head")
        async with scope.reader() as reader:
            same(await reader.head(missing), None, "head")
            same(await reader.heads(), [], "heads")


async def check_a_second_run_with_the_same_id_changes_nothing(place: Place) -> None:
    async with opened(place) as ledger:
        scope = ledger.scope(SCOPE)
        writer = await new_run(scope, steps=1)
        await refused(Fenced, new_run(scope, run_id=writer.stream.run_id), "a second run with the same id")
        await refused(StreamOwned, scope.writer(writer.stream), "a second writer after it")
        writer.append(step(ledger, 1))
        await writer.close()
        same(outputs(await verified(scope, writer.stream)), [0, 1], "outputs")


async def check_writers_of_one_turn_share_a_commit(place: Place) -> None:
    async with opened(place) as ledger:
        scope = ledger.scope(SCOPE)
        writers = [await new_run(scope) for _ in range(8)]
        before = ledger.group.commits

        async def work(writer: StreamWriter) -> None:
            writer.append(step(ledger))
            await writer.barrier()

        await asyncio.gather(*map(work, writers))
        same(ledger.group.commits - before, 1, "commits for eight writers of one turn")


async def check_one_conflicting_stream_leaves_its_neighbours_committed(place: Place) -> None:
    async with opened(place) as ledger:
        scope = ledger.scope(SCOPE)
        writers = [await new_run(scope) for _ in range(3)]
        for writer in writers:
            writer.append(step(ledger, "batch"))
        batches = [_batch(writer) for writer in writers]
        stale = batches[1].previous
        batches[1] = batches[1]._replace(previous=stale._replace(hash=bytes(32)))
        outcomes = await ledger.store.commit(batches)
        same([type(each) for each in outcomes], [Committed, Lost, Committed], "outcomes")
        lost = outcomes[1]
        require(isinstance(lost, Lost) and isinstance(lost.error, Fenced), f"the lost batch says {lost}")
        for writer, wanted in zip(writers, (["batch"], [], ["batch"]), strict=True):
            same(outputs(await verified(scope, writer.stream)), wanted, "outputs")


def _batch(writer: StreamWriter) -> StreamBatch:
    batch = writer.take_batch()
    if batch is None:
        raise ValueError("the writer has nothing to commit")
    return batch


async def check_the_names_of_streams_come_in_order_and_page(place: Place) -> None:
    async with opened(place) as ledger:
        scope = ledger.scope(SCOPE)
        await _annexed(ledger)
        async with scope.reader() as reader:
            whole = await reader.heads()
            names = [str(each.stream) for each in whole]
            same(names, sorted(names), "names of streams")
            same(len(names), 6, "streams")
            found: list[Any] = []
            while page := await reader.heads(found[-1].stream if found else None, limit=2):
                found += page
            same(found, whole, "pages of heads")


async def _annexed(ledger: Ledger) -> None:
    scope = ledger.scope(Scope.parse(SCOPE))
    for _ in range(3):
        run = await new_run(scope)
        async with await scope.writer(Stream.annex(run.stream.run_id)) as annex:
            annex.append(Draft(FeedbackAdded(ledger.ids.new("fb"), "person")))
