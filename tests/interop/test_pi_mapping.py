"""What the records of a pi session become."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from refold.events.identity import Stream
from refold.interop.importers import import_paths
from refold.ledger.artifacts import open_artifact
from refold.ledger.ledger import Ledger, open_ledger
from refold.projections.rows import ArtifactRow, CostRow, IntentRow, RunRow, StepRow, ToolCallRow
from tests.interop.support import (
    HEADER,
    answer,
    call,
    heads_of,
    imported,
    in_ledger,
    line,
    result,
    shared,
    small_session,
    text,
    told_of,
    user,
    write,
)
from tests.invariants.checks import check_all


def rows(folder: Path, table: type[Any], order: tuple[str, ...] = ("seq",)) -> list[Any]:
    async def read(ledger: Ledger) -> list[Any]:
        async with ledger.scope("t/w").reader() as reader:
            return await reader.rows(table, {}, order=order, limit=100_000)

    return in_ledger(folder, read)


def test_every_record_of_a_session_is_kept_and_has_its_place(tmp_path: Path) -> None:
    report = imported(tmp_path, write(tmp_path / "s.jsonl", small_session()))
    (run,) = report.runs
    assert (run.created, run.inferences, run.tool_calls, run.unanswered, run.errors) == (True, 5, 4, 1, [])
    assert run.charges == {"USD": "0.5"}
    assert report.unknown == [
        {"source": run.source, "what": "record type", "name": "novelty", "count": 1},
        {"source": run.source, "what": "result without a call", "name": "read", "count": 1},
    ]
    types = Counter(event[1] for event in told_of(tmp_path, run.run_id))
    assert types == {
        "run.created": 1,
        "run.started": 1,
        "run.paused": 1,
        "signal.received": 3,
        "inference.requested": 5,
        "inference.completed": 4,
        "inference.failed": 1,
        "cost.recorded": 5,
        "tool.dispatched": 4,
        "tool.answered": 2,
        "tool.failed": 1,
        "artifact.stored": 1,
        "context.compressed": 1,
        "step.completed": 4,
    }
    (stored,) = rows(tmp_path, RunRow, ("run_id",))
    assert (stored.status, stored.reason, stored.origin) == ("paused", "imported", "imported")
    assert stored.effect_domain == run.run_id
    check_all(tmp_path / "ledger.db")


def test_an_unanswered_call_is_in_doubt_and_an_answered_one_is_not(tmp_path: Path) -> None:
    imported(tmp_path, write(tmp_path / "s.jsonl", small_session()))
    calls = rows(tmp_path, ToolCallRow)
    assert [(each.tool, each.provider_call_id, each.status) for each in calls] == [
        ("read", "c1", "succeeded"),
        ("write", "c2", "succeeded"),
        ("read", "c1", "failed"),
        ("pay", "p1", "in_doubt"),
    ]
    assert all(each.observed for each in rows(tmp_path, IntentRow, ("intent_id",)))
    assert calls[3].arguments_summary == '{"amount":90}'


def test_an_id_that_a_model_repeats_is_answered_where_it_was_last_asked(tmp_path: Path) -> None:
    records = [
        HEADER,
        answer(1, call("same", path="first"), stop="aborted"),
        answer(2, call("same", path="second"), call("same", path="third"), stop="toolUse"),
        result(3, "same", "two"),
        result(4, "same", "three"),
    ]
    imported(tmp_path, write(tmp_path / "s.jsonl", records))
    calls = rows(tmp_path, ToolCallRow)
    assert [(each.status, each.result_summary) for each in calls] == [
        ("in_doubt", None),
        ("succeeded", "two"),
        ("succeeded", "three"),
    ]


def test_a_large_result_is_an_artifact_byte_for_byte_and_stands_nowhere_else(tmp_path: Path) -> None:
    words = "".join(chr(0x21 + place % 5000) for place in range(4000)) + "\x00 \ud800"
    data = words.encode("utf-8", "surrogatepass")
    assert len(data) > 8192
    records = [HEADER, answer(1, call("c"), stop="toolUse"), result(2, "c", words), answer(3, text("ok"))]
    lone = "\ud800".encode("utf-8", "surrogatepass")
    path = tmp_path / "s.jsonl"
    path.write_bytes(b"".join(map(line, records)).replace(lone, b"\\ud800"))
    (run,) = imported(tmp_path, path).runs
    assert run.errors == []
    (artifact,) = rows(tmp_path, ArtifactRow)
    assert (artifact.size_bytes, artifact.sha256) == (len(data), hashlib.sha256(data).hexdigest())

    async def read(ledger: Ledger) -> bytes:
        async with ledger.scope("t/w").reader() as reader:
            blob = await reader.blob(Stream.run(artifact.run_id), artifact.blob)
        return open_artifact(artifact, blob, ledger.files)

    assert in_ledger(tmp_path, read) == data
    (stored,) = rows(tmp_path, ToolCallRow)
    assert (stored.result_artifact_id, stored.result_bytes) == (artifact.artifact_id, len(data))
    told = told_of(tmp_path, run.run_id)
    answered = next(event for event in told if event[1] == "tool.answered")
    assert words[100:600] not in str(answered[5])


def test_after_a_compaction_the_model_is_sent_the_summary_and_what_was_kept(tmp_path: Path) -> None:
    (run,) = imported(tmp_path, write(tmp_path / "s.jsonl", small_session())).runs
    requests = [event[5][1]["messages"] for event in told_of(tmp_path, run.run_id) if event[1] == "inference.requested"]
    assert [len(messages) for messages in requests] == [1, 4, 6, 5, 8]
    assert requests[1] == [*requests[0], *requests[1][1:]]
    after = requests[3]
    assert [word for message in after for word in ("the plan was read", "go on", "ls") if word in message] == [
        "the plan was read",
        "go on",
        "ls",
    ]
    assert not any("look at the plan" in message for message in after)


def test_a_conversation_of_a_thousand_turns_is_stored_in_linear_bytes(tmp_path: Path) -> None:
    records: list[dict[str, Any]] = [HEADER]
    for turn in range(1000):
        # Words of their own, so that compression does not hide a second copy.
        words = " ".join(hashlib.sha256(f"{turn} {place}".encode()).hexdigest() for place in range(8))
        records += [user(turn, words), answer(turn, text(words[::-1]))]
    path = write(tmp_path / "s.jsonl", records)
    (run,) = imported(tmp_path, path).runs
    assert run.inferences == 1000
    check_all(tmp_path / "ledger.db")

    async def sizes(ledger: Ledger) -> tuple[int, int]:
        async with ledger.scope("t/w").reader() as reader:
            stream = Stream.run(str(run.run_id))
            parts = sum(len(blob.stored or b"") for blob in await reader.blobs(stream, limit=100_000))
            events = await reader.raw_events(stream, limit=100_000)
            requests = sum(len(event.content or b"") for event in events if event.type == "inference.requested")
            return parts, requests

    parts, requests = in_ledger(tmp_path, sizes)
    assert parts < path.stat().st_size
    assert parts + requests <= 3 * path.stat().st_size
    assert requests < 300 * 1000


def test_usage_is_normalised_once_and_kept_raw(tmp_path: Path) -> None:
    """Case 37: one provider's input includes cached tokens, another's does not."""
    apart = {"input": 10, "output": 5, "cacheRead": 900, "cacheWrite": 90, "totalTokens": 1005, "cost": {"total": 1}}
    within = {"input": 1000, "output": 5, "cacheRead": 900, "cacheWrite": 90, "totalTokens": 1005, "cost": {"total": 1}}
    records = [HEADER, answer(1, text("a"), usage=apart), answer(2, text("b"), usage=within)]
    (run,) = imported(tmp_path, write(tmp_path / "s.jsonl", records)).runs
    costs = rows(tmp_path, CostRow)
    assert [(each.tokens_prompt, each.tokens_cached, each.tokens_total) for each in costs] == [(1000, 900, 1005)] * 2
    raw = [
        json.loads(event[5][0]["usage"]) for event in told_of(tmp_path, run.run_id) if event[1] == "inference.completed"
    ]
    assert raw == [apart, within]


@pytest.mark.parametrize(
    ("digits", "stored"),
    [
        ("0.035720749999999996", "0.035720749999999996"),
        ("0.10000000000000000000001", "0.10000000000000000000001"),
        ("1.50", "1.50"),
        ("1e-7", "0.0000001"),
        ("0", "0"),
        ("1e999", None),
        ("NaN", None),
        ("null", None),
        ('"0.5"', None),
    ],
)
def test_an_amount_is_the_files_own_digits_or_none(tmp_path: Path, digits: str, stored: str | None) -> None:
    usage = {"input": 1, "output": 1, "cost": {"total": "DIGITS"}}
    data = line(HEADER) + line(answer(1, text("a"), usage=usage)).replace(b'"DIGITS"', digits.encode())
    path = tmp_path / "s.jsonl"
    path.write_bytes(data)
    (run,) = imported(tmp_path, path).runs
    assert run.errors == []
    (cost,) = rows(tmp_path, CostRow)
    assert (cost.amount, cost.currency) == (stored, None if stored is None else "USD")
    assert run.charges == ({} if stored is None else {"USD": stored})


def test_an_answer_that_was_aborted_or_failed_keeps_its_cost(tmp_path: Path) -> None:
    records = [
        HEADER,
        answer(1, text("a"), stop="aborted", errorMessage="Request was aborted."),
        answer(2, stop="error", errorMessage="400 bad request"),
        answer(3, text("ok")),
    ]
    (run,) = imported(tmp_path, write(tmp_path / "s.jsonl", records)).runs
    steps = rows(tmp_path, StepRow)
    assert [(each.status, each.error_code, each.tokens_prompt) for each in steps] == [
        ("failed", "aborted", 10),
        ("failed", "provider_error", 10),
        ("succeeded", None, 10),
    ]
    assert steps[1].error_message == "400 bad request"
    assert run.charges == {"USD": "0.3"}


def test_names_out_of_a_file_stand_in_facts_as_digests_only(tmp_path: Path) -> None:
    (run,) = imported(tmp_path, write(tmp_path / "s.jsonl", small_session())).runs

    async def facts(ledger: Ledger) -> bytes:
        async with ledger.scope("t/w").reader() as reader:
            events = await reader.raw_events(Stream.run(str(run.run_id)), limit=1000)
        return b"\n".join(event.facts for event in events)

    stored = in_ledger(tmp_path, facts)
    for word in (b"acme", b"novelty", b'"write"', b'"pay"', b'"c1"', b'"p1"', b"the plan", b'"5e55"'):
        assert word not in stored


def test_what_a_secret_stood_in_is_redacted_in_every_view(tmp_path: Path) -> None:
    secret = "sk-ant-api03-" + "aB3dE5gH7" * 10 + "AA"
    records = [
        HEADER,
        user(1, f"use {secret} please"),
        answer(2, text(f"with {secret}"), call("c", key=secret), stop="toolUse"),
        result(3, "c", f"{secret} is refused " + "y" * 9000),
        answer(4, text("sorry")),
    ]
    (run,) = imported(tmp_path, write(tmp_path / "s.jsonl", records)).runs
    views = [event[6] for event in told_of(tmp_path, run.run_id)]
    assert secret not in str(views)
    assert "redacted" in str(views)
    for table in (StepRow, ToolCallRow):
        assert secret not in str(rows(tmp_path, table))


def test_the_recorded_session_comes_out_to_the_digit(tmp_path: Path) -> None:
    path = shared("pi-sessions/before-compaction.jsonl")
    report = imported(tmp_path, path)
    (run,) = report.runs
    assert (run.inferences, run.tool_calls, run.unanswered) == (484, 454, 6)
    assert run.charges == {"USD": "42.595907499999999555"}
    assert (run.errors, report.unknown, report.complete) == ([], [], True)
    steps, costs = rows(tmp_path, StepRow), rows(tmp_path, CostRow)
    codes = Counter(step.error_code for step in steps if step.type == "llm")
    assert (codes["aborted"], codes["provider_error"]) == (18, 1)
    assert len(costs) == 484
    assert sum(Decimal(cost.amount) for cost in costs) == Decimal("42.595907499999999555")
    assert len({cost.source_ref for cost in costs}) == 484
    assert len(rows(tmp_path, ArtifactRow)) == 16
    assert Counter(call.status for call in rows(tmp_path, ToolCallRow)) == {
        "succeeded": 436,
        "failed": 12,
        "in_doubt": 6,
    }
    before = heads_of(tmp_path)
    again = imported(tmp_path, path).runs[0]
    assert heads_of(tmp_path) == before
    assert (again.created, again.added) == (False, 0)
    assert (again.events, again.inferences, again.unanswered, again.charges) == (
        run.events,
        run.inferences,
        run.unanswered,
        run.charges,
    )
    check_all(tmp_path / "ledger.db")


def test_progress_tells_bytes_and_events_and_ends_at_the_whole(tmp_path: Path) -> None:
    records: list[dict[str, Any]] = [HEADER]
    records += [user(each, "again") if each % 2 else answer(each, text("yes")) for each in range(1000)]
    path = write(tmp_path / "s.jsonl", records)
    seen: list[Any] = []

    async def run() -> None:
        async with await open_ledger(tmp_path / "ledger.db") as ledger:
            await import_paths(ledger.scope("t/w"), "pi", [path], seen.append)

    asyncio.run(run())
    assert len(seen) > 2
    assert [each.done for each in seen] == sorted(each.done for each in seen)
    assert [each.events for each in seen] == sorted(each.events for each in seen)
    assert (seen[-1].done, seen[-1].total) == (path.stat().st_size, path.stat().st_size)
