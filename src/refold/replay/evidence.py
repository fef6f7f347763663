"""Replay kind 1: everything that was recorded about a run, as one bundle, from one consistent read at one
head.

The bundle is written piece by piece: tables row by row, events page by page, so that a run of any length
takes the memory of a page. Nothing is executed, and nothing is left out or capped. Two readings at the same
heads give the same bytes.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any, Protocol, TypeVar

import msgspec

from refold.errors import RefoldError
from refold.events.identity import Stream
from refold.ledger.ledger import ScopedLedger
from refold.ledger.lookups import run_head
from refold.ledger.port import Reader, StreamHead
from refold.projections import Row
from refold.projections.rows import (
    ApprovalRow,
    ArtifactRow,
    AuditRow,
    CostRow,
    DecisionRow,
    FeedbackRow,
    IntentRow,
    RunRow,
    StepRow,
    ToolCallRow,
)
from refold.replay.items import evidence_items
from refold.replay.kinds import EVIDENCE
from refold.replay.money import Charges, entry_json
from refold.replay.present import content_json, events_json, part_json, row_json, to_json, whole_summary

EVENTS_AT_ONCE = 64
"""Events, or parts, of a page: contents of many kilobytes are usual, so that pages are small."""
FORMAT = 1

R = TypeVar("R", bound=Row)
Elements = AsyncIterator[Any]


class Sink(Protocol):
    """Where a bundle goes: a file opened for bytes, or anything that takes them."""

    def write(self, data: bytes, /) -> Any: ...


async def evidence(scope: ScopedLedger, run_id: str) -> dict[str, Any]:
    """The bundle as one dict: run, steps, artifacts, costs, approvals, feedback, trace_spec, and tool_calls,
    intents, events, parts, annex, audit, children, evidence_items, head_seq, head_hash, annex_head. For runs that
    fit in memory. Raises RunNotFound.
    """
    pieces = [piece async for piece in evidence_pieces(scope, run_id)]
    bundle: dict[str, Any] = msgspec.json.decode(b"".join(pieces))
    return bundle


async def write_evidence(scope: ScopedLedger, run_id: str, out: Sink) -> None:
    """Writes the bundle as JSON to `out` in the memory of one page. Raises RunNotFound before the first
    byte.
    """
    async for piece in evidence_pieces(scope, run_id):
        out.write(piece)


async def evidence_pieces(scope: ScopedLedger, run_id: str) -> AsyncIterator[bytes]:
    """The bundle's JSON in pieces, keys in a fixed order, one element of a list a line."""
    async with scope.reader() as reader:
        stream, annex = Stream.run(run_id), Stream.annex(run_id)
        head = await run_head(reader, run_id)
        of_run = {"run_id": run_id}
        rows = await reader.rows(RunRow, of_run)
        yield b'{"replay":' + to_json(EVIDENCE.answer())
        yield b',\n"format":' + to_json(FORMAT)
        yield b',\n"run":' + to_json(await _run(reader, stream, rows[0]) if rows else None)
        sections: tuple[tuple[bytes, Elements], ...] = (
            (b"steps", _rows(reader, StepRow, of_run)),
            (b"artifacts", _rows(reader, ArtifactRow, of_run)),
            (b"costs", _rows(reader, CostRow, of_run)),
            (b"approvals", _approvals(reader, of_run)),
            (b"feedback", _feedback(reader, run_id)),
        )
        for name, elements in sections:
            async for piece in _list(name, elements):
                yield piece
        async for piece in _trace_spec(reader, rows[0] if rows else None, run_id):
            yield piece
        sections = (
            (b"tool_calls", _rows(reader, ToolCallRow, of_run)),
            (b"intents", _intents(reader, run_id)),
            (b"events", _events(reader, stream)),
            (b"parts", _parts(reader, stream)),
            (b"annex", _events(reader, annex)),
            (b"audit", _audit(reader, stream, annex)),
            (b"children", _children(reader, run_id)),
            (b"evidence_items", _items(scope, reader, run_id)),
        )
        for name, elements in sections:
            async for piece in _list(name, elements):
                yield piece
        annex_head = await reader.head(annex)
        yield b',\n"head_seq":%d,\n"head_hash":"%b"' % (head.head.seq, head.head.hash.hex().encode())
        yield b',\n"annex_head":' + to_json(None if annex_head is None else _head_json(annex_head)) + b"}\n"


def _head_json(head: StreamHead) -> dict[str, Any]:
    return {"seq": head.head.seq, "hash": head.head.hash.hex()}


async def _list(name: bytes, elements: Elements) -> AsyncIterator[bytes]:
    yield b',\n"%b":[' % name
    separator = b"\n"
    async for element in elements:
        yield separator + to_json(element)
        separator = b",\n"
    yield b"]"


async def _run(reader: Reader, stream: Stream, row: RunRow) -> dict[str, Any]:
    """The run's row, its summaries as long as an API shows them where the stored ones were cut."""
    shown = row_json(row)
    for field, seq in (("input", row.input_seq), ("output", row.output_seq)):
        if seq is None:
            continue
        try:
            found = await reader.events(stream, seq - 1, seq)
        except RefoldError:
            continue  # What cannot be read is shown among the events.
        if found:
            name = f"{field}_summary"
            shown[name] = whole_summary(shown[name], field, content_json(found[0]))
    return shown


async def _rows(
    reader: Reader, table: type[R], where: dict[str, Any], shown: Callable[[R], dict[str, Any]] = row_json
) -> Elements:
    async for row in reader.each(table, where, ("seq",)):
        yield shown(row)


