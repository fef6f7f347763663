"""Chat runs: messages as OpenAI's chat API has them, with tool calls - tau-bench's results among them.

A file is an array of runs, one run, a list of messages, or any of these a line. A run is an object with its messages
under `traj` or `messages`, or a list of messages.

What it becomes
---------------
everything but the messages   run.created, run.started, and run.paused (imported) unless the run marks its end
message system, user          signal.received
message assistant             inference.requested, inference.completed, a tool.dispatched a call, and cost.recorded
                              where the message has usage
message tool                  tool.answered; above 8,192 bytes artifact.stored before it
reward                        the end: run.succeeded, and feedback.added in the annex, with the score's own digits

Which run it is: its `id` where it has one. Else everything but messages and reward, with the messages up to the first
of a user; runs of one file that are alike in all this are told apart by their order. There are no times in such
files.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from refold.events import values
from refold.events.catalog import SourceRecord
from refold.events.catalog.governance import FeedbackAdded
from refold.events.catalog.run import RunSucceeded
from refold.events.identity import Stream, keyed_digest
from refold.gateway.usage import openai_usage
from refold.interop.importers import amounts
from refold.interop.importers.reading import Malformed, parse, parse_exact, unrecordable
from refold.interop.importers.recorder import UNKNOWN, Source
from refold.interop.importers.report import Report, RunReport
from refold.interop.importers.session import Answer, Call, Result, Session
from refold.interop.importers.splitting import Element, elements
from refold.interop.importers.texts import message_text, only_text
from refold.ledger.drafts import Draft
from refold.ledger.ledger import ScopedLedger

NOT_TOLD = (
    "when anything happened",
    "which model answered, unless the run names it, and what it used and cost",
    "whether a tool call without a result had its effect: it is in doubt, observed",
    "whether a tool's result was an error",
)
_MESSAGES = ("traj", "messages")
_ENDS = ("reward",)
_LONGEST_LEAD = 100
"""Messages before the first of a user that are waited for."""


async def import_file(
    scope: ScopedLedger, path: Path, report: Report, on_commit: Callable[[int, int], Awaitable[None]]
) -> None:
    """Brings the runs of one file into the ledger. Raises ImportConflict; what cannot be read is in the report."""
    file = _File(scope, path, report, on_commit)
    try:
        for element in elements(path):
            with unrecordable(element.line):
                await file.take(element)
    except Malformed as problem:
        await file.broken(problem)
    except BaseException:
        await file.abandon()
        raise
    else:
        await file.end()


class _File:
    def __init__(
        self, scope: ScopedLedger, path: Path, report: Report, on_commit: Callable[[int, int], Awaitable[None]]
    ) -> None:
        self._scope, self._path, self._report, self._on_commit = scope, path, report, on_commit
        self._alike: Counter[bytes] = Counter()
        self._runs = 0
        self._added = 0
        self._end = 0
        self._array = 0
        self._open: _Run | None = None
        """The run whose messages are elements of their own: a bare list, or one message a line."""

    async def take(self, element: Element) -> None:
        self._end = element.end
        value = parse(element.data, line=element.line)
        if isinstance(value, dict) and "role" in value and not any(name in value for name in _MESSAGES):
            await self._message(element, value)
            return
        await self._close()
        if isinstance(value, list):
            header: dict[str, Any] = {}
            messages: Any = value
        elif isinstance(value, dict) and (name := next((each for each in _MESSAGES if each in value), None)):
            messages = value[name]
            exact = parse_exact(element.data, line=element.line)
            header = {key: each for key, each in exact.items() if key != name}
        else:
            raise Malformed(element.line, f"What begins at line {element.line} is neither a run nor a message.")
        if not isinstance(messages, list):
            raise Malformed(element.line, f"The run that begins at line {element.line} has no list of messages.")
        run = self._new(element.line, header)
        for message in messages:
            await run.add(message, element.line)
        await self._close()

    async def _message(self, element: Element, message: dict[str, Any]) -> None:
        if self._open is None or element.array != self._array:
            await self._close()
            self._new(element.line, {})
        self._array = element.array
        assert self._open is not None
        await self._open.add(message, element.line)

    def _new(self, line: int, header: dict[str, Any]) -> _Run:
        self._runs += 1
        report = RunReport(None, str(self._path))
        self._report.runs.append(report)
        self._open = _Run(self._scope, report, self._report, header, line, self._alike, self._committed)
        return self._open

    async def _committed(self, events: int) -> None:
        await self._on_commit(self._end, self._added + events)

    async def _close(self) -> None:
        run, self._open = self._open, None
        if run is not None:
            await run.end()
            self._added += run.report.added

    async def end(self) -> None:
        await self._close()
        if not self._runs:
            await self.broken(Malformed(1, "The file holds no run."))

    async def broken(self, problem: Malformed) -> None:
        """Notes where the file cannot be read on: at the run under way, or at one that never began."""
        report = self._open.report if self._open is not None else RunReport(None, str(self._path))
        if self._open is None:
            self._report.runs.append(report)
            self._runs += 1
        number = self._runs
        run, self._open = self._open, None
        if run is not None:
            await run.stop()
            self._added += run.report.added
        report.errors = [*report.errors, problem.as_problem(number)]

    async def abandon(self) -> None:
        if self._open is not None:
            await self._open.abandon()


class _Run:
    """One run. Nothing is written before it is known which one it is: up to the first message of a user."""

    def __init__(
        self,
        scope: ScopedLedger,
        report: RunReport,
        whole: Report,
        header: dict[str, Any],
        line: int,
        alike: Counter[bytes],
        on_commit: Callable[[int], Awaitable[None]],
    ) -> None:
        self.report = report
        self._scope, self._whole, self._alike, self._line = scope, whole, alike, line
        self._reward = next((header[name] for name in _ENDS if header.get(name) is not None), None)
        self._header = {name: value for name, value in header.items() if name not in _ENDS}
        self._session = Session(scope, report, on_commit)
        self._lead: list[tuple[Any, int]] | None = []
        self._records = 0

    async def add(self, message: Any, line: int) -> None:
        if self._lead is None:
            await self._write(message, line)
            return
        self._lead.append((message, line))
        if len(self._lead) >= _LONGEST_LEAD or (isinstance(message, dict) and message.get("role") == "user"):
            await self._begin()

    async def stop(self) -> None:
        """Keeps what came before a place that cannot be read. A run of which too little is there to know it by is
        not begun.
        """
        if self._lead is None:
            await self._session.end()

    async def _begin(self) -> None:
        lead, self._lead = self._lead or [], None
        header = values.encode(self._header)
        identity = self._header.get("id")
        if isinstance(identity, str | int):
            known = values.encode(identity)
        else:
            known = values.canonical(b"[%b,%b]" % (header, values.encode([message for message, _ in lead])))
        digest = keyed_digest(self._scope.secret, "import chat", known)
        self._alike[digest] += 1
        again = self._alike[digest]
        key = f"import/chat/{digest.hex()}" + (f"/{again}" if again > 1 else "")
        source = self._source(values.canonical(header), self._line)
        await self._session.begin(key, source, "chat", self._header, at=None, ended=self._reward is not None)
        for message, line in lead:
            await self._write(message, line)

    def _source(self, data: bytes, line: int) -> Source:
        self._records += 1
        return Source(self._records, line, len(data), self._session.digest(data))

    async def _write(self, message: Any, line: int) -> None:
        session = self._session
        encoded = values.encode(message)
        source = self._source(values.canonical(encoded), line)
        text = message_text(message) if isinstance(message, dict) else ""
        if await session.known(source) is not None:
            session.last_text = text
            return
        role = message.get("role") if isinstance(message, dict) else None
        if role in ("system", "developer", "user"):
            signal = "user_message" if role == "user" else "system_message"
            await session.told(source, signal, message, text, None)
        elif role == "assistant":
            model = self._header.get("model")
            await session.answered(source, _answer(message, model if isinstance(model, str) else UNKNOWN))
        elif role == "tool":
            identity = message.get("tool_call_id")
            result = Result(
                provider_id=identity if isinstance(identity, str) else "",
                message=message,
                text=only_text(message.get("content")),
            )
            if not await session.returned(source, result):
                self._whole.saw_unknown(self.report.source, "result without a call", str(message.get("name")))
        else:
            self._whole.saw_unknown(self.report.source, "message role", str(role))
            await session.noted(source, "message", "other", message, text, None)

    async def end(self) -> None:
        if self._lead is not None:
            await self._begin()
        if self._reward is not None:
            output = {"reward": self._reward}
            source = self._source(values.canonical(values.encode(output)), self._line)
            if await self._session.known(source) is None:
                await self._session.closed(source, RunSucceeded(), {"output": output}, output)
            await self._session.end()
            await self._rate(source)
        else:
            await self._session.end()

    async def _rate(self, source: Source) -> None:
        """Puts the score into the annex, once: after the close, because nothing follows it in the run's own stream."""
        annex = Stream.annex(str(self.report.run_id))
        mark = SourceRecord(source.number, source.digest)
        async for event in self._scope.read(annex):
            if event.facts.record == mark:
                return
        facts = FeedbackAdded(self._scope.ledger.ids.new("fb"), "evaluator", amounts.amount(self._reward), record=mark)
        async with await self._scope.writer(annex) as writer:
            writer.append(Draft(facts, content={"details": {"reward": self._reward}}))

    async def abandon(self) -> None:
        await self._session.abandon()


def _answer(message: dict[str, Any], model: str) -> Answer:
    asked = message.get("tool_calls")
    calls = [_call(each) for each in asked if isinstance(each, dict)] if isinstance(asked, list) else []
    usage = message.get("usage")
    counted = openai_usage(usage) if isinstance(usage, dict) else None
    own = message.get("model")
    text = message_text(message)
    return Answer(
        message=message,
        text="\n".join([*([text] if text else []), *(f"→ {call.tool}" for call in calls)]),
        model=own if isinstance(own, str) else model,
        finish="tool_use" if calls else "stop",
        usage=counted,
        cost=None if counted is None else (None, None),
        calls=calls,
    )


def _call(call: dict[str, Any]) -> Call:
    function, identity = call.get("function"), call.get("id")
    name = function.get("name") if isinstance(function, dict) else None
    arguments = function.get("arguments") if isinstance(function, dict) else None
    if isinstance(arguments, str):
        # A model may write anything here; what it wrote is kept.
        with suppress(msgspec.MsgspecError, RecursionError, UnicodeError):
            arguments = msgspec.json.decode(arguments)
    return Call(
        identity if isinstance(identity, str) else "", name if isinstance(name, str) and name else UNKNOWN, arguments
    )
