"""Views of content that held a secret, read back."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec

from refold.events.catalog.steps import StepCompleted
from refold.events.envelope import NO_VIEW, View, decode_view, encode_view
from refold.events.identity import Stream
from refold.ledger.drafts import Draft
from refold.ledger.writer import StreamWriter
from tests.ledger.building import open_simulated
from tests.replay.support import begin

SECRET = "sk-proj-Zm9vYmFyYmF6cXV4MTIzNDU2Nzg5MGFiY2RlZg"


def test_an_event_with_a_secret_is_read_back_with_its_redacted_content(tmp_path: Path) -> None:
    async def work() -> None:
        async with await open_simulated(tmp_path / "ledger.db") as ledger:
            scope = ledger.scope()
            teller = await begin(scope)
            writer = teller.writer
            assert isinstance(writer, StreamWriter)
            writer.append(Draft(StepCompleted(step_id="st_1", name="n"), content={"output": {"api_key": SECRET}}))
            await writer.barrier()
            async with scope.reader() as reader:
                event = (await reader.events(Stream.run(teller.run_id)))[-1]
            assert event.facts.secrets == 1
            assert msgspec.json.decode(event.view.redacted)["values"] == {"output": {"api_key": "[redacted:key]"}}

    asyncio.run(work())


def test_a_view_without_redacted_content_is_stored_without_that_field() -> None:
    assert encode_view(View(input="x", redacted=NO_VIEW.redacted)) == b'{"input":"x"}'
    assert decode_view(b'{"input":"x"}') == View(input="x")
