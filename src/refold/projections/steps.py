"""`run_steps`: one row a unit of work, whatever kind of work it is."""

from __future__ import annotations

from refold.events.envelope import Event
from refold.projections.fold import FoldState, named, on, spent
from refold.projections.rows import StepRow


@on("step.completed", "step.failed")
def ended(state: FoldState, event: Event) -> None:
    # Runs are made of these, so what most of them lack is left to the row's defaults.
    facts, view, at = event.facts, event.view, event.at
    duration = facts.duration_us
    failed = event.type == "step.failed"
    row = StepRow(
        facts.step_id,
        state.run_id,
        event.seq,
        facts.type,
        named(facts.name, view.name),
        "failed" if failed else "skipped" if facts.skipped else "succeeded",
        at if duration is None else at - duration,
        end_seq=event.seq,
        ended_at=at,
        duration_ms=None if duration is None else duration / 1000,
        site=event.site or None,
        input_summary=view.input,
        output_summary=view.output,
    )
    if failed:
        row.error_code, row.error_message = facts.error_code, view.error
    state.put(row)


@on("signal.received", "context.compressed")
def delivered(state: FoldState, event: Event) -> None:
    signal = event.type == "signal.received"
    facts, view = event.facts, event.view
    state.put(
        StepRow(
            step_id=facts.step_id,
            run_id=state.run_id,
            seq=event.seq,
            type="io" if signal else "context",
            node=named(facts.signal, view.name) if signal else "compress",
            status="succeeded",
            started_at=state.when(event),
            end_seq=event.seq,
            ended_at=state.when(event),
            site=event.site or None,
            input_summary=view.input,
            output_summary=view.output,
            tokens_prompt=None if signal else facts.tokens_before,
            tokens_completion=None if signal else facts.tokens_after,
        )
    )


@on("child.started")
def child_started(state: FoldState, event: Event) -> None:
    facts, view = event.facts, event.view
    row = state.open.steps[facts.step_id] = StepRow(
        step_id=facts.step_id,
        run_id=state.run_id,
        seq=event.seq,
        type="workflow_node",
        node=named(facts.workflow, view.name),
        status="running",
        started_at=event.at,
        site=event.site or None,
        input_summary=view.input,
    )
    state.put(row)


@on("child.ended")
def child_ended(state: FoldState, event: Event) -> None:
    facts, view = event.facts, event.view
    row = state.open.steps.pop(facts.step_id, None)
    if row is None:
        raise state.broken(event, "the step", facts.step_id)
    row.status = "succeeded" if facts.status in ("succeeded", "detached") else "failed"
    row.end_seq, row.ended_at = event.seq, event.at
    row.duration_ms = spent(None, row.started_at, event.at)
    row.output_summary = view.output
    row.error_code, row.error_message = facts.error_code, view.error
    state.put(row)


@on("operation.refused")
def refused(state: FoldState, event: Event) -> None:
    facts, view = event.facts, event.view
    kinds = {"tool": "tool", "infer": "llm"}
    state.put(
        StepRow(
            step_id=facts.step_id,
            run_id=state.run_id,
            seq=event.seq,
            type=kinds.get(facts.operation, "workflow_node"),
            node=named(facts.name, view.name),
            status="failed",
            started_at=event.at,
            end_seq=event.seq,
            ended_at=event.at,
            site=event.site or None,
            error_code=facts.error_code,
            error_message=view.error,
        )
    )


@on("inference.requested")
def requested(state: FoldState, event: Event) -> None:
    facts, view = event.facts, event.view
    row = state.open.steps.get(facts.step_id)
    if row is None:
        row = state.open.steps[facts.step_id] = StepRow(
            step_id=facts.step_id,
            run_id=state.run_id,
            seq=event.seq,
            type="llm",
            node=named(facts.model, view.name),
            status="running",
            started_at=state.when(event),
            site=event.site or None,
            input_summary=view.input,
            provider=named(facts.provider, view.provider),
        )
    row.status = "running"
    row.attempts = facts.attempt
    state.put(row)


@on("inference.completed", "inference.failed", "inference.lost")
def inference_ended(state: FoldState, event: Event) -> None:
    facts = event.facts
    lost = event.type == "inference.lost"
    retrying = event.type == "inference.failed" and facts.retrying
    # A lost attempt may be followed by another; in an import nothing will ever follow.
    final = not (lost or retrying) or state.run(event).origin == "imported"
    row = state.open.steps.get(facts.step_id)
    if row is None:
        raise state.broken(event, "the step", facts.step_id)
    row.end_seq = event.seq
    row.ended_at = state.when(event)
    row.output_summary = event.view.output
    if lost:
        row.status, row.error_code = "failed", "lost"
    else:
        usage = facts.usage
        row.duration_ms = spent(facts.duration_us, row.started_at, state.when(event))
        if usage is not None:
            row.tokens_prompt, row.tokens_completion, row.tokens_cached = (
                usage.prompt,
                usage.completion,
                usage.cached,
            )
        if event.type == "inference.completed":
            row.status, row.finish = "succeeded", facts.finish
            row.error_code = row.error_message = None
        else:
            row.status = "running" if retrying else "failed"
            row.error_code, row.error_message = facts.error_code, event.view.error
    if final:
        del state.open.steps[facts.step_id]
    state.put(row)
