"""What all formats share: the recorder that turns messages, answers, calls and results of a source into events of a
run.

A record of the source (a line, a message) becomes a fixed list of events, appended in one go and so committed
together; the last of them carries the record's mark. An import that was interrupted goes on behind the last mark, and
one that is repeated compares marks and writes nothing.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple

import msgspec

from refold.events import values
from refold.events.catalog import Facts, SourceRecord
from refold.events.catalog.inference import (
    CostRecorded,
    Finish,
    InferenceCompleted,
    InferenceFailed,
    InferenceRequested,
    Usage,
)
from refold.events.catalog.run import RunCreated, RunPaused, RunStarted
from refold.events.catalog.steps import ContextCompressed, SignalReceived, StepCompleted, StepType
from refold.events.catalog.tool import Claim, ToolAnswered, ToolDispatched, ToolFailed
from refold.events.content import decode_content
from refold.events.identity import Stream, keyed_digest
from refold.interop.importers.conversation import Conversation, OpenCall, OpenCalls, only
from refold.interop.importers.recorded import Mark, Recorded
from refold.interop.importers.report import ImportConflict, RunReport, Tally
from refold.ledger.artifacts import INLINE, artifact_draft
from refold.ledger.drafts import Draft
from refold.ledger.ledger import Existing, ScopedLedger
from refold.ledger.writer import Part

BATCH_EVENTS = 600
BATCH_BYTES = 2 * 1024 * 1024
"""What is written between two commits; it bounds what an import holds in memory."""
UNKNOWN = "unknown"


class Source(NamedTuple):
    """A record of a source: its number (from 1), the line where it stands, its size and its keyed digest."""

    number: int
    line: int
    size: int
    digest: str


class Call(NamedTuple):
    """A tool call in a model's answer."""

    provider_id: str
    tool: str
    arguments: Any


class Answer(msgspec.Struct, kw_only=True):
    """A model's answer: the request is the conversation before it. `error_code` None: it counts.

    `usage` is normalised, `raw_usage` the provider's. `cost` is (currency, amount), both None when it has no price;
    None: the source knows no costs. Times are microseconds.
    """

    message: Any
    text: str
    model: str = UNKNOWN
    provider: str = UNKNOWN
    finish: Finish = "other"
    error_code: str | None = None
    error: str | None = None
    usage: Usage | None = None
    raw_usage: Any = None
    cost: tuple[str | None, str | None] | None = None
    calls: Sequence[Call] = ()
    asked_at: int | None = None
    ended_at: int | None = None
    entry: dict[str, Any] | None = None


class Result(msgspec.Struct, kw_only=True):
    """A tool's result. `text` is its only text, None when it has another form, which is then kept as JSON."""

    provider_id: str
    message: dict[str, Any]
    text: str | None
    failed: bool = False
    at: int | None = None
    entry: dict[str, Any] | None = None


