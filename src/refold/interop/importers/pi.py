"""pi sessions: JSON lines, first the session's header, then messages, compactions and changes of model.

What a line becomes
-------------------
session                 run.created, run.started, run.paused (imported: pi marks no end, sessions grow)
message user            signal.received user_message
message assistant       inference.requested, inference.completed or .failed, cost.recorded, a tool.dispatched a call
message toolResult      tool.answered or .failed; above 8,192 bytes artifact.stored before it
message bashExecution   step.completed (io): what the person ran; the model saw it
compaction              context.compressed: the conversation is then the summary and what was kept
anything else           step.completed (other), kept whole; listed as unknown unless it is a change of model or thinking

Times: a message's own timestamp is when it was begun, the line's when it was written. So an inference is asked at the
first and ended at the second; everything else happened at the line's.
"""

from __future__ import annotations

from array import array
from collections.abc import Awaitable, Callable
from hashlib import blake2b
from pathlib import Path
from typing import Any, Literal

import msgspec

from refold.events.catalog.inference import Finish
from refold.interop.importers import amounts
from refold.interop.importers.reading import (
    Line,
    Malformed,
    dump_exact,
    iso_time,
    lines,
    millis_time,
    parse,
    parse_exact,
    unrecordable,
)
from refold.interop.importers.recorder import UNKNOWN, Source
from refold.interop.importers.report import Report, RunReport
from refold.interop.importers.session import Answer, Call, Result, Session
from refold.interop.importers.texts import message_text, only_text
from refold.ledger.ledger import ScopedLedger

NOT_TOLD = (
    "whether a tool call without a result had its effect: it is in doubt, observed",
    "when a tool call was sent: it has the time of the answer that asked for it",
    "the system prompt and the tools that the model was offered",
)
_FINISH: dict[str, Finish] = {"stop": "stop", "toolUse": "tool_use", "length": "length"}
_FAILED: dict[str, Literal["aborted", "provider_error"]] = {"aborted": "aborted", "error": "provider_error"}
_PLAIN_RECORDS = ("model_change", "thinking_level_change")


async def import_file(
    scope: ScopedLedger, path: Path, report: Report, on_commit: Callable[[int, int], Awaitable[None]]
) -> None:
    """Brings one session into the ledger. Raises ImportConflict; what cannot be read is in the report."""
    run = RunReport(None, str(path))
    report.runs.append(run)
    end = 0

    async def committed(events: int) -> None:
        await on_commit(end, events)

    session = Session(scope, run, committed)
    reader = _Reader(session, report)
    try:
        for line in lines(path):
            end = line.end
            with unrecordable(line.number):
                await reader.take(line)
    except Malformed as problem:
        run.errors.append(problem.as_problem())
    except BaseException:
        await session.abandon()
        raise
    await session.end()
    if not run.errors and run.run_id is None:
        run.errors.append(Malformed(1, "The file is empty.").as_problem())


