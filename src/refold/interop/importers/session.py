"""What all formats share: the events that messages, answers, calls and results of a recorded session become."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

import msgspec

from refold.events import values
from refold.events.catalog import Facts
from refold.events.catalog.inference import (
    CostRecorded,
    Finish,
    InferenceCompleted,
    InferenceFailed,
    InferenceRequested,
    Usage,
)
from refold.events.catalog.steps import ContextCompressed, SignalReceived, StepCompleted, StepType
from refold.events.catalog.tool import Claim, ToolAnswered, ToolDispatched, ToolFailed
from refold.interop.importers.conversation import OpenCall, only
from refold.interop.importers.recorder import UNKNOWN, Recorder, Source
from refold.ledger.artifacts import INLINE, artifact_draft
from refold.ledger.drafts import Draft
from refold.ledger.writer import Part

# What usage always is, and then needs no search for secrets.
_ONLY_NUMBERS = re.compile(r'(?:"[A-Za-z]{1,20}(?<!token)(?<!key)"\s*:|[\s{},]|-?[0-9.eE+-]{1,30}|null)*+')


class Call(NamedTuple):
    """A tool call in a model's answer. `scanned`: the arguments stand in the message as they are here, so that the
    search for secrets in the message holds for them.
    """

    provider_id: str
    tool: str
    arguments: Any
    scanned: bool = False


class Answer(msgspec.Struct, kw_only=True):
    """A model's answer; the request is the conversation before it. `error_code` None: it counts.

    `usage` is normalised, `raw_usage` the provider's own, as JSON text with the digits of the source. `cost` is
    (currency, amount), both None when it has no price; None: the source knows no costs. Times are microseconds.
    `entry`: what stood around the message in its record.
    """

    message: Any
    text: str
    model: str = UNKNOWN
    provider: str = UNKNOWN
    finish: Finish = "other"
    error_code: Literal["aborted", "provider_error"] | None = None
    error: str | None = None
    usage: Usage | None = None
    raw_usage: str | None = None
    cost: tuple[str | None, str | None] | None = None
    calls: Sequence[Call] = ()
    asked_at: int | None = None
    ended_at: int | None = None
    entry: Mapping[str, Any] | None = None


class Result(msgspec.Struct, kw_only=True):
    """A tool's result. `text` is its only text, None when it has another form, which is then kept as JSON."""

    provider_id: str
    message: dict[str, Any]
    text: str | None
    failed: bool = False
    at: int | None = None
    entry: Mapping[str, Any] | None = None


