"""`runs`: one row an execution, and the table of its status transitions."""

from __future__ import annotations

from refold.errors import RefoldError
from refold.events.envelope import Event
from refold.projections.fold import FoldState, milliseconds, named, on
from refold.projections.rows import RunRow


class InvalidTransition(RefoldError):
    """A run was asked to change to a status that its present one does not allow. Nothing was written."""

    code = "invalid_transition"
    exit_status = 6
    remedy = "Terminal statuses are final: start a new run, or a retry, instead."


_ACTIVE = ("queued", "preparing", "running", "waiting_input", "waiting_approval", "paused", "retrying")
_ENDS = ("succeeded", "failed", "canceled", "expired")

STATUS_AFTER: dict[str, str] = {
    "run.started": "running",
    "run.paused": "paused",
    "run.resumed": "running",
    "run.succeeded": "succeeded",
    "run.failed": "failed",
    "run.canceled": "canceled",
    "run.expired": "expired",
}
"""The status that each event of a run's life leads to."""

TRANSITIONS: dict[str, tuple[str, ...]] = {
    "queued": ("preparing", "running", "paused", "canceled", "expired", "failed"),
    "preparing": ("running", "paused", "canceled", "expired", "failed"),
    "running": ("waiting_input", "waiting_approval", "paused", "retrying", *_ENDS),
    "waiting_input": ("running", "paused", *_ENDS),
    "waiting_approval": ("running", "paused", *_ENDS),
    "paused": ("running", "paused", *_ENDS),
    "retrying": ("running", "paused", *_ENDS),
    **dict.fromkeys(_ENDS, ()),
}
"""Which statuses may follow which. Whatever is not here is refused."""


def status_after(current: str, event_type: str, where: str) -> str:
    """The status that `event_type` leads to from `current`. Raises InvalidTransition."""
    target = STATUS_AFTER[event_type]
    if target not in TRANSITIONS[current]:
        raise InvalidTransition(
            f"{where} is {current} and cannot become {target}.", run_id=where, status=current, wanted=target
        )
    return target


@on("run.created")
def created(state: FoldState, event: Event) -> None:
    facts, view = event.facts, event.view
    row = RunRow(
        run_id=state.run_id,
        workflow=named(facts.workflow, view.name),
        status="queued",
        reason=None,
        origin=facts.origin,
        effect_domain=facts.effect_domain,
        lineage_root=facts.lineage_root,
        attempt_no=facts.attempt_no,
        created_at=event.at,
        key=view.ref,
        key_digest=facts.key_digest,
        input_digest=facts.input_digest,
        input_summary=view.input,
        input_seq=event.seq,
        parent_run_id=facts.parent_run_id,
        source_run_id=facts.source_run_id,
        replay_kind=facts.replay_kind,
        sandbox=facts.sandbox,
        workflow_version=facts.workflow_version,
        config_digest=facts.config_digest,
        subject_kind=facts.subject_kind,
        subject_id=facts.subject_id,
        subject_version=facts.workflow_version,
        user_id=facts.user_id,
        api_key_id=facts.api_key_id,
        trace_id=facts.trace_id,
        request_id=facts.request_id,
        capture=facts.capture,
        engine=facts.engine,
    )
    state.open.run = row
    state.put(row)


@on("run.started", "run.paused", "run.resumed", "run.succeeded", "run.failed", "run.canceled", "run.expired")
def moved(state: FoldState, event: Event) -> None:
    row = state.run(event)
    row.status = status_after(row.status, event.type, row.run_id)
    row.reason = event.facts.reason if event.type == "run.paused" else None
    if event.type == "run.started" and row.started_at is None:
        row.started_at = state.when(event)
    if not TRANSITIONS[row.status]:
        row.ended_at = event.at if event.type == "run.canceled" else state.when(event)
        row.duration_ms = milliseconds(row.started_at, row.ended_at)
        if event.view.output is not None:
            row.output_summary = event.view.output
            row.output_seq = event.seq
    if event.type == "run.failed":
        row.error_code = event.facts.error_code
        row.error_step_id = event.facts.step_id
        row.error_message = event.view.error
    state.put(row)


@on("run.checkpointed")
def checkpointed(state: FoldState, event: Event) -> None:
    state.open.checkpoint = event.seq
