"""The events of a call: what the gateway appends and what it hands to the runtime, made in one place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import msgspec

from refold.clock import Clock
from refold.errors import RefoldError
from refold.events.catalog import tool as events
from refold.events.content import Encoded
from refold.events.values import Registry
from refold.gateway.endings import Failure, Unknown, Why
from refold.gateway.identity import Identity
from refold.gateway.inbox import read_posted, resolved_draft
from refold.gateway.outcomes import Recorded, error_fields, record_result, shown
from refold.gateway.receipts import Receipt
from refold.gateway.resolutions import NAMES, DidNotHappen, Happened
from refold.gateway.tools import Tool
from refold.ledger.artifacts import INLINE, artifact_draft
from refold.ledger.drafts import Draft
from refold.ledger.ledger import ScopedLedger
from refold.ledger.port import InboxItem
from refold.ledger.writer import StreamWriter
from refold.projections.rows import IntentRow


class Call(msgspec.Struct, kw_only=True, eq=False):
    """A tool call that a run's code asks for. `encoded` are its bound arguments as `Tool.encode_arguments` wrote them.

    `recorded`: the run's stream holds a claim of this very call, and the ids are those of that claim.
    """

    tool: Tool[Any, Any]
    arguments: dict[str, Any]
    encoded: bytes
    site: str
    step_id: str
    tool_call_id: str
    intent_id: str
    key: str | None = None
    provider_call_id: str | None = None
    recorded: bool = False
    unwanted: Callable[[], bool] = lambda: False
    """Whether the code has given the call up: then nothing is sent that was not sent yet."""


class Settled(NamedTuple):
    """The end of a doubt: what was decided or found out, and the event that says so."""

    resolution: events.Resolution
    draft: Draft


class CallRecords:
    """Makes the events of one run's calls."""

    def __init__(
        self, scope: ScopedLedger, writer: StreamWriter, domain: str, clock: Clock, types: Registry | None
    ) -> None:
        self._scope, self._writer, self._domain, self._clock, self._types = scope, writer, domain, clock, types
        self.fresh: dict[str, bytes] = {}
        """Results that this process has put into artifacts, by artifact, until they are delivered."""

    def claim(self, call: Call, identity: Identity, row: IntentRow | None) -> tuple[Draft, str]:
        """The event by which a call takes its intent, and that intent: `tool.claimed` where the tool says itself when
        it sends.
        """
        tool, attempt = call.tool, 1 if row is None else row.attempts + 1
        intent_id = call.intent_id if row is None else row.intent_id
        revision = 1 if row is None else row.revision + 1
        claim = events.Claim(
            step_id=call.step_id,
            tool=tool.name,
            key=identity.key,
            fingerprint=identity.fingerprint,
            effect_domain=self._domain,
            version=tool.version,
            effect=tool.effect,
            attempt=attempt,
        )
        if tool.marks_sending:
            facts: events.ToolClaimed | events.ToolDispatched = events.ToolClaimed(
                intent_id=intent_id, tool_call_id=call.tool_call_id, revision=revision, claim=claim
            )
        else:
            facts = self._dispatched(call, intent_id, revision, None if row is None else row.key_expires_us, claim)
        if self._writer.awaits(call.tool_call_id):
            return Draft(facts, site=call.site, ref=call.provider_call_id), intent_id
        draft = Draft(
            facts,
            content=self._asked(call, identity),
            input=shown(call.encoded),
            ref=call.provider_call_id,
            site=call.site,
        )
        return draft, intent_id

    def dispatch(self, call: Call, row: IntentRow) -> Draft:
        """The event by which a claimed call says that it is about to be sent."""
        facts = self._dispatched(call, row.intent_id, row.revision + 1, row.key_expires_us, None)
        return Draft(facts, site=call.site)

    def _dispatched(
        self, call: Call, intent_id: str, revision: int, expires: int | None, claim: events.Claim | None
    ) -> events.ToolDispatched:
        tool = call.tool
        now = self._clock.now()
        deadline = now + tool.timeout_us
        if tool.effect == "idempotent" and expires is None:
            expires = now + _us(tool.key_life)
        return events.ToolDispatched(
            intent_id=intent_id,
            tool_call_id=call.tool_call_id,
            revision=revision,
            claim=claim,
            deadline_us=deadline,
            settles_us=deadline + _us(tool.settle),
            key_expires_us=expires,
        )

    def answered(self, call: Call, row: IntentRow, value: Any, duration_us: int | None) -> Draft:
        recorded = self._kept(call, record_result(value, call.tool, self._types))
        facts = events.ToolAnswered(
            intent_id=row.intent_id,
            tool_call_id=call.tool_call_id,
            revision=row.revision + 1,
            result_bytes=recorded.size,
            artifact_id=recorded.artifact_id,
            duration_us=duration_us,
        )
        return Draft(facts, content=recorded.fields, output=recorded.shown, site=call.site)

    def failed(
        self, call: Call, row: IntentRow, ending: Failure | Unknown, retrying: bool, duration_us: int | None
    ) -> Draft:
        how: Literal["answered", "not_sent", "unknown"]
        code: str
        if isinstance(ending, Unknown):
            how, code, retryable = "unknown", ending.why, True
        else:
            how, code, retryable = ending.how, ending.code, ending.retryable
        facts = events.ToolFailed(
            intent_id=row.intent_id,
            tool_call_id=call.tool_call_id,
            revision=row.revision + 1,
            how=how,
            error_code=code,
            retryable=retryable,
            duration_us=duration_us,
            retrying=retrying,
        )
        return Draft(facts, content=error_fields(ending.message), error=ending.message, site=call.site)

    def doubted(self, call: Call, row: IntentRow, why: Why, said: str | None = None) -> Draft:
        """`said` is what the attempt raised: no answer, and the best clue to what went wrong."""
        facts = events.ToolDoubted(
            intent_id=row.intent_id, tool_call_id=call.tool_call_id, revision=row.revision + 1, why=why
        )
        return Draft(facts, None if said is None else {"error": said}, error=said, site=call.site)

    def probed(self, call: Call, row: IntentRow, answer: Happened | DidNotHappen) -> Settled:
        """What a probe found out."""
        facts = events.ToolResolved(
            intent_id=row.intent_id,
            tool_call_id=call.tool_call_id,
            revision=row.revision + 1,
            resolution=NAMES[type(answer)],
            by="probe",
        )
        content: dict[str, Any] = {"basis": "probe"}
        recorded = record_result(answer.result, call.tool, self._types) if isinstance(answer, Happened) else None
        if recorded is not None:
            content |= recorded.fields
        output = None if recorded is None else recorded.shown
        return Settled(facts.resolution, Draft(facts, content=content, input="probe", output=output, site=call.site))

    def posted(self, call: Call, row: IntentRow, item: InboxItem) -> Settled:
        """What a person decided."""
        posted = read_posted(item)
        draft = resolved_draft(posted, row.revision + 1, item.actor, item.key)
        draft.site = call.site
        return Settled(posted.resolution, draft)

    def replayed(self, call: Call, identity: Identity, row: IntentRow, receipt: Receipt) -> Draft:
        """The outcome of an intent, copied into this run so that it can be replayed alone."""
        found, fields = receipt.event.facts, dict(receipt.fields)
        artifact_id = None
        if getattr(found, "artifact_id", None) is not None:
            artifact_id = self._artifact(call, fields.pop("result"))
        failed = found.how if receipt.event.type == "tool.failed" else None
        view = receipt.event.view
        facts = events.ToolReplayed(
            tool_call_id=call.tool_call_id,
            step_id=call.step_id,
            intent_id=row.intent_id,
            tool=call.tool.name,
            fingerprint=identity.fingerprint,
            artifact_id=artifact_id,
            failed=failed,
            error_code=None if failed is None else found.error_code,
            retryable=failed is not None and found.retryable,
        )
        copied = {name: Encoded(data) for name, data in fields.items() if name not in ("basis", "arguments")}
        return Draft(
            facts,
            content={**self._asked(call, identity), **copied},
            input=shown(call.encoded),
            output=view.output,
            error=view.error,
            ref=call.provider_call_id,
            site=call.site,
        )

    def refused(self, call: Call, identity: Identity, reason: Any, message: str, **facts: Any) -> Draft:
        """A typed no, recorded at the call, so that the same call site gets it again."""
        return Draft(
            events.ToolRefused(
                call.tool_call_id, call.step_id, call.tool.name, reason, fingerprint=identity.fingerprint
            ),
            content={**self._asked(call, identity), **error_fields(message, tool=call.tool.name, **facts)},
            input=shown(call.encoded),
            error=message,
            ref=call.provider_call_id,
            site=call.site,
        )

    def _asked(self, call: Call, identity: Identity) -> dict[str, Any]:
        asked: dict[str, Any] = {"arguments": Encoded(call.encoded)}
        if identity.text is not None:
            asked["key"] = identity.text
        return asked

    def _kept(self, call: Call, recorded: Recorded) -> _Kept:
        result = recorded.fields.get("result")
        if recorded.size <= INLINE or result is None:
            return _Kept(recorded.fields, recorded.size, recorded.shown, None)
        try:
            artifact_id = self._artifact(call, result.data)
        except RefoldError as error:
            # It happened, whether or not its answer can be kept.
            why = {"path": "$", "type": "bytes", "reason": f"it could not be stored ({error.code})"}
            return _Kept({"not_recordable": why, "kept": None}, recorded.size, recorded.shown, None)
        return _Kept({}, recorded.size, recorded.shown, artifact_id)

    def _artifact(self, call: Call, data: bytes) -> str:
        """Puts a result beside its event: the artifact's own event goes first, in the same batch or an earlier one."""
        artifact_id = self._scope.ledger.ids.new("art")
        draft = artifact_draft(
            self._writer,
            self._scope.ledger.files,
            data,
            artifact_id=artifact_id,
            kind="tool_result",
            type_="json",
            mime="application/json",
            step_id=call.step_id,
            tool_call_id=call.tool_call_id,
        )
        self._writer.append(draft)
        self.fresh[artifact_id] = data
        return artifact_id


class _Kept(msgspec.Struct):
    fields: dict[str, Any]
    size: int
    shown: Any
    artifact_id: str | None


def _us(seconds: float) -> int:
    return int(seconds * 1_000_000)
