"""`run_step_tool_calls` and the steps of tools: one row a call site, from claim to answer, doubt or refusal."""

from __future__ import annotations

from refold.events.catalog.tool import Claim
from refold.events.envelope import Event
from refold.projections.fold import FoldState, named, on, spent
from refold.projections.rows import StepRow, ToolCallRow


@on("tool.claimed", "tool.dispatched")
def asked(state: FoldState, event: Event) -> None:
    facts = event.facts
    if facts.claim is not None:
        _claimed(state, event, facts.claim)
    row = _call(state, event)
    if event.type == "tool.dispatched":
        row.observed = facts.observed
        row.dispatched_at = state.when(event)
        row.status = "in_doubt" if facts.observed else "dispatched"
        step = state.open.steps[row.run_step_id]
        step.status = "running"
        state.put(step)
    state.put(row)


def _claimed(state: FoldState, event: Event, claim: Claim) -> None:
    facts, view = event.facts, event.view
    tool = named(claim.tool, view.name)
    call = state.open.calls.get(facts.tool_call_id)
    if call is not None:
        call.attempts = claim.attempt
        call.status = "claimed"
        step = state.open.steps[call.run_step_id]
        step.attempts = claim.attempt
        step.status = "queued"
        state.put(step)
        return
    state.open.calls[facts.tool_call_id] = ToolCallRow(
        tool_call_id=facts.tool_call_id,
        run_id=state.run_id,
        run_step_id=claim.step_id,
        intent_id=facts.intent_id,
        seq=event.seq,
        tool=tool,
        status="claimed",
        attempts=claim.attempt,
        idempotency_key=claim.key,
        provider_call_id=view.ref,
        arguments_summary=view.input,
    )
    step = StepRow(
        step_id=claim.step_id,
        run_id=state.run_id,
        seq=event.seq,
        type="tool",
        node=tool,
        status="queued",
        started_at=state.when(event),
        attempts=claim.attempt,
        site=event.site or None,
        input_summary=view.input,
    )
    state.open.steps[claim.step_id] = step
    state.put(step)


@on("tool.answered", "tool.failed")
def ended(state: FoldState, event: Event) -> None:
    facts, view = event.facts, event.view
    row = _call(state, event)
    row.ended_at = state.when(event)
    row.duration_ms = spent(facts.duration_us, row.dispatched_at, state.when(event))
    row.result_seq = event.seq
    row.result_artifact_id = facts.artifact_id
    row.result_summary = view.output
    if event.type == "tool.answered":
        row.status = "succeeded"
        row.result_bytes = facts.result_bytes
        row.error_code = row.error_message = None
    else:
        row.status, row.error_code, row.error_message = "failed", facts.error_code, view.error
        if facts.retrying:
            row.status = "dispatched" if facts.how == "unknown" else "claimed"
            state.put(row)
            return
    _close(state, event, row)


@on("tool.doubted")
def doubted(state: FoldState, event: Event) -> None:
    row = _call(state, event)
    row.status, row.error_code, row.error_message = "in_doubt", event.facts.why, event.view.error
    state.put(row)
    step = state.open.steps[row.run_step_id]
    step.error_code, step.error_message = "outcome_unknown", event.view.error
    state.put(step)


@on("tool.resolved")
def resolved(state: FoldState, event: Event) -> None:
    facts = event.facts
    row = state.open.calls.get(facts.tool_call_id)
    if row is None:
        return  # In the annex: the call's row belongs to its run's stream; the intent's row changes (intents.py).
    row.resolution = facts.resolution
    if facts.resolution == "happened":
        row.status, row.error_code, row.error_message = "succeeded", None, None
        row.result_seq, row.result_summary, row.ended_at = event.seq, event.view.output, event.at
        _close(state, event, row)
        return
    if facts.resolution == "abandon":
        row.status, row.error_code, row.ended_at = "failed", "abandoned", event.at
        _close(state, event, row)
        return
    row.status = "claimed" if facts.resolution == "resend" else "not_executed"
    state.put(row)


@on("tool.refused", "tool.replayed")
def never_sent(state: FoldState, event: Event) -> None:
    facts, view = event.facts, event.view
    refused = event.type == "tool.refused"
    failed = refused or facts.failed is not None
    error_code = facts.reason if refused else facts.error_code
    status = "refused" if refused else "failed" if failed else "succeeded"
    tool = named(facts.tool, view.name)
    # A call whose intent another run has taken over since it was claimed here.
    claimed = state.open.calls.pop(facts.tool_call_id, None)
    state.open.steps.pop(facts.step_id, None)
    state.put(
        ToolCallRow(
            tool_call_id=facts.tool_call_id,
            run_id=state.run_id,
            run_step_id=facts.step_id,
            intent_id=None if refused else facts.intent_id,
            seq=event.seq if claimed is None else claimed.seq,
            tool=tool,
            status=status,
            mode="executed" if refused else "replayed",
            provider_call_id=view.ref,
            ended_at=state.when(event),
            result_seq=event.seq,
            result_artifact_id=None if refused else facts.artifact_id,
            arguments_summary=view.input,
            result_summary=view.output,
            error_code=error_code,
            error_message=view.error,
        )
    )
    state.put(
        StepRow(
            step_id=facts.step_id,
            run_id=state.run_id,
            seq=event.seq,
            type="tool",
            node=tool,
            status="failed" if failed else "succeeded",
            started_at=state.when(event),
            end_seq=event.seq,
            ended_at=state.when(event),
            site=event.site or None,
            input_summary=view.input,
            output_summary=view.output,
            error_code=error_code,
        )
    )


def _call(state: FoldState, event: Event) -> ToolCallRow:
    row = state.open.calls.get(event.facts.tool_call_id)
    if row is None:
        raise state.broken(event, "the tool call", event.facts.tool_call_id)
    return row


def _close(state: FoldState, event: Event, row: ToolCallRow) -> None:
    """Ends the call and its step. A failed call stays open: its intent may be claimed again."""
    step = state.open.steps[row.run_step_id]
    step.status = row.status
    step.end_seq, step.ended_at, step.duration_ms = event.seq, row.ended_at, row.duration_ms
    step.output_summary = row.result_summary
    step.error_code, step.error_message = row.error_code, row.error_message
    state.put(row)
    state.put(step)
    if row.status == "succeeded" or row.observed:
        del state.open.calls[row.tool_call_id]
        del state.open.steps[row.run_step_id]