class Session:
    """One run of a source on its way into the ledger. `on_commit` is awaited after each durable batch."""

    def __init__(self, scope: ScopedLedger, report: RunReport, on_commit: Callable[[int], Awaitable[None]]) -> None:
        self._scope = scope
        self.report = report
        self._on_commit = on_commit
        self._new = scope.ledger.ids.new
        self._recorded: Recorded | None = None
        self._writer_: Any = None
        self._tally = Tally()
        self._conversation = Conversation()
        self._calls = OpenCalls()
        self._summary: tuple[int | None, int] = (None, 1)
        self._drafts: list[Draft] = []
        self._events = 0
        self._bytes = 0
        self.last_text = ""
        """The text of the last message, which a request's summary shows."""

    def digest(self, data: bytes) -> str:
        """The keyed digest that stands for a record."""
        return keyed_digest(self._scope.secret, "import record", data).hex()[:16]

    async def begin(self, key: str, source: Source, workflow: str, header: Any, *, at: int | None, ended: bool) -> None:
        """Opens the run that has this key, or creates it. `ended`: the source marks the run's end later on."""
        run_id = self._new("run")
        created = Draft(
            RunCreated(workflow, run_id, run_id, origin="imported", subject_kind="session"),
            content={"input": header},
            input=header,
            occurred_at=at,
        )
        then = [Draft(RunStarted(), occurred_at=at)]
        if not ended:
            # At once and not at the end: what a growing session gains later then changes nothing before it.
            then.append(Draft(RunPaused("imported"), occurred_at=at))
        made = await self._scope.create(created, run_id, key)
        if isinstance(made, Existing):
            self.report.run_id = made.run_id
            self._recorded = recorded = Recorded(self._scope, Stream.run(made.run_id))
            if await self.known(source) is not None:
                return
            then = then[max(0, recorded.tally.events - 1) :]
        else:
            self.report.run_id = run_id
            self.report.created = True
            self._writer_ = made
            self._tally.count(created.facts)
            self.report.added += 1
        self._drafts = then
        await self.commit(source)

    # Comparing with what is there

    async def known(self, source: Source) -> Mark | None:
        """The mark of a record that the ledger has already; None for one that must be written now.

        Raises ImportConflict when the ledger has another record in its place.
        """
        if self._recorded is None:
            return None
        mark = await self._recorded.next()
        if mark is None and self._writer_ is None:
            self._writer_ = await self._scope.writer(Stream.run(str(self.report.run_id)))
            mark = await self._recorded.next()  # What another process wrote before this one had the stream.
        if mark is None:
            await self._restore()
            return None
        if (mark.record.number, mark.record.digest) != (source.number, source.digest):
            raise ImportConflict(
                f"Line {source.line} of {self.report.source} (record {source.number}) is not the record that run "
                f"{self.report.run_id} was imported from.",
                source=self.report.source,
                line=source.line,
                record=source.number,
                run_id=self.report.run_id,
            )
        compressed = mark.type == "context.compressed"
        self._conversation.note(source.number, mark.record.part, replaces=compressed)
        if compressed:
            self._summary = (mark.record.part, 1)
        return mark

    def kept_from(self, record: int) -> None:
        """Says from which record on messages were kept at the compaction that `known` has just found."""
        self._summary = (self._summary[0], record)

    async def _restore(self) -> None:
        """Takes up where the ledger stands: the conversation, and the calls that wait for results."""
        recorded, writer = self._recorded, self._writer_
        assert recorded is not None
        self._recorded = None
        self._tally = recorded.tally
        await self._conversation.rebuild(self._scope, writer, *self._summary)
        waiting = sorted(
            (call for call in writer.state.open.calls.values() if call.observed), key=lambda call: call.seq
        )
        async with self._scope.reader() as reader:
            for call in waiting:
                event = (await reader.events(writer.stream, call.seq - 1, call.seq, 1))[0]
                content = msgspec.json.decode(decode_content(event.stored.content or b"").values)
                provider_id = values.decode(msgspec.json.encode(content["provider_call_id"]))
                turn = event.stored.cause or 0
                self._calls.add(
                    provider_id, OpenCall(call.tool_call_id, call.intent_id or "", call.run_step_id, turn, call.seq)
                )

    # Writing

    @property
    def writer(self) -> Any:
        """The stream's writer, once there is something to write."""
        return self._writer_

    def _add(self, facts: Facts, at: int | None, content: dict[str, Any] | None = None, **about: Any) -> int:
        """Puts an event on the record's list and returns the seq that it will have."""
        self._drafts.append(Draft(facts, content=content, occurred_at=at, **about))
        return int(self._writer_.head.seq) + len(self._drafts)

    async def commit(self, source: Source, part: Part | None = None, *, replaces: bool = False) -> None:
        """Appends the record's events, the mark on the last, and makes a batch durable when it is large enough."""
        drafts, self._drafts = self._drafts, []
        number = None if part is None else part.number
        last = drafts[-1]
        last.facts = msgspec.structs.replace(last.facts, record=SourceRecord(source.number, source.digest, number))
        # No await in this loop: nothing is committed between a record's first event and its last.
        for draft in drafts:
            self._writer_.append(draft)
            self._tally.count(draft.facts)
        self._conversation.note(source.number, number, replaces=replaces)
        self.report.added += len(drafts)
        self._events += len(drafts)
        self._bytes += source.size
        if self._events >= BATCH_EVENTS or self._bytes >= BATCH_BYTES:
            await self.flush()

    async def flush(self) -> None:
        """Makes everything durable that was appended."""
        self._events = self._bytes = 0
        if self._writer_ is not None:
            await self._writer_.barrier()
            await self._on_commit(self.report.added)

    async def end(self) -> None:
        """Makes everything durable, lets the stream go, and fills the report."""
        if self._writer_ is not None:
            await self._writer_.close()
        if self._recorded is not None:
            await self._recorded.finish()
            self._tally = self._recorded.tally
        self.report.take(self._tally)

    async def abandon(self) -> None:
        """Lets the stream go after an error."""
        if self._writer_ is not None and self._writer_.alive:
            await self._writer_.close()

    # What records become

    def _named(self, text: str) -> str:
        return UNKNOWN if text == UNKNOWN else str(self._writer_.name(text))

    async def told(
        self, source: Source, signal: str, message: Any, text: str, at: int | None, entry: Any = None
    ) -> None:
        """A message to the model from outside."""
        part = await self._writer_.part(message)
        content = {"value": only(part), **_entry(entry)}
        self._add(SignalReceived(self._new("st"), signal), at, content, input=text)
        self._conversation.add(part)
        self.last_text = text
        await self.commit(source, part)

    async def answered(self, source: Source, answer: Answer) -> None:
        """A model's answer to the conversation so far: request, answer or failure, cost, and the calls that it asks
        for.
        """
        part = await self._writer_.part(answer.message)
        step = self._new("st")
        model, provider = self._named(answer.model), self._named(answer.provider)
        names: dict[str, Any] = {"name": answer.model, "provider": answer.provider}
        self._add(
            InferenceRequested(step, model, provider),
            answer.asked_at,
            {"messages": self._conversation.messages()},
            input=self.last_text or None,
            **names,
        )
        content = {"message": only(part), **_entry(answer.entry)}
        if answer.raw_usage is not None:
            content["usage"] = answer.raw_usage
        if answer.error_code is None:
            done: Facts = InferenceCompleted(step, answer.finish, usage=answer.usage)
            turn = self._add(done, answer.ended_at, content, output=answer.text or None)
        else:
            done = InferenceFailed(step, answer.error_code, usage=answer.usage)  # type: ignore[arg-type]
            if answer.error is not None:
                content["error"] = answer.error
            turn = self._add(done, answer.ended_at, content, output=answer.text or None, error=answer.error)
        if answer.cost is not None:
            currency, amount = answer.cost
            cost = CostRecorded(
                self._new("cost"),
                f"{step}#1",
                step,
                currency,
                amount,
                pricing=None if amount is None else "source",
                provider=provider,
                model=model,
                usage=answer.usage,
            )
            self._add(cost, answer.ended_at, **names)
        for ordinal, call in enumerate(answer.calls, self._tally.tool_calls + 1):
            self._dispatched(call, ordinal, turn, answer.ended_at)
        self._conversation.add(part)
        self.last_text = answer.text
        await self.commit(source, part)

    def _dispatched(self, call: Call, ordinal: int, turn: int, at: int | None) -> None:
        writer, run_id = self._writer_, str(self.report.run_id)
        arguments = values.canonical(values.encode(call.arguments))
        claim = Claim(
            step_id=self._new("st"),
            tool=writer.name(call.tool),
            key=writer.digest("import call", f"{run_id}/{ordinal}".encode()),
            fingerprint=writer.digest(
                "import fingerprint", call.tool.encode("utf-8", "surrogatepass") + b"\0" + arguments
            ),
            effect_domain=run_id,
            effect="unsafe",
        )
        facts = ToolDispatched(
            intent_id=self._new("int"), tool_call_id=self._new("tc"), revision=1, claim=claim, observed=True
        )
        seq = self._add(
            facts,
            at,
            {"arguments": call.arguments, "provider_call_id": call.provider_id},
            input=call.arguments,
            name=call.tool,
            ref=call.provider_id,
            cause=turn,
        )
        self._calls.add(call.provider_id, OpenCall(facts.tool_call_id, facts.intent_id, claim.step_id, turn, seq))

    async def returned(self, source: Source, result: Result) -> bool:
        """A tool's result. False when it answers no call: it is then kept as a step of its own."""
        writer = self._writer_
        call = self._calls.take(result.provider_id)
        if call is None or call.tool_call_id not in writer.state.open.calls:
            await self.noted(
                source, "orphan_result", "other", result.message, result.text or "", result.at, result.entry
            )
            return False
        kept = result.message.get("content")
        data = values.encode(kept) if result.text is None else result.text.encode("utf-8", "surrogatepass")
        artifact_id, message = None, result.message
        if len(data) > INLINE:
            artifact_id = self._new("art")
            message = {**message, "content": {"artifact_id": artifact_id}}
        part = await writer.part(message)
        if artifact_id is not None:
            type_, mime = ("json", "application/json") if result.text is None else ("text", "text/plain")
            self._drafts.append(
                artifact_draft(
                    writer,
                    self._scope.ledger.files,
                    data,
                    artifact_id=artifact_id,
                    kind="tool_result",
                    type_=type_,  # type: ignore[arg-type]
                    mime=mime,
                    step_id=call.step_id,
                    tool_call_id=call.tool_call_id,
                    occurred_at=result.at,
                )
            )
        # The fold's revision and not 2: a person may have resolved the doubt in the meantime.
        identity = {
            "intent_id": call.intent_id,
            "tool_call_id": call.tool_call_id,
            "revision": writer.state.open.intents[call.intent_id].revision + 1,
        }
        shown = result.text if result.text is not None else kept
        content = {"result": only(part), **_entry(result.entry)}
        if result.failed:
            failed = ToolFailed(**identity, how="answered", artifact_id=artifact_id)
            self._add(failed, result.at, content, output=shown, error=shown, cause=call.seq)
        else:
            facts = ToolAnswered(**identity, result_bytes=len(data), artifact_id=artifact_id)
            self._add(facts, result.at, content, output=shown, cause=call.seq)
        self._conversation.add(part)
        self.last_text = result.text or ""
        await self.commit(source, part)
        return True

    async def noted(
        self, source: Source, name: str, type_: StepType, message: Any, text: str, at: int | None, entry: Any = None
    ) -> None:
        """A message that is part of the conversation and neither an answer nor a result: kept as a step."""
        part = await self._writer_.part(message)
        content = {"output": only(part), **_entry(entry)}
        self._add(StepCompleted(self._new("st"), name, type_), at, content, output=text or None)
        self._conversation.add(part)
        self.last_text = text
        await self.commit(source, part)

    async def kept(self, source: Source, name: str, record: Any, at: int | None, *, made_up: bool = False) -> None:
        """A record that is no message: kept as it is. `made_up`: its name comes from the file."""
        fact = self._named(name) if made_up else name
        facts = StepCompleted(self._new("st"), fact, "other")
        self._add(facts, at, {"output": record}, output=record, name=name if made_up else None)
        await self.commit(source)

    async def compressed(
        self, source: Source, summary: str, first_kept: int, tokens: int | None, record: Any, at: int | None
    ) -> None:
        """A compaction: from here on the conversation is the summary and the messages of the records from
        `first_kept` on.
        """
        part = await self._writer_.part({"role": "summary", "content": summary})
        content = {"summary": only(part), "record": record}
        self._add(ContextCompressed(self._new("st"), tokens_before=tokens), at, content, output=summary)
        self.last_text = summary
        await self.commit(source, part, replaces=True)
        await self.flush()
        await self._conversation.rebuild(self._scope, self._writer_, part.number, first_kept)

    async def closed(self, source: Source, facts: Facts, content: dict[str, Any], output: Any) -> None:
        """The end that the source marks."""
        self._add(facts, None, content, output=output)
        await self.commit(source)


def _entry(entry: Any) -> dict[str, Any]:
    """What stood around a message in its record, where there was anything."""
    return {"entry": entry} if entry else {}
