"""What was recorded is read back exactly, growing requests included."""

from __future__ import annotations

import asyncio
from decimal import Decimal
from pathlib import Path

import pytest

from refold.events.catalog.run import RunCreated
from refold.events.identity import Stream
from refold.ledger.drafts import Draft
from refold.ledger.errors import Erased
from refold.ledger.maintenance.erasure import erase_run
from refold.ledger.reading import exact_content
from refold.ledger.writer import StreamWriter
from refold.replay.evidence import evidence
from tests.ledger.building import one_of_everything, open_simulated


def test_every_request_comes_back_with_all_its_messages(tmp_path: Path) -> None:
    async def read() -> None:
        async with await open_simulated(tmp_path / "ledger.db") as ledger:
            scope = ledger.scope()
            run_id = await one_of_everything(scope, turns=3)
            stream = Stream.run(run_id)
            async with scope.reader() as reader:
                events = await reader.events(stream)
                requests = [each for each in events if each.type == "inference.requested"]
                contents = [await exact_content(reader, stream, each) for each in requests]
            assert [len(each["messages"]) for each in contents] == [1, 3, 5]
            assert contents[2]["messages"][0] == {"role": "user", "content": "question 0 " * 20}
            bundle = await evidence(scope, run_id)
            assert [each["number"] for each in bundle["parts"]] == [1, 2, 3, 4, 5, 6]
            assert bundle["parts"][0]["value"] == contents[0]["messages"][0]
            await erase_run(scope, run_id, "on request", "ada")
            async with scope.reader() as reader:
                events = await reader.events(stream)
                with pytest.raises(Erased):
                    await exact_content(reader, stream, events[0])
            assert (await evidence(scope, run_id))["parts"] == []

    asyncio.run(read())


def test_values_keep_their_types(tmp_path: Path) -> None:
    async def read() -> None:
        async with await open_simulated(tmp_path / "ledger.db") as ledger:
            writer = await ledger.scope().create(
                Draft(RunCreated("w", "d", "r"), content={"input": (Decimal("1.50"), b"\0", {1: "x"})})
            )
            assert isinstance(writer, StreamWriter)
            await writer.close()
            async with ledger.scope().reader() as reader:
                (event,) = await reader.events(writer.stream)
                assert await exact_content(reader, writer.stream, event) == {
                    "input": (Decimal("1.50"), b"\0", {1: "x"})
                }

    asyncio.run(read())
