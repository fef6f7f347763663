"""Evidence: the whole record of a run, from one read, as the same bytes every time."""

from __future__ import annotations

import gc
import io
import json
import tracemalloc
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apsw
import pytest

from refold.events.catalog.governance import AccessRead
from refold.events.catalog.steps import StepCompleted
from refold.events.identity import SCOPE_STREAM, Stream
from refold.ledger.drafts import Draft
from refold.ledger.errors import RunNotFound
from refold.ledger.ledger import Ledger, ScopedLedger
from refold.projections.rows import ArtifactRow, AuditRow, CostRow, FeedbackRow, IntentRow, StepRow, ToolCallRow
from refold.replay.evidence import evidence, evidence_pieces, write_evidence
from refold.replay.present import row_json
from tests.replay.support import HOSTILE, begin, doubtful, every_event, with_ledger

SEVEN = ["run", "steps", "artifacts", "costs", "approvals", "feedback", "trace_spec"]
MORE = ["tool_calls", "intents", "events", "annex", "audit", "children", "evidence_items"]


async def _bytes(scope: ScopedLedger, run_id: str) -> bytes:
    out = io.BytesIO()
    await write_evidence(scope, run_id, out)
    return out.getvalue()


def test_the_bundle_is_what_the_tables_hold(tmp_path: Path) -> None:
    async def work(ledger: Ledger) -> None:
        scope = ledger.scope()
        await doubtful(scope)  # A neighbour, none of which may show.
        run_id = (await every_event(scope)).run_id
        bundle = await evidence(scope, run_id)
        assert [key for key in bundle if key in (*SEVEN, *MORE)] == [*SEVEN, *MORE]
        async with scope.reader() as reader:
            for name, table in (
                ("steps", StepRow),
                ("artifacts", ArtifactRow),
                ("costs", CostRow),
                ("tool_calls", ToolCallRow),
            ):
                rows = await reader.rows(table, {"run_id": run_id}, order=("seq",))
                assert bundle[name] == [row_json(row) for row in rows], name
                assert rows, name
            intents = {row.intent_id: row_json(row) for row in await reader.rows(IntentRow, {"owner_run_id": run_id})}
            feedback = await reader.rows(FeedbackRow, {"run_id": run_id})
            audit = await reader.rows(AuditRow, {"run_id": run_id})
            head, annex = await reader.head(Stream.run(run_id)), await reader.head(Stream.annex(run_id))
        assert {row["intent_id"]: row for row in bundle["intents"]} == intents
        assert [row["stream"] for row in bundle["feedback"]] == ["run", "annex"]
        assert len(feedback) == 2
        assert len(bundle["audit"]) == len(audit)
        assert head is not None
        assert annex is not None
        assert (bundle["head_seq"], bundle["head_hash"]) == (head.head.seq, head.head.hash.hex())
        assert bundle["annex_head"] == {"seq": annex.head.seq, "hash": annex.head.hash.hex()}
        assert [event["seq"] for event in bundle["events"]] == list(range(1, head.head.seq + 1))
        assert [event["type"] for event in bundle["annex"]] == ["feedback.added", "incident.raised"]
        assert bundle["approvals"][0]["decision"]["by"] == "ann"
        assert bundle["approvals"][1]["decision"] is None
        assert bundle["replay"] == {"kind": "evidence", "number": 1, "executes": [], "cost": "one read of the store"}

    with_ledger(tmp_path, work)


def test_events_name_their_step_also_where_their_facts_do_not(tmp_path: Path) -> None:
    async def work(ledger: Ledger) -> None:
        scope = ledger.scope()
        bundle = await evidence(scope, (await every_event(scope)).run_id)
        steps = {call["tool_call_id"]: call["run_step_id"] for call in bundle["tool_calls"]}
        of_calls = [event for event in bundle["events"] if event["type"].startswith("tool.")]
        assert len(of_calls) > 15
        assert all(event["step_id"] == steps[event["data"]["tool_call_id"]] for event in of_calls)
        decided = next(event for event in bundle["events"] if event["type"] == "approval.decided")
        assert decided["step_id"] == bundle["approvals"][0]["step_id"]

    with_ledger(tmp_path, work)


def test_two_readings_and_both_ways_of_reading_give_the_same_bytes(tmp_path: Path) -> None:
    async def work(ledger: Ledger) -> tuple[str, bytes]:
        scope = ledger.scope()
        run_id = (await every_event(scope)).run_id
        first = await _bytes(scope, run_id)
        assert await _bytes(scope, run_id) == first
        assert json.loads(first) == await evidence(scope, run_id)
        return run_id, first

    run_id, first = with_ledger(tmp_path, work)
    assert (
        with_ledger(tmp_path, lambda ledger: _bytes(ledger.scope(), run_id)) == first
    )  # Another process's life later.


def test_what_is_appended_during_the_reading_does_not_show(tmp_path: Path) -> None:
    async def work(ledger: Ledger) -> None:
        scope = ledger.scope()
        teller = await begin(scope)
        for _ in range(200):
            teller.inference()
        await teller.writer.barrier()
        before = await _bytes(scope, teller.run_id)
        seqs = [event["seq"] for event in json.loads(before)["events"]]
        assert seqs == list(range(1, 603))  # Many pages, none of them short.
        pieces = []
        async for piece in evidence_pieces(scope, teller.run_id):
            pieces.append(piece)
            if len(pieces) % 100 == 0:
                teller.inference(amount="1000")
                await teller.writer.barrier()
        assert len(pieces) > 1000
        assert b"".join(pieces) == before
        assert await _bytes(scope, teller.run_id) != before

    with_ledger(tmp_path, work)


