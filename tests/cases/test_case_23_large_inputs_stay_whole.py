"""Case 23: inputs over 8 KB were cut where they were kept, 1,364 Chinese characters being enough, and the run could not
be executed again. Here an input of any size is kept whole and proven; only what people are shown of it is cut, and the
cut is marked.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from refold.events import values
from refold.events.content import unseal
from refold.events.identity import Stream
from refold.interop.importers import import_paths
from refold.ledger.artifacts import IN_LEDGER, INLINE
from refold.ledger.ledger import Ledger
from refold.projections.rows import RunRow
from refold.replay.evidence import evidence
from refold.replay.present import SHOWN
from tests.cases.support import add_step, begin, in_ledger, proven, value_of
from tests.interop.support import HEADER, answer, text, user, write

CHINESE = "退款请求已经提交给客服处理"
INPUTS = {
    "one byte below": "x" * (INLINE - 1),
    "at the border": "x" * INLINE,
    "one byte above": "x" * (INLINE + 1),
    "1,364 Chinese characters": (CHINESE * 110)[:1364],
    "Chinese above the border": (CHINESE * 300)[:2731],
    "astral characters": "𝔘😀" * 3000,
    "escapes": '"\\\n\x00' * 4000,
    "just above an artifact's border": "y" * (IN_LEDGER + 1),
    "five megabytes": "0123456789abcdef" * 327_680,
}


@pytest.mark.parametrize("name", INPUTS)
def test_case_23_an_input_of_any_size_is_kept_whole_and_proven(tmp_path: Path, name: str) -> None:
    given = {"order": INPUTS[name], "n": 1}

    async def write_it(ledger: Ledger) -> str:
        writer = await begin(ledger.scope(), {"input": given})
        add_step(writer, 3, INPUTS[name])
        await writer.close()
        return writer.stream.run_id

    run_id = in_ledger(tmp_path, write_it)
    proof = proven(tmp_path)
    assert proof.ok, proof.first_bad

    async def read_it(ledger: Ledger) -> None:  # Another opening: from the file and not from memory.
        scope = ledger.scope()
        first, _, step = [event async for event in scope.read(Stream.run(run_id))]
        assert value_of(first, "input") == given
        assert value_of(step, "output") == INPUTS[name]
        async with scope.reader() as reader:
            (row,) = await reader.rows(RunRow, {"run_id": run_id})
        assert row.input_summary is not None
        assert row.input_summary.endswith("…"), "what is cut says so"
        bundle = await evidence(scope, run_id)
        assert bundle["events"][0]["data"]["content"]["input"] == json.loads(values.encode(given))
        assert len(bundle["run"]["input_summary"].encode()) <= SHOWN
        ready = bundle["evidence_items"][-1]
        assert not [each for each in ready["missing"] if "input" in each or "content" in each], ready["missing"]

    in_ledger(tmp_path, read_it)


@pytest.mark.parametrize("name", INPUTS)
def test_case_23_a_message_of_a_recorded_session_is_kept_whole(tmp_path: Path, name: str) -> None:
    said = INPUTS[name]
    source = write(tmp_path / "s.jsonl", [HEADER, user(1, said), answer(2, text("ok")), user(3, said[::-1])])

    async def work(ledger: Ledger) -> None:
        scope = ledger.scope()
        report = await import_paths(scope, "pi", [source])
        run_id = report.runs[0].run_id
        assert run_id is not None
        async with scope.reader() as reader:
            blobs = await reader.blobs(Stream.run(run_id))
        messages = [values.decode(unseal(blob.stored or b"")) for blob in blobs if blob.lookup is not None]
        told = [message["content"][0]["text"] for message in messages if message["role"] == "user"]
        assert told == [said, said[::-1]]

    in_ledger(tmp_path, work)
    proof = proven(tmp_path)
    assert proof.ok, proof.first_bad
