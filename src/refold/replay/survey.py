"""What one pass over a run's events finds for the rules of its evidence: counts, gaps, and what lacks its
other half.

It keeps ids of calls and steps, never their content, so that it fits in memory for any run. It folds nothing:
a run with half its events can be surveyed, and says what is not there.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from refold.events.envelope import Event
from refold.events.identity import Stream
from refold.ledger.lookups import each_event
from refold.ledger.port import Reader
from refold.projections.records import AUDITED

_PAGE = 64

_GOVERNED = frozenset({"idempotent", "unsafe"})


class Survey:
    """The findings. Calls and steps are named by id, events by their event id."""

    def __init__(self) -> None:
        self.events = 0
        self.gap: str | None = None
        self.actor: str | None = None
        self.captured = 0
        self.secrets: dict[str, int] = {}
        self.unreadable: list[str] = []
        """Inputs, requests, answers and receipts whose content is not there."""
        self.gone: str | None = None
        """The first event of the run whose content is not there any more, of whatever type."""
        self.receipts = 0
        """Calls of which a result, or a failure that was answered, is on record."""
        self.has_input = False
        self.models = 0
        self.unended: set[str] = set()
        """Steps whose last inference has neither an answer nor a failure."""
        self.calls: dict[str, str] = {}
        """Effect of each dispatched call."""
        self.observed: set[str] = set()
        self.governed: set[str] = set()
        self.permitted: set[str] = set()
        self.egress: set[str] = set()
        self.accounted: set[str] = set()
        """Calls that a policy, an approval or a refusal is on record for."""
        self.unanswered: set[str] = set()
        self.metered: Counter[str] = Counter()
        """By step: attempts that ended, less cost entries; what is left has no cost."""
        self.ended_attempts = 0
        self.cost_entries = 0
        self.audited: list[tuple[Stream, int]] = []
        self.retrievals: dict[str, int] = {}

    def add(self, event: Event, stream: Stream) -> None:
        where = stream.event_id(event.seq)
        row, facts = event.stored, event.facts
        self.events += 1
        if stream.kind == "run" and self.gap is None and event.seq != self.events:
            self.gap = stream.event_id(self.events)
        if row.content_digest is not None:
            self.captured += 1
            if row.content is None and stream.kind == "run" and self.gone is None:
                self.gone = where
        if facts.secrets:
            self.secrets[where] = facts.secrets
        if event.type in AUDITED:
            self.audited.append((stream, event.seq))
        handler = _HANDLERS.get(event.type)
        if handler is not None:
            handler(self, event, where)

    def need(self, event: Event, where: str) -> None:
        """This event's content is needed to replay the run."""
        if event.stored.content is None:
            self.unreadable.append(where)


def _created(found: Survey, event: Event, where: str) -> None:
    found.actor = event.actor or None
    _input(found, event, where)


def _input(found: Survey, event: Event, where: str) -> None:
    if event.stored.content_digest is not None:
        found.has_input = True
        found.need(event, where)


def _requested(found: Survey, event: Event, where: str) -> None:
    found.models += 1
    found.unended.add(event.facts.step_id)
    found.need(event, where)


def _attempt_ended(found: Survey, event: Event, where: str) -> None:
    found.ended_attempts += 1
    if event.type != "inference.failed" or not event.facts.retrying:
        found.unended.discard(event.facts.step_id)
    found.metered[event.facts.step_id] += 1
    if event.type == "inference.completed":
        found.need(event, where)


def _part(found: Survey, event: Event, where: str) -> None:
    found.need(event, where)


def _cost(found: Survey, event: Event, _where: str) -> None:
    found.cost_entries += 1
    if event.facts.step_id is not None:
        found.metered[event.facts.step_id] -= 1


def _asked(found: Survey, event: Event, where: str) -> None:
    facts = event.facts
    call = facts.tool_call_id
    if facts.claim is not None:
        found.calls[call] = facts.claim.effect
        found.need(event, where)
    if event.type == "tool.claimed":
        return
    found.unanswered.add(call)
    if facts.observed:
        found.observed.add(call)
    elif found.calls.get(call, "unsafe") in _GOVERNED:
        found.governed.add(call)


def _answered(found: Survey, event: Event, where: str) -> None:
    facts = event.facts
    found.unanswered.discard(facts.tool_call_id)
    if event.type == "tool.answered" or (facts.how == "answered" and not facts.retrying):
        found.receipts += facts.tool_call_id not in found.observed
    # What failed may have nothing but its error code to say; what was answered has a result.
    if facts.artifact_id is None and (event.type == "tool.answered" or event.stored.content_digest is not None):
        found.need(event, where)


def _resolved(found: Survey, event: Event, _where: str) -> None:
    call = event.facts.tool_call_id
    found.accounted.add(call)
    if event.facts.resolution != "resend":
        found.unanswered.discard(call)
    if event.facts.resolution == "happened":
        found.receipts += call not in found.observed


def _refused(found: Survey, event: Event, _where: str) -> None:
    found.governed.add(event.facts.tool_call_id)
    found.accounted.add(event.facts.tool_call_id)
    if event.facts.reason in ("policy", "rejected", "quota", "key_expired"):
        found.permitted.add(event.facts.tool_call_id)


def _policy(found: Survey, event: Event, _where: str) -> None:
    call = event.facts.tool_call_id
    if call is None:
        return
    found.accounted.add(call)
    found.governed.add(call)
    (found.egress if event.facts.kind == "egress" else found.permitted).add(call)


def _approval(found: Survey, event: Event, _where: str) -> None:
    found.governed.add(event.facts.tool_call_id)
    found.accounted.add(event.facts.tool_call_id)


def _step(found: Survey, event: Event, _where: str) -> None:
    if event.facts.type == "retrieval" and event.type == "step.completed":
        found.retrievals[event.facts.step_id] = event.seq


_HANDLERS: dict[str, Any] = {
    "run.created": _created,
    "signal.received": _input,
    "inference.requested": _requested,
    "inference.part": _part,
    "inference.completed": _attempt_ended,
    "inference.failed": _attempt_ended,
    "inference.lost": _attempt_ended,
    "cost.recorded": _cost,
    "tool.claimed": _asked,
    "tool.dispatched": _asked,
    "tool.answered": _answered,
    "tool.failed": _answered,
    "tool.resolved": _resolved,
    "tool.refused": _refused,
    "policy.decided": _policy,
    "approval.requested": _approval,
    "step.completed": _step,
    "step.failed": _step,
}


async def survey(reader: Reader, run_id: str) -> Survey:
    """One pass over a run's stream and its annex. Raises UnknownEvent and the like where an event cannot be
    read.
    """
    found = Survey()
    for stream in (Stream.run(run_id), Stream.annex(run_id)):
        async for event in each_event(reader, stream, page=_PAGE):
            found.add(event, stream)
    return found
