"""The inbox: what others want delivered becomes an event once, in the transaction that says so."""

from __future__ import annotations

import asyncio

from refold.events.catalog.steps import SignalReceived
from refold.events.identity import Stream
from refold.ledger.conformance.place import (
    SCOPE,
    Place,
    new_run,
    opened,
    outputs,
    refused,
    same,
    step,
    verified,
)
from refold.ledger.drafts import Draft
from refold.ledger.errors import Fenced
from refold.ledger.ledger import Ledger, ScopedLedger
from refold.ledger.port import InboxItem
from refold.ledger.writer import StreamWriter

_PATIENCE = 30
"""Seconds after which an owner that waits counts as stuck; nothing is measured with it."""


async def check_an_inbox_takes_each_key_once(place: Place) -> None:
    async with opened(place) as ledger, opened(place) as other:
        run = (await new_run(ledger.scope(SCOPE))).stream.run_id
        posts = [each.scope(SCOPE).post(run, "k1", "signal", b"1", "usr") for each in (ledger, other) for _ in range(3)]
        same(sorted(await asyncio.gather(*posts)), [False] * 5 + [True], "answers to six posts of one key")
        await other.scope(SCOPE).post(run, "k2", "signal", b"2")
        waiting = await _inbox(ledger.scope(SCOPE), run)
        same(
            [(item.key, item.payload) for item in waiting],
            [("k1", b"1"), ("k2", b"2")],
            "inbox, oldest first",
        )


async def check_delivery_and_event_are_one_transaction(place: Place) -> None:
    async with opened(place) as ledger:
        scope = ledger.scope(SCOPE)
        writer = await new_run(scope)
        run = writer.stream.run_id
        await scope.post(run, "k1", "signal", b"1")
        await scope.post(run, "k2", "signal", b"2")
        _deliver(ledger, writer, "k1")
        same(len(await _inbox(scope, run)), 2, "items before the commit")
        await writer.barrier()
        same([item.key for item in await _inbox(scope, run)], ["k2"], "items after it")
        same(await scope.post(run, "k1", "signal", b"again"), False, "posting a key that was delivered")
        same(len(await verified(scope, writer.stream)), 2, "events")


async def check_an_item_is_delivered_once_also_when_two_owners_race(place: Place) -> None:
    async with opened(place) as first, opened(place) as second:
        frozen = await new_run(first.scope(SCOPE))
        run = frozen.stream.run_id
        await first.scope(SCOPE).post(run, "k", "signal", b"1")
        _deliver(first, frozen, "k")
        place.expire_leases()
        taker = await second.scope(SCOPE).writer(frozen.stream)
        _deliver(second, taker, "k")
        await asyncio.gather(taker.barrier(), refused(Fenced, frozen.barrier(), "the delivery of a replaced owner"))
        events = await verified(first.scope(SCOPE), frozen.stream)
        same([event.type for event in events], ["run.created", "signal.received"], "events")
        same(await _inbox(first.scope(SCOPE), run), [], "inbox")


async def check_a_second_delivery_of_an_item_is_refused_whole(place: Place) -> None:
    async with opened(place) as ledger:
        scope = ledger.scope(SCOPE)
        writer = await new_run(scope)
        neighbour = await new_run(scope)
        await scope.post(writer.stream.run_id, "k", "signal", b"1")
        _deliver(ledger, writer, "k")
        await writer.barrier()
        writer.append(step(ledger, "with it"))
        _deliver(ledger, writer, "k")
        neighbour.append(step(ledger, "beside"))
        _, problem = await asyncio.gather(neighbour.barrier(), writer.barrier(), return_exceptions=True)
        same(type(problem), Fenced, "what the second delivery raised")
        same(outputs(await verified(scope, writer.stream)), [], "outputs of the refused batch")
        same(outputs(await verified(scope, neighbour.stream)), ["beside"], "outputs of its neighbour")


async def check_who_waits_for_news_sees_what_others_post(place: Place) -> None:
    async with opened(place) as owner, opened(place) as other:
        run = (await new_run(owner.scope(SCOPE))).stream.run_id
        for number, poster in enumerate((owner, other, owner)):
            waiting = asyncio.ensure_future(_items(owner, run, number + 1))
            await asyncio.sleep(0)
            await poster.scope(SCOPE).post(run, f"k{number}", "signal", b"1")
            same(await asyncio.wait_for(waiting, _PATIENCE), [f"k{each}" for each in range(number + 1)], "inbox")


async def _items(ledger: Ledger, run: str, count: int) -> list[str]:
    while len(items := await _inbox(ledger.scope(SCOPE), run)) < count:
        await ledger.store.changed()
    return [item.key for item in items]


def _deliver(ledger: Ledger, writer: StreamWriter, key: str) -> None:
    writer.append(Draft(SignalReceived(ledger.ids.new("st"), "go"), content={"value": key}), delivers=key)


async def _inbox(scope: ScopedLedger, run_id: str) -> list[InboxItem]:
    async with scope.reader() as reader:
        return await reader.inbox(Stream.run(run_id))
