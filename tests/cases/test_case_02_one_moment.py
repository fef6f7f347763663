"""Case 2: positions made of a time in milliseconds repeated, and a reader that came back skipped events or saw them
twice. Here a position is a seq: a thousand events of one microsecond are followed from any of them on, once each.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from refold.clock import SystemClock
from refold.events.catalog.run import RunSucceeded
from refold.events.identity import Stream
from refold.ledger.drafts import Draft
from refold.ledger.ledger import Ledger, ScopedLedger
from tests.cases.support import add_step, begin, in_ledger

EVENTS = 1000
MOMENT = 1_767_323_045_123_456


class StillClock(SystemClock):
    """A wall clock that stands; leases go by the time since boot, which does not."""

    def now(self) -> int:
        return MOMENT


async def _events_of_one_moment(ledger: Ledger) -> str:
    writer = await begin(ledger.scope())
    for number in range(3, EVENTS):
        add_step(writer, number)
    writer.append(Draft(RunSucceeded()))
    await writer.close()
    return writer.stream.run_id


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    folder = tmp_path_factory.mktemp("moment")
    return folder, in_ledger(folder, _events_of_one_moment, clock=StillClock())


PATIENCE = 30
"""Seconds after which a reader that waits counts as stuck; nothing is measured with it."""


async def _followed(scope: ScopedLedger, stream: Stream, after: int) -> list[tuple[int, int]]:
    async def follow() -> list[tuple[int, int]]:
        return [(event.seq, event.recorded_at) async for event in scope.follow(stream, after)]

    return await asyncio.wait_for(follow(), PATIENCE)


def test_case_02_a_thousand_events_of_one_microsecond_are_resumed_after_each_of_them(
    recorded: tuple[Path, str],
) -> None:
    folder, run_id = recorded

    async def work(ledger: Ledger) -> None:
        scope, stream = ledger.scope(), Stream.run(run_id)
        everything = [(seq, MOMENT) for seq in range(1, EVENTS + 1)]
        for after in range(EVENTS + 1):
            if after % 50 < 2:
                read = [(event.seq, event.recorded_at) async for event in scope.read(stream, after)]
                assert read == everything[after:], f"read after {after}"
            assert await _followed(scope, stream, after) == everything[after:], f"resumed after {after}"

    in_ledger(folder, work)


def test_case_02_a_reader_that_reconnects_after_every_event_of_one_microsecond_sees_each_once(tmp_path: Path) -> None:
    async def work(ledger: Ledger) -> None:
        scope = ledger.scope()
        writer = await begin(scope)
        stream = writer.stream
        seen: list[int] = []

        async def reconnecting() -> None:
            while len(seen) < 300:
                live = scope.follow(stream, seen[-1] if seen else 0)
                seen.append((await anext(live)).seq)
                await live.aclose()  # type: ignore[attr-defined]

        reader = asyncio.ensure_future(reconnecting())
        for number in range(3, 301):
            add_step(writer, number)
            if number % 3 == 0:
                await writer.barrier()
        await writer.barrier()
        await asyncio.wait_for(reader, PATIENCE)
        assert seen == list(range(1, 301))
        await writer.close()

    in_ledger(tmp_path, work, clock=StillClock())


def test_case_02_the_identities_of_events_of_one_microsecond_differ(recorded: tuple[Path, str]) -> None:
    folder, run_id = recorded

    async def work(ledger: Ledger) -> list[str]:
        stream = Stream.run(run_id)
        return [stream.event_id(event.seq) async for event in ledger.scope().read(stream)]

    identities = in_ledger(folder, work)
    assert len(set(identities)) == len(identities) == EVENTS