class Session(Recorder):
    """One run of a source on its way into the ledger, record by record."""

    async def told(
        self,
        source: Source,
        signal: str,
        message: Any,
        text: str,
        at: int | None,
        entry: Mapping[str, Any] | None = None,
    ) -> None:
        """A message to the model from outside."""
        part = await self.writer.part(message)
        facts = SignalReceived(self.new("st"), signal)
        content = {"value": only(part), **_around(entry)}
        self.add(Draft(facts, content, input=text, occurred_at=at, clean=_clean(part, message, entry)))
        await self._say(source, part, message, text)

    async def answered(self, source: Source, answer: Answer) -> None:
        """A model's answer to the conversation so far: request, answer or failure, cost, and the calls that it asks
        for.
        """
        part = await self.writer.part(answer.message)
        clean = _clean(part, answer.message, answer.entry)
        step = self.new("st")
        model, shown_model = self.named(answer.model)
        provider, shown_provider = self.named(answer.provider)
        self.add(
            Draft(
                InferenceRequested(step, model, provider),
                {"messages": self.conversation.messages()},
                input=self.last_text or None,
                name=shown_model,
                provider=shown_provider,
                occurred_at=answer.asked_at,
                clean=self.last_clean,
            )
        )
        turn = self._ended(answer, step, part, clean)
        if answer.cost is not None:
            currency, amount = answer.cost
            cost = CostRecorded(
                self.new("cost"),
                f"{step}#1",
                step,
                currency,
                amount,
                pricing=None if amount is None else "source",
                provider=provider,
                model=model,
                usage=answer.usage,
            )
            at = answer.ended_at
            self.add(Draft(cost, name=shown_model, provider=shown_provider, occurred_at=at, clean=True))
        for place, call in enumerate(answer.calls):
            self._dispatched(call, place, turn, answer.ended_at, clean and call.scanned)
        await self._say(source, part, answer.message, answer.text)

    def _ended(self, answer: Answer, step: str, part: Part, clean: bool) -> int:
        content = {"message": only(part), **_around(answer.entry)}
        if answer.raw_usage is not None:
            content["usage"] = answer.raw_usage
            clean = clean and _ONLY_NUMBERS.fullmatch(answer.raw_usage) is not None
        facts: Facts
        if answer.error_code is None:
            facts = InferenceCompleted(step, answer.finish, usage=answer.usage)
        else:
            facts = InferenceFailed(step, answer.error_code, usage=answer.usage)
            if answer.error is not None:
                content["error"] = answer.error
        return self.add(
            Draft(
                facts,
                content,
                output=answer.text or None,
                error=answer.error,
                occurred_at=answer.ended_at,
                clean=clean,
            )
        )

    def _dispatched(self, call: Call, place: int, turn: int, at: int | None, clean: bool) -> None:
        writer, run_id = self.writer, str(self.report.run_id)
        tool, shown_tool = self.named(call.tool)
        asked = values.canonical(values.encode([call.tool, call.arguments]))
        claim = Claim(
            step_id=self.new("st"),
            tool=tool,
            key=writer.digest("import call", f"{run_id}/{self.tool_calls + place + 1}".encode()),
            fingerprint=writer.digest("import fingerprint", asked),
            effect_domain=run_id,
        )
        facts = ToolDispatched(
            intent_id=self.new("int"), tool_call_id=self.new("tc"), revision=1, claim=claim, observed=True
        )
        seq = self.add(
            Draft(
                facts,
                {"arguments": call.arguments, "provider_call_id": call.provider_id},
                input=call.arguments,
                name=shown_tool,
                ref=call.provider_id,
                occurred_at=at,
                cause=turn,
                clean=clean,
            )
        )
        self.calls.add(call.provider_id, OpenCall(facts.tool_call_id, facts.intent_id, claim.step_id, turn, seq))

    async def returned(self, source: Source, result: Result) -> bool:
        """A tool's result. False when it answers no call: it is then kept as a step of its own."""
        writer = self.writer
        call = self.calls.take(result.provider_id)
        if call is None or not writer.awaits(call.tool_call_id):
            text = result.text or ""
            await self.noted(source, "orphan_result", "other", result.message, text, result.at, result.entry)
            return False
        kept = result.message.get("content")
        data = values.encode(kept) if result.text is None else result.text.encode("utf-8", "surrogatepass")
        artifact_id, message = None, result.message
        if len(data) > INLINE:
            artifact_id = self.new("art")
            message = {**message, "content": {"artifact_id": artifact_id}}
        part = await writer.part(message)
        if artifact_id is not None:
            self._stored(call, data, artifact_id, result)
        # The fold's revision and not 2: a person may have looked into the doubt in the meantime.
        identity = (call.intent_id, call.tool_call_id, writer.intent(call.intent_id).revision + 1)
        shown = kept if result.text is None else result.text
        facts: Facts
        if result.failed:
            facts = _failed(identity, artifact_id)
        else:
            facts = _answered(identity, artifact_id, len(data))
        content = {"result": only(part), **_around(result.entry)}
        self.add(
            Draft(
                facts,
                content,
                output=shown,
                error=shown if result.failed else None,
                occurred_at=result.at,
                cause=call.seq,
                clean=artifact_id is None and _clean(part, message, result.entry),
            )
        )
        await self._say(source, part, None if artifact_id else message, result.text or "")
        return True

    def _stored(self, call: OpenCall, data: bytes, artifact_id: str, result: Result) -> None:
        type_: Literal["json", "text"] = "json" if result.text is None else "text"
        self.add(
            artifact_draft(
                self.writer,
                self.files,
                data,
                artifact_id=artifact_id,
                kind="tool_result",
                type_=type_,
                mime="application/json" if type_ == "json" else "text/plain",
                step_id=call.step_id,
                tool_call_id=call.tool_call_id,
                occurred_at=result.at,
            )
        )

    async def noted(
        self,
        source: Source,
        name: str,
        type_: StepType,
        message: Any,
        text: str,
        at: int | None,
        entry: Mapping[str, Any] | None = None,
    ) -> None:
        """A message of the conversation that is neither an answer nor the result of a call: kept as a step."""
        part = await self.writer.part(message)
        facts = StepCompleted(self.new("st"), name, type_)
        content = {"output": only(part), **_around(entry)}
        self.add(Draft(facts, content, output=text or None, occurred_at=at, clean=_clean(part, message, entry)))
        await self._say(source, part, message, text)

    async def kept(self, source: Source, name: str, record: Any, at: int | None, *, made_up: bool = False) -> None:
        """A record that is no message: kept as it is. `made_up`: its name comes from the file."""
        fact, shown = self.named(name) if made_up else (name, None)
        facts = StepCompleted(self.new("st"), fact, "other")
        self.add(Draft(facts, {"output": record}, output=record, name=shown, occurred_at=at))
        await self.commit(source)

    async def compressed(
        self, source: Source, summary: str, first_kept: int, tokens: int | None, record: Any, at: int | None
    ) -> None:
        """A compaction: from here on the conversation is the summary and the messages of the records from
        `first_kept`.
        """
        part = await self.writer.part({"role": "summary", "content": summary})
        facts = ContextCompressed(self.new("st"), tokens_before=tokens)
        self.add(Draft(facts, {"summary": only(part), "record": record}, output=summary, occurred_at=at))
        self.last_text, self.last_clean = summary, False
        await self.commit(source, part, replaces=True)
        await self.flush()
        await self.restart(part.number, first_kept)

    async def closed(self, source: Source, facts: Facts, content: dict[str, Any], output: Any) -> None:
        """The end that the source marks."""
        self.add(Draft(facts, content, output=output))
        await self.commit(source)

    async def _say(self, source: Source, part: Part, message: Any, text: str) -> None:
        """Ends a record that is a message of the conversation. `message` is what was scanned, None if its
        text was not.
        """
        self.conversation.add(part)
        self.last_text, self.last_clean = text, part.shown is message
        await self.commit(source, part)


def _answered(identity: tuple[str, str, int], artifact_id: str | None, size: int) -> ToolAnswered:
    intent_id, tool_call_id, revision = identity
    return ToolAnswered(
        intent_id=intent_id, tool_call_id=tool_call_id, revision=revision, result_bytes=size, artifact_id=artifact_id
    )


def _failed(identity: tuple[str, str, int], artifact_id: str | None) -> ToolFailed:
    intent_id, tool_call_id, revision = identity
    return ToolFailed(
        intent_id=intent_id, tool_call_id=tool_call_id, revision=revision, how="answered", artifact_id=artifact_id
    )


def _clean(part: Part, message: Any, entry: Mapping[str, Any] | None) -> bool:
    """Whether everything said of a message is known to hold no secret: none was found in it, and nothing
    stands around.
    """
    return part.shown is message and not entry


def _around(entry: Mapping[str, Any] | None) -> dict[str, Any]:
    return {"entry": dict(entry)} if entry else {}
