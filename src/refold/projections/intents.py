"""`tool_intents`: one row a logical effect, folded in the order of its own revisions across all streams
that touch it.
"""

from __future__ import annotations

from refold.events.catalog.tool import Claim
from refold.events.envelope import Event
from refold.projections.fold import FoldState, named, on
from refold.projections.rows import IntentRow

_CLOSED = ("succeeded",)


@on("tool.claimed", "tool.dispatched", "tool.answered", "tool.failed", "tool.doubted", "tool.resolved")
def touched(state: FoldState, event: Event) -> None:
    facts = event.facts
    row = state.open.intents.get(facts.intent_id)
    if row is None:
        if facts.revision != 1 or facts.claim is None:
            raise state.broken(event, "the intent", facts.intent_id)
        row = state.open.intents[facts.intent_id] = _new(state, event, facts.claim)
    elif facts.revision != row.revision + 1:
        raise state.broken(
            event, f"revision {facts.revision} of an intent at revision {row.revision}:", facts.intent_id
        )
    apply(row, event, state.run_id)
    state.put(row)
    if is_closed(row):
        del state.open.intents[facts.intent_id]


def is_closed(row: IntentRow) -> bool:
    """Whether nothing more can happen to the intent: it succeeded, or its failure was seen from outside."""
    return row.status in _CLOSED or (row.observed and row.status == "failed")


def _new(state: FoldState, event: Event, claim: Claim) -> IntentRow:
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
        owner_run_id=state.run_id,
    )


def apply(row: IntentRow, event: Event, run_id: str) -> None:
    """Changes the row by the next revision of its intent, which `event` of `run_id`'s stream carries."""
    facts = event.facts
    row.revision = facts.revision
    match event.type:
        case "tool.claimed" | "tool.dispatched":
            if facts.claim is not None:
                row.attempts = facts.claim.attempt
                row.status, row.owner_run_id = "claimed", run_id
            if event.type == "tool.dispatched":
                row.observed = facts.observed
                row.deadline_us = facts.deadline_us
                row.status = "in_doubt" if facts.observed else "dispatched"
        case "tool.answered":
            row.status, row.receipt_run_id, row.receipt_seq = "succeeded", run_id, event.seq
        case "tool.failed":
            row.status, row.receipt_run_id, row.receipt_seq = "failed", run_id, event.seq
            if facts.how == "answered":
                row.settled += 1
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
            row.settled += 1
        case "resend":
            row.status = "claimed"
        case "abandon":
            row.status = "abandoned"
