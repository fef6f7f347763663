"""`tool_intents`: one row a logical effect. The one projection that is folded by intent and not by stream.

An intent may be touched from several streams: a run, its annex, a re-execution. Each such event carries the intent's
next revision, and this fold applies them in that order, whatever streams they stand in.
"""

from __future__ import annotations

from refold.events.catalog.tool import Claim
from refold.events.envelope import Event
from refold.projections.fold import BrokenFold, named
from refold.projections.rows import IntentRow

INTENT_EVENTS = frozenset(
    {"tool.claimed", "tool.dispatched", "tool.answered", "tool.failed", "tool.doubted", "tool.resolved"}
)
"""The types of events that carry a revision of an intent."""

CLAIMED = ("intent_id", "effect_domain", "tool", "tool_version", "effect", "idempotency_key", "fingerprint")
"""The columns of an intent that its first event says, and that no later one changes."""


class Intents:
    """Intents as they stand, by id. Whoever applies an event first puts the row here if the intent is
    older than that.
    """

    def __init__(self) -> None:
        self.rows: dict[str, IntentRow] = {}

    def is_next(self, event: Event) -> bool:
        """Whether the event carries the revision after the one that its intent stands at here."""
        row = self.rows.get(event.facts.intent_id)
        return bool(event.facts.revision == (1 if row is None else row.revision + 1))

    def check(self, event: Event, stream: str) -> None:
        """Raises BrokenFold when the event does not bring its intent's next revision."""
        facts = event.facts
        row = self.rows.get(facts.intent_id)
        if not self.is_next(event) or (row is None and facts.claim is None):
            found = "unknown" if row is None else f"at revision {row.revision}"
            raise BrokenFold(
                f"{event.type} at seq {event.seq} of {stream} brings revision {facts.revision} of intent "
                f"{facts.intent_id}, which is {found}.",
                stream=stream,
                seq=event.seq,
                type=event.type,
            )

    def apply(self, event: Event, stream: str, run_id: str) -> IntentRow:
        """Brings the intent to the event's revision. Raises BrokenFold, and then nothing was changed."""
        self.check(event, stream)
        return self.bring(event, run_id)

    def bring(self, event: Event, run_id: str) -> IntentRow:
        """The same for an event that was checked."""
        facts = event.facts
        row = self.rows.get(facts.intent_id)
        if row is None:
            row = self.rows[facts.intent_id] = _new(event, facts.claim, run_id)
        row.revision = facts.revision
        _apply(row, event, run_id)
        return row

    def forget_closed(self) -> None:
        """Drops the rows of intents to which nothing more can happen."""
        for row in [row for row in self.rows.values() if is_closed(row)]:
            del self.rows[row.intent_id]


def is_closed(row: IntentRow) -> bool:
    """Whether nothing more can happen to the intent: it succeeded, or its failure was seen from outside."""
    return row.status == "succeeded" or (row.observed and row.status == "failed")


def _new(event: Event, claim: Claim, run_id: str) -> IntentRow:
    return IntentRow(
        intent_id=event.facts.intent_id,
        effect_domain=claim.effect_domain,
        tool=named(claim.tool, event.view.name),
        tool_version=claim.version,
        effect=claim.effect,
        idempotency_key=claim.key,
        fingerprint=claim.fingerprint,
        status="claimed",
        revision=0,
        owner_run_id=run_id,
    )


def _apply(row: IntentRow, event: Event, run_id: str) -> None:
    facts = event.facts
    match event.type:
        case "tool.claimed" | "tool.dispatched":
            if facts.claim is not None:
                row.attempts = facts.claim.attempt
                row.status, row.owner_run_id = "claimed", run_id
            if event.type == "tool.dispatched":
                row.observed = facts.observed
                row.deadline_us, row.settles_us = facts.deadline_us, facts.settles_us
                row.key_expires_us = facts.key_expires_us
                row.status = "in_doubt" if facts.observed else "dispatched"
        case "tool.answered":
            row.status, row.receipt_run_id, row.receipt_seq = "succeeded", run_id, event.seq
        case "tool.failed":
            if facts.retrying:
                row.status = "dispatched" if facts.how == "unknown" else "claimed"
            else:
                row.status, row.receipt_run_id, row.receipt_seq = "failed", run_id, event.seq
            if facts.how == "answered":
                _settle(row)
        case "tool.doubted":
            row.status = "in_doubt"
        case "tool.resolved":
            row.resolution = facts.resolution
            _resolve(row, event, run_id)


def _resolve(row: IntentRow, event: Event, run_id: str) -> None:
    match event.facts.resolution:
        case "happened":
            row.status, row.receipt_run_id, row.receipt_seq = "succeeded", run_id, event.seq
        case "did_not_happen":
            row.status = "not_executed"
            _settle(row)
        case "resend":
            row.status = "claimed"
        case "abandon":
            row.status = "abandoned"


def _settle(row: IntentRow) -> None:
    """It is known that nothing came of what was sent so far: the next attempt gets a new key downstream."""
    row.settled += 1
    row.key_expires_us = None