async def _approvals(reader: Reader, of_run: dict[str, Any]) -> Elements:
    async for row in reader.each(ApprovalRow, of_run, ("seq",)):
        decisions = await reader.rows(DecisionRow, {"approval_id": row.approval_id})
        yield {**row_json(row), "decision": row_json(decisions[0]) if decisions else None}


async def _feedback(reader: Reader, run_id: str) -> Elements:
    for stream in ("run", "annex"):
        async for row in reader.each(FeedbackRow, {"run_id": run_id, "stream": stream}, ("seq",)):
            yield row_json(row)


async def _parts(reader: Reader, stream: Stream) -> Elements:
    """The numbered parts that part lists in the events point to: messages and results, redacted where a secret was
    found.
    """
    after = 0
    while page := await reader.blobs(stream, after, EVENTS_AT_ONCE):
        for blob in page:
            if blob.lookup is not None:
                yield part_json(blob)
        after = page[-1].number


async def _intents(reader: Reader, run_id: str) -> Elements:
    """The intents that the run's calls point to, in the order of the calls, each once."""
    seen: set[str] = set()
    async for call in reader.each(ToolCallRow, {"run_id": run_id}, ("seq",)):
        if call.intent_id is not None and call.intent_id not in seen:
            seen.add(call.intent_id)
            for row in await reader.rows(IntentRow, {"intent_id": call.intent_id}):
                yield row_json(row)


async def _events(reader: Reader, stream: Stream) -> Elements:
    after = 0
    while True:
        try:
            page = await reader.events(stream, after, limit=EVENTS_AT_ONCE)
        except RefoldError:
            # One of them cannot be read: each by itself, so that it is shown where it stands.
            for seq in range(after + 1, after + EVENTS_AT_ONCE + 1):
                if (shown := await _event(reader, stream, seq)) is not None:
                    yield shown
            after += EVENTS_AT_ONCE
            continue
        if not page:
            return
        for event in await events_json(reader, stream, page):
            yield event
        after = page[-1].seq


async def _event(reader: Reader, stream: Stream, seq: int) -> dict[str, Any] | None:
    """One event, with the reason in place of its data where it cannot be read; None where there is none."""
    try:
        shown = await events_json(reader, stream, await reader.events(stream, seq - 1, seq))
    except RefoldError as error:
        return {"id": stream.event_id(seq), "seq": seq, "unreadable": error.as_dict()}
    return shown[0] if shown else None


async def _audit(reader: Reader, *streams: Stream) -> Elements:
    for stream in streams:
        async for row in reader.each(AuditRow, {"stream": str(stream)}, ("seq",)):
            yield row_json(row)


async def _children(reader: Reader, run_id: str) -> Elements:
    async for row in reader.each(RunRow, {"parent_run_id": run_id}, ("run_id",)):
        head = await reader.head(Stream.run(row.run_id))
        yield {
            "run_id": row.run_id,
            "workflow": row.workflow,
            "status": row.status,
            "reason": row.reason,
            "head_seq": None if head is None else head.head.seq,
            "head_hash": None if head is None else head.head.hash.hex(),
        }


async def _items(scope: ScopedLedger, reader: Reader, run_id: str) -> Elements:
    for item in await evidence_items(reader, run_id, scope.ledger.files):
        yield item


async def _trace_spec(reader: Reader, run: RunRow | None, run_id: str) -> AsyncIterator[bytes]:
    """The run flattened for a tracing backend, with its sums: rows are read once more instead of being
    kept.
    """
    of_run = {"run_id": run_id}
    charges = Charges()

    def counted(row: CostRow) -> dict[str, Any]:
        charges.add(row)
        return entry_json(row)

    yield b',\n"trace_spec":{"run":' + to_json(None if run is None else _trace_run(run))
    for name, elements in (
        (b"steps", _rows(reader, StepRow, of_run, _trace_step)),
        (b"artifacts", _rows(reader, ArtifactRow, of_run, _trace_artifact)),
        (b"entries", _rows(reader, CostRow, of_run, counted)),
    ):
        async for piece in _list(name, elements):
            yield piece
    yield b',\n"usage_summary":' + to_json(charges.usage)
    yield b',\n"charge_summary":' + to_json(charges.charge_summary())
    yield b',\n"unpriced_count":%d}' % charges.unpriced


_TRACE_RUN = (
    "run_id",
    "trace_id",
    "parent_run_id",
    "workflow",
    "status",
    "started_at",
    "ended_at",
    "duration_ms",
    "error_code",
)
_TRACE_STEP = (
    "step_id",
    "run_id",
    "type",
    "node",
    "status",
    "started_at",
    "ended_at",
    "duration_ms",
    "error_code",
    "error_message",
)
_TRACE_ARTIFACT = (
    "artifact_id",
    "step_id",
    "tool_call_id",
    "kind",
    "type",
    "mime",
    "size_bytes",
    "sha256",
    "storage_key",
)


def _some(row: Row, names: tuple[str, ...]) -> dict[str, Any]:
    shown = row_json(row)
    return {name: shown[name] for name in names}


def _trace_run(row: RunRow) -> dict[str, Any]:
    return _some(row, _TRACE_RUN)


def _trace_step(row: StepRow) -> dict[str, Any]:
    return _some(row, _TRACE_STEP)


def _trace_artifact(row: ArtifactRow) -> dict[str, Any]:
    return _some(row, _TRACE_ARTIFACT)
