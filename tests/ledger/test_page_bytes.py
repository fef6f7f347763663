"""Pages of events and blobs end where they hold enough, so that reading takes the memory of a page and not of a run."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from refold.events.catalog import run, steps
from refold.ledger.drafts import Draft
from refold.ledger.ledger import open_ledger
from refold.ledger.proof import verify_all
from refold.ledger.sqlite import reader as reading
from refold.ledger.writer import StreamWriter

SIZE = 40_000
EVENTS = 30


def test_a_page_ends_when_it_is_large_and_nothing_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "PAGE_BYTES", 3 * SIZE)

    async def use() -> None:
        async with await open_ledger(tmp_path / "l.db") as ledger:
            scope = ledger.scope()
            writer = await scope.create(Draft(run.RunCreated("w", "d", "root")))
            assert isinstance(writer, StreamWriter)
            async with writer:
                for number in range(EVENTS):
                    value = os.urandom(SIZE // 2).hex()
                    await writer.part(value + "x")
                    writer.append(Draft(steps.StepCompleted(f"st_{number}", "big"), content={"output": value}))
            assert [event.seq async for event in scope.read(writer.stream)] == list(range(1, EVENTS + 2))
            async with scope.reader() as reader:
                for pages in (reader.events, reader.raw_events, reader.blobs):
                    after, sizes = 0, []
                    while page := await pages(writer.stream, after):
                        sizes.append(len(page))
                        after += len(page)
                    assert after >= EVENTS
                    assert max(sizes) <= 8
            assert (await verify_all(ledger)).ok

    asyncio.run(use())
