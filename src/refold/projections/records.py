"""Rows that one event makes and nothing changes later: costs, artifacts, feedback, audit; and approvals."""

from __future__ import annotations

from refold.events.envelope import Event
from refold.events.identity import storage_key
from refold.projections.fold import FoldState, named, on
from refold.projections.rows import ApprovalRow, ArtifactRow, AuditRow, CostRow, DecisionRow, FeedbackRow


@on("cost.recorded")
def cost(state: FoldState, event: Event) -> None:
    facts, view = event.facts, event.view
    usage = facts.usage
    row = CostRow(
        cost_id=facts.cost_id,
        run_id=state.run_id,
        seq=event.seq,
        step_id=facts.step_id,
        source_ref=facts.source_ref,
        at=event.at,
        currency=facts.currency,
        amount=facts.amount,
        estimated=facts.estimated,
        pricing=facts.pricing,
        basis=facts.basis,
        quantity=facts.quantity,
        provider=None if facts.provider is None else named(facts.provider, view.provider),
        model=None if facts.model is None else named(facts.model, view.name),
        latency_ms=None if facts.latency_us is None else facts.latency_us / 1000,
        requests=facts.requests,
        embeddings=facts.embeddings,
        reranks=facts.reranks,
        vectors=facts.vectors,
        storage_bytes=facts.storage_bytes,
    )
    if usage is not None:
        row.tokens_prompt, row.tokens_completion, row.tokens_cached = (
            usage.prompt,
            usage.completion,
            usage.cached,
        )
        row.tokens_total = usage.prompt + usage.completion
    state.put(row)


@on("artifact.stored")
def artifact(state: FoldState, event: Event) -> None:
    facts = event.facts
    state.put(
        ArtifactRow(
            artifact_id=facts.artifact_id,
            run_id=state.run_id,
            seq=event.seq,
            kind=facts.kind,
            type=facts.type,
            mime=facts.mime,
            size_bytes=facts.size_bytes,
            store=facts.store,
            blob=facts.blob,
            storage_key=storage_key(state.ref.scope, state.run_id, facts.artifact_id),
            step_id=facts.step_id,
            tool_call_id=facts.tool_call_id,
            sha256=event.view.ref,
        )
    )


@on("approval.requested")
def approval_requested(state: FoldState, event: Event) -> None:
    facts, view = event.facts, event.view
    row = state.open.approvals[facts.approval_id] = ApprovalRow(
        approval_id=facts.approval_id,
        run_id=state.run_id,
        seq=event.seq,
        tool_call_id=facts.tool_call_id,
        step_id=facts.step_id,
        tool=named(facts.tool, view.name),
        digest=facts.digest,
        status="pending",
        requested_at=event.at,
        expires_at=facts.expires_at,
        arguments_summary=view.input,
    )
    state.put(row)


@on("approval.decided", "approval.expired")
def approval_ended(state: FoldState, event: Event) -> None:
    facts = event.facts
    row = state.open.approvals.pop(facts.approval_id, None)
    if row is None:
        raise state.broken(event, "the approval", facts.approval_id)
    if event.type == "approval.decided":
        row.status = facts.decision
        state.put(
            DecisionRow(
                approval_id=facts.approval_id,
                run_id=state.run_id,
                seq=event.seq,
                decision=facts.decision,
                digest=facts.digest,
                edited=facts.edited,
                by=event.actor,
                at=event.at,
                comment=event.view.input,
            )
        )
    else:
        row.status = "expired"
    state.put(row)


@on("feedback.added")
def feedback(state: FoldState, event: Event) -> None:
    facts = event.facts
    state.put(
        FeedbackRow(
            feedback_id=facts.feedback_id,
            run_id=state.run_id,
            stream=state.ref.stream.kind,
            seq=event.seq,
            source=facts.source,
            score=facts.score,
            by=event.actor,
            at=event.at,
            comment=event.view.input,
        )
    )


_SUBJECT_AND_OUTCOME = {
    "policy.decided": ("tool_call_id", "decision"),
    "approval.requested": ("approval_id", "tool_call_id"),
    "approval.decided": ("approval_id", "decision"),
    "approval.expired": ("approval_id", None),
    "tool.refused": ("tool_call_id", "reason"),
    "tool.resolved": ("tool_call_id", "resolution"),
    "run.stop_requested": (None, "why"),
    "run.canceled": (None, None),
    "content.erased": (None, "events"),
    "incident.raised": ("tool_call_id", "kind"),
    "access.read": ("run_id", "what"),
    "access.exported": ("run_id", "what"),
}

AUDITED = frozenset(_SUBJECT_AND_OUTCOME)
"""The types of events that somebody must answer for: each makes a row of `audit`."""


@on(*_SUBJECT_AND_OUTCOME)
def audit(state: FoldState, event: Event) -> None:
    subject, outcome = _SUBJECT_AND_OUTCOME[event.type]
    facts = event.facts
    found = None if outcome is None else getattr(facts, outcome)
    state.put(
        AuditRow(
            stream=state.stream_name,
            seq=event.seq,
            run_id=state.run_id or None,
            event=event.type,
            actor=event.actor,
            at=event.at,
            subject=None if subject is None else getattr(facts, subject),
            outcome=None if found is None else str(found),
            detail=event.view.input,
        )
    )
