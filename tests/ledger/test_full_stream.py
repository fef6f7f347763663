"""A stream that is full says so, instead of running into its neighbour's range of keys."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from refold.events.catalog.run import RunCreated
from refold.events.catalog.steps import StepCompleted
from refold.ledger import writer as writer_module
from refold.ledger.drafts import Draft
from refold.ledger.errors import StreamFull
from refold.ledger.writer import StreamWriter
from tests.ledger.building import open_simulated


def test_the_event_that_does_not_fit_is_refused_and_the_others_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer_module, "MAX_SEQ", 3)

    async def fill() -> int:
        async with await open_simulated(tmp_path / "ledger.db") as ledger:
            writer = await ledger.scope().create(Draft(RunCreated("w", "d", "r")))
            assert isinstance(writer, StreamWriter)
            async with writer:
                for number in range(2):
                    writer.append(Draft(StepCompleted(f"st_{number}", "x")))
                with pytest.raises(StreamFull, match="holds 3 events"):
                    writer.append(Draft(StepCompleted("st_3", "x")))
            return (await ledger.scope().run_head(writer.stream.run_id)).seq

    assert asyncio.run(fill()) == 3