def test_reading_and_exporting_under_audit_do_not_change_the_bundle(tmp_path: Path) -> None:
    async def work(ledger: Ledger) -> None:
        scope = ledger.scope()
        run_id = (await every_event(scope)).run_id
        before = await _bytes(scope, run_id)
        async with await scope.writer(SCOPE_STREAM) as writer:
            writer.append(Draft(AccessRead(what="run", run_id=run_id), actor="ann"))
        assert await _bytes(scope, run_id) == before

    with_ledger(tmp_path, work)


def test_a_run_of_another_scope_is_not_there(tmp_path: Path) -> None:
    async def work(ledger: Ledger) -> None:
        run_id = (await doubtful(ledger.scope("a/x"))).run_id
        for other in ("a/y", "b/x"):
            out = io.BytesIO()
            with pytest.raises(RunNotFound):
                await write_evidence(ledger.scope(other), run_id, out)
            assert out.getvalue() == b""

    with_ledger(tmp_path, work)


def test_children_are_listed_with_their_heads(tmp_path: Path) -> None:
    async def work(ledger: Ledger) -> None:
        scope = ledger.scope()
        parent = await begin(scope)
        child = await begin(scope, parent_run_id=parent.run_id)
        await begin(scope, parent_run_id=child.run_id)
        for each in (parent, child):
            await each.writer.barrier()
        bundle = await evidence(scope, parent.run_id)
        assert [each["run_id"] for each in bundle["children"]] == [child.run_id]
        assert bundle["children"][0]["head_hash"] == child.writer.head.hash.hex()

    with_ledger(tmp_path, work)


@contextmanager
def _counted_work() -> Iterator[Counter[str]]:
    """Counts statements and SQLite's virtual machine steps, which depend on the rows visited and on nothing else."""
    work: Counter[str] = Counter()

    def profile(event: dict[str, Any]) -> None:
        work["statements"] += 1
        work["steps"] += event["stmt_status"]["SQLITE_STMTSTATUS_VM_STEP"]

    def hook(connection: apsw.Connection) -> None:
        connection.trace_v2(apsw.SQLITE_TRACE_PROFILE, profile)

    apsw.connection_hooks.append(hook)
    try:
        yield work
    finally:
        apsw.connection_hooks.remove(hook)


def test_the_work_of_a_reading_does_not_depend_on_what_else_the_ledger_holds(tmp_path: Path) -> None:
    async def work(ledger: Ledger) -> None:
        scope = ledger.scope()
        run_id = (await every_event(scope)).run_id

        async def reading() -> Counter[str]:
            counted.clear()
            await write_evidence(scope, run_id, io.BytesIO())
            return Counter(counted)

        other = await begin(scope)

        async def others(number: int) -> None:
            for _ in range(number):
                await doubtful(scope)
                await every_event(scope, finish=False)
                await begin(scope, parent_run_id=other.run_id)

        await others(2)
        first = await reading()
        assert first["steps"] > 10_000
        for _ in range(20):
            await reading()
        await others(30)
        await every_event(ledger.scope("another/tenant"))
        last = await reading()
        assert last["statements"] == first["statements"]
        # One step more or less for a range that ends at another run's row, and not at the table's end.
        assert abs(last["steps"] - first["steps"]) < first["statements"]

    with _counted_work() as counted:
        with_ledger(tmp_path, work)


def test_a_run_of_any_length_is_written_in_the_memory_of_a_page(tmp_path: Path) -> None:
    class Nothing:
        size = 0

        def write(self, data: bytes) -> None:
            self.size += len(data)

    async def work(ledger: Ledger) -> None:
        scope = ledger.scope()
        peaks = []
        for length in (2100, 6300):
            teller = await begin(scope)
            for number in range(length):
                teller.tell(StepCompleted(step_id=teller.new("st"), name="n"), content={"output": f"{number:0200}"})
            await teller.writer.barrier()
            out = Nothing()
            gc.collect()
            tracemalloc.start()
            await write_evidence(scope, teller.run_id, out)
            peaks.append(tracemalloc.get_traced_memory()[1])
            tracemalloc.stop()
            assert out.size > length * 1000
        assert peaks[1] < peaks[0] * 1.5, peaks

    with_ledger(tmp_path, work)


def test_hostile_text_comes_out_as_json_that_is_safe_to_print(tmp_path: Path) -> None:
    async def work(ledger: Ledger) -> None:
        scope = ledger.scope()
        teller = await begin(scope)
        value = {"text": HOSTILE, "half": "\ud800 half", "\x1b[31m": [HOSTILE, "\udfff"]}
        teller.tell(StepCompleted(step_id="st_1", name="n"), content={"output": value}, output=value, name=HOSTILE)
        teller.tell(StepCompleted(step_id="st_2", name="n"), content={"output": "\ud83d"}, output="\ud83d")
        await teller.writer.barrier()
        data = await _bytes(scope, teller.run_id)
        text = data.decode("utf-8")
        assert not [hex(ord(c)) for c in text if ord(c) < 0x20 and c != "\n"]
        assert not [hex(ord(c)) for c in text if 0x7F <= ord(c) < 0xA0 or c in "\u202e\u2028\u2029\u2066"]
        shown = json.loads(text)["events"][2]["data"]["content"]["output"]
        assert shown["text"] == HOSTILE
        assert shown["half"] == {"$": ["str", 0xD800, " half"]}  # As it was stored: nothing is lost.

    with_ledger(tmp_path, work)
