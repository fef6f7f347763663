"""Who may write: a stream that was taken over fences its former writer, who loses what it had in memory."""

from __future__ import annotations

import asyncio

from refold.ledger.conformance.place import (
    SCOPE,
    ConformanceFailed,
    Place,
    new_run,
    opened,
    outputs,
    refused,
    require,
    same,
    step,
    verified,
)
from refold.ledger.errors import Fenced, StreamOwned
from refold.ledger.writer import StreamWriter


async def check_a_frozen_owner_is_replaced_and_writes_nothing_after(place: Place) -> None:
    async with opened(place) as first, opened(place) as second:
        frozen = await new_run(first.scope(SCOPE), steps=1)
        await refused(StreamOwned, second.scope(SCOPE).writer(frozen.stream), "the stream of a living owner")
        for number in ("never", "seen"):
            frozen.append(step(first, number))
        place.expire_leases()
        taker = await second.scope(SCOPE).writer(frozen.stream)
        require(taker.head.epoch > frozen.head.epoch, "the epoch did not rise")
        taker.append(step(second, "taken"))
        await taker.barrier()
        error = await refused(Fenced, frozen.barrier(), "the commit of a replaced owner")
        same(
            (error.facts.get("first_dropped"), error.facts.get("last_dropped")),
            (3, 4),
            "what the error names as dropped",
        )
        for _ in range(2):
            await refused(Fenced, frozen.barrier(), "a later barrier of a replaced owner")
            try:
                frozen.append(step(first, "late"))
            except Fenced:
                continue
            raise ConformanceFailed("a fenced writer took an event")
        taker.append(step(second, "on"))
        await taker.close()
        same(outputs(await verified(second.scope(SCOPE), frozen.stream)), [0, "taken", "on"], "outputs")


async def check_of_two_who_open_a_stream_at_once_one_has_it(place: Place) -> None:
    async with opened(place) as ledger:
        scope = ledger.scope(SCOPE)
        await (first := await new_run(scope, steps=1)).close()
        both = await asyncio.gather(*(scope.writer(first.stream) for _ in range(2)), return_exceptions=True)
        writers = [each for each in both if isinstance(each, StreamWriter)]
        require(len(writers) == 1, f"{len(writers)} writers were opened at once")
        require(any(isinstance(each, StreamOwned) for each in both), "the other was not told that it is owned")
        writers[0].append(step(ledger, "mine"))
        await writers[0].close()
        await (await scope.writer(first.stream)).close()


async def check_a_takeover_alone_fences_even_if_the_taker_writes_nothing(place: Place) -> None:
    async with opened(place) as first, opened(place) as second:
        frozen = await new_run(first.scope(SCOPE))
        frozen.append(step(first, "lost"))
        place.expire_leases()
        taker = await second.scope(SCOPE).writer(frozen.stream)
        await refused(Fenced, frozen.barrier(), "the commit of a replaced owner")
        await taker.close()
        same(outputs(await verified(second.scope(SCOPE), frozen.stream)), [], "outputs")


async def check_a_fenced_process_can_open_the_stream_again(place: Place) -> None:
    async with opened(place) as first, opened(place) as second:
        frozen = await new_run(first.scope(SCOPE))
        frozen.append(step(first, "lost"))
        place.expire_leases()
        taker = await second.scope(SCOPE).writer(frozen.stream)
        taker.append(step(second, "taken"))
        await taker.close()
        await refused(Fenced, frozen.barrier(), "the commit of a replaced owner")
        again = await first.scope(SCOPE).writer(frozen.stream)
        again.append(step(first, "again"))
        await again.close()
        same(outputs(await verified(first.scope(SCOPE), frozen.stream)), ["taken", "again"], "outputs")


async def check_an_owner_that_expired_unnoticed_goes_on(place: Place) -> None:
    async with opened(place) as ledger:
        writer = await new_run(ledger.scope(SCOPE))
        place.expire_leases()
        writer.append(step(ledger, "still here"))
        await writer.barrier()
        async with opened(place) as other:
            await refused(StreamOwned, other.scope(SCOPE).writer(writer.stream), "an owner that has renewed")
        await writer.close()
        same(outputs(await verified(ledger.scope(SCOPE), writer.stream)), ["still here"], "outputs")


async def check_releasing_what_was_taken_over_does_not_touch_the_taker(place: Place) -> None:
    async with opened(place) as first, opened(place) as second, opened(place) as third:
        frozen = await new_run(first.scope(SCOPE))
        place.expire_leases()
        taker = await second.scope(SCOPE).writer(frozen.stream)
        await frozen.close()
        await refused(StreamOwned, third.scope(SCOPE).writer(frozen.stream), "the stream of its new owner")
        taker.append(step(second, "mine"))
        await taker.close()
        same(outputs(await verified(third.scope(SCOPE), frozen.stream)), ["mine"], "outputs")