class _Reader:
    """Turns lines into calls of the session's recorder."""

    def __init__(self, session: Session, report: Report) -> None:
        self._session = session
        self._report = report
        self._ids = array("Q")
        """A number for each record's own id, where records have ids: eight bytes a record instead of a text."""
        self._has_ids = False
        self._last: Line | None = None

    async def take(self, line: Line) -> None:
        session = self._session
        source = Source(line.record, line.number, len(line.data), session.digest(line.data))
        if line.record == 1:
            await self._header(line, source)
            return
        mark = await session.known(source)
        if mark is not None:
            if self._has_ids:
                self._note_id(parse(line.data, line=line.number))
            if mark.type == "context.compressed":
                session.kept_from(self._first_kept(parse(line.data, line=line.number)))
            if mark.record.part is not None:
                self._last = line
            return
        if self._last is not None:
            session.last_text = _text_of(parse(self._last.data, line=self._last.number))
            self._last = None
        record = parse(line.data, line=line.number)
        if not isinstance(record, dict):
            raise Malformed(line.number, f"Line {line.number} is not a JSON object.")
        if self._has_ids:
            self._note_id(record)
        await self._record(record, line, source)

    async def _header(self, line: Line, source: Source) -> None:
        header = parse(line.data, line=line.number)
        if not isinstance(header, dict) or header.get("type") != "session" or not isinstance(header.get("id"), str):
            raise Malformed(
                line.number, f"Line {line.number} is not the header of a pi session (type session, with an id)."
            )
        self._has_ids = "version" in header
        if self._has_ids:
            self._note_id({})
        key = f"import/pi/{header['id']}"
        at = iso_time(header.get("timestamp"))
        await self._session.begin(key, source, "pi session", header, at=at, ended=False)

    async def _record(self, record: dict[str, Any], line: Line, source: Source) -> None:
        session, at, kind = self._session, iso_time(record.get("timestamp")), record.get("type")
        message = record.get("message")
        if kind == "message" and isinstance(message, dict):
            await self._message(record, message, line, source, at)
        elif kind == "compaction" and isinstance(record.get("summary"), str):
            rest = {name: value for name, value in record.items() if name != "summary"}
            tokens = record.get("tokensBefore")
            before = tokens if type(tokens) is int and 0 <= tokens < 2**53 else None
            await session.compressed(source, record["summary"], self._first_kept(record), before, rest, at)
        elif kind in _PLAIN_RECORDS:
            await session.kept(source, str(kind), record, at)
        else:
            name = kind if isinstance(kind, str) else UNKNOWN
            self._report.saw_unknown(session.report.source, "record type", name)
            await session.kept(source, name, record, at, made_up=True)

    async def _message(
        self, record: dict[str, Any], message: dict[str, Any], line: Line, source: Source, at: int | None
    ) -> None:
        session, role = self._session, message.get("role")
        entry = {name: value for name, value in record.items() if name not in ("type", "timestamp", "message")}
        if role == "user":
            await session.told(source, "user_message", message, message_text(message), at, entry)
        elif role == "assistant":
            await session.answered(source, _answer(message, line, at, entry))
        elif role == "toolResult":
            result = Result(
                provider_id=_text(message.get("toolCallId")),
                message=message,
                text=only_text(message.get("content")),
                failed=message.get("isError") is True,
                at=at,
                entry=entry,
            )
            if not await session.returned(source, result):
                self._report.saw_unknown(session.report.source, "result without a call", _text(message.get("toolName")))
        elif role == "bashExecution":
            await session.noted(source, "bash", "io", message, _bash_text(message), at, entry)
        else:
            self._report.saw_unknown(session.report.source, "message role", role if isinstance(role, str) else UNKNOWN)
            await session.noted(source, "message", "other", message, message_text(message), at, entry)

    # Where a compaction's kept messages begin

    def _first_kept(self, record: dict[str, Any]) -> int:
        """The number of the first record that was kept; beyond all records when the file does not say."""
        index = record.get("firstKeptEntryIndex")
        if type(index) is int and index >= 0:
            return index + 1  # pi counts its records from 0, the header included.
        wanted = record.get("firstKeptEntryId")
        if isinstance(wanted, str):
            try:
                return self._ids.index(_number(wanted)) + 1
            except ValueError:
                pass
        return 2**40

    def _note_id(self, record: Any) -> None:
        identity = record.get("id") if isinstance(record, dict) else None
        self._ids.append(_number(identity) if isinstance(identity, str) else 0)


def _answer(message: dict[str, Any], line: Line, at: int | None, entry: dict[str, Any]) -> Answer:
    usage, raw, cost = None, None, None
    if isinstance(message.get("usage"), dict):
        # Read again for the digits; the message itself is kept without them, so that its numbers are what the model's
        # API gave.
        raw = usage_text(line)
        exact = parse_exact(raw.encode(), line=line.number) or {}
        usage = amounts.pi_usage(exact)
        prices = exact.get("cost")
        cost = amounts.amount(prices.get("total")) if isinstance(prices, dict) else None
        message = {name: value for name, value in message.items() if name != "usage"}
    blocks = message.get("content")
    calls = [
        Call(_text(block.get("id")), _text(block.get("name")) or UNKNOWN, block.get("arguments"), scanned=True)
        for block in (blocks if isinstance(blocks, list) else ())
        if isinstance(block, dict) and block.get("type") == "toolCall"
    ]
    stop, error = message.get("stopReason"), message.get("errorMessage")
    return Answer(
        message=message,
        text=message_text(message),
        model=_text(message.get("model")) or UNKNOWN,
        provider=_text(message.get("provider")) or UNKNOWN,
        finish=_FINISH.get(_text(stop), "other"),
        error_code=_FAILED.get(_text(stop)),
        error=error if isinstance(error, str) else None,
        usage=usage,
        raw_usage=raw,
        cost=(None if cost is None else "USD", cost),
        calls=calls,
        asked_at=millis_time(message.get("timestamp")),
        ended_at=at,
        entry=entry,
    )


class _Message(msgspec.Struct):
    usage: msgspec.Raw


class _Line(msgspec.Struct):
    message: _Message


_USAGE = msgspec.json.Decoder(_Line)


def usage_text(line: Line) -> str:
    """The JSON text of an answer's usage, with the digits of the file."""
    try:
        return bytes(_USAGE.decode(line.data).message.usage).decode()
    except (msgspec.MsgspecError, UnicodeError):
        return dump_exact(parse_exact(line.data, line=line.number)["message"]["usage"])


def _text_of(record: Any) -> str:
    """The text of a record that is part of the conversation, as the recorder remembered it."""
    if isinstance(record.get("summary"), str):
        return str(record["summary"])
    message = record["message"]
    if message.get("role") == "toolResult":
        return only_text(message.get("content")) or ""
    if message.get("role") == "bashExecution":
        return _bash_text(message)
    return message_text(message)


def _bash_text(message: dict[str, Any]) -> str:
    return f"$ {_text(message.get('command'))}\n{_text(message.get('output'))}"


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _number(identity: str) -> int:
    # Its own hash and not Python's, which differs from process to process for texts.
    return int.from_bytes(blake2b(identity.encode("utf-8", "surrogatepass"), digest_size=8).digest()) or 1
