"""The rows of the tables that people query: one struct a table, from which DDL, upserts, schemas and docs are made.

`tenant_id` and `workspace_id` stand in front of every table's columns; the store adds them. Times are microseconds
UTC, durations milliseconds, money decimal strings. A struct's `TABLE` says how it is stored.
"""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

import msgspec


class Table(NamedTuple):
    """How a row struct is stored: name, key columns, further unique and plain indexes, and partial ones for the few
    rows that somebody still has to look after, or that have a parent (columns, condition).
    """

    name: str
    key: tuple[str, ...]
    unique: tuple[tuple[str, ...], ...] = ()
    indexes: tuple[tuple[str, ...], ...] = ()
    partial: tuple[tuple[tuple[str, ...], str], ...] = ()


class Row(msgspec.Struct, gc=False):
    """Base of the row structs."""

    TABLE: ClassVar[Table]

    def identity(self) -> tuple[Any, ...]:
        """The values of its table's key: which row of a scope it is."""
        return tuple(getattr(self, name) for name in self.TABLE.key)


class RunRow(Row):
    """One execution."""

    TABLE = Table(
        "runs",
        ("run_id",),
        unique=(("key_digest", "attempt_no"),),
        indexes=(("lineage_root",), ("status", "created_at")),
        partial=(
            (("parent_run_id",), "parent_run_id IS NOT NULL"),
            (("run_id",), "status NOT IN ('succeeded', 'failed', 'canceled', 'expired')"),
        ),
    )

    run_id: str
    workflow: str
    status: str
    reason: str | None
    origin: str
    effect_domain: str
    lineage_root: str
    attempt_no: int
    created_at: int
    started_at: int | None = None
    ended_at: int | None = None
    duration_ms: float | None = None
    key: str | None = None
    key_digest: str | None = None
    input_digest: str | None = None
    input_summary: str | None = None
    input_seq: int | None = None
    output_summary: str | None = None
    output_seq: int | None = None
    error_code: str | None = None
    error_message: str | None = None
    error_step_id: str | None = None
    parent_run_id: str | None = None
    source_run_id: str | None = None
    replay_kind: str | None = None
    sandbox: bool = False
    workflow_version: int | None = None
    config_digest: str | None = None
    subject_kind: str | None = None
    subject_id: str | None = None
    subject_version: int | None = None
    user_id: str | None = None
    api_key_id: str | None = None
    trace_id: str | None = None
    request_id: str | None = None
    capture: str = "full"
    engine: str | None = None


class StepRow(Row):
    """One unit inside a run. `seq` is its first event, `end_seq` its last."""

    TABLE = Table("run_steps", ("run_id", "step_id"))

    step_id: str
    run_id: str
    seq: int
    type: str
    node: str | None
    status: str
    started_at: int | None
    end_seq: int | None = None
    ended_at: int | None = None
    duration_ms: float | None = None
    attempts: int = 1
    site: str | None = None
    input_summary: str | None = None
    output_summary: str | None = None
    error_code: str | None = None
    error_message: str | None = None
    provider: str | None = None
    finish: str | None = None
    tokens_prompt: int | None = None
    tokens_completion: int | None = None
    tokens_cached: int | None = None


class ToolCallRow(Row):
    """One call site of a tool, pointing to its intent. `provider_call_id` is the model's own id of the call: never
    unique.
    """

    TABLE = Table(
        "run_step_tool_calls",
        ("tool_call_id",),
        unique=(("run_step_id",), ("run_id", "tool_call_id")),
        indexes=(("provider_call_id",),),
        partial=((("status",), "status NOT IN ('succeeded', 'failed')"),),
    )

    tool_call_id: str
    run_id: str
    run_step_id: str
    intent_id: str | None
    seq: int
    tool: str
    status: str
    mode: str = "executed"
    observed: bool = False
    attempts: int = 1
    idempotency_key: str | None = None
    provider_call_id: str | None = None
    dispatched_at: int | None = None
    ended_at: int | None = None
    duration_ms: float | None = None
    result_seq: int | None = None
    result_bytes: int | None = None
    result_artifact_id: str | None = None
    arguments_summary: str | None = None
    result_summary: str | None = None
    error_code: str | None = None
    error_message: str | None = None
    resolution: str | None = None


class IntentRow(Row):
    """One logical effect in an effect domain. `revision` counts the events that touched it."""

    TABLE = Table(
        "tool_intents",
        ("intent_id",),
        unique=(("idempotency_key",),),
        indexes=(("effect_domain", "fingerprint"),),
        partial=((("status",), "status NOT IN ('succeeded', 'failed')"),),
    )

    intent_id: str
    effect_domain: str
    tool: str
    tool_version: int
    effect: str
    idempotency_key: str
    fingerprint: str
    status: str
    revision: int
    owner_run_id: str
    attempts: int = 1
    settled: int = 0
    observed: bool = False
    deadline_us: int | None = None
    settles_us: int | None = None
    key_expires_us: int | None = None
    receipt_run_id: str | None = None
    receipt_seq: int | None = None
    resolution: str | None = None


class ArtifactRow(Row):
    """A file that the execution produced. `sha256` is of the plain bytes and is erased with them."""

    TABLE = Table("run_artifacts", ("run_id", "artifact_id"))

    artifact_id: str
    run_id: str
    seq: int
    kind: str
    type: str
    mime: str
    size_bytes: int
    store: str
    blob: int
    storage_key: str
    step_id: str | None = None
    tool_call_id: str | None = None
    sha256: str | None = None


class CostRow(Row):
    """Usage and cost of one metered call. `amount` None: unpriced, which is not zero."""

    TABLE = Table("run_cost_entries", ("run_id", "cost_id"), unique=(("source_ref",),))

    cost_id: str
    run_id: str
    seq: int
    step_id: str | None
    source_ref: str
    at: int
    currency: str | None
    amount: str | None
    estimated: bool
    pricing: str | None
    basis: str
    quantity: str | None
    provider: str | None
    model: str | None
    tokens_prompt: int = 0
    tokens_completion: int = 0
    tokens_cached: int = 0
    tokens_total: int = 0
    latency_ms: float | None = None
    requests: int = 1
    embeddings: int = 0
    reranks: int = 0
    vectors: int = 0
    storage_bytes: int = 0


class ApprovalRow(Row):
    """A question to a person about one call."""

    TABLE = Table("approvals", ("approval_id",), indexes=(("run_id",),), partial=((("status",), "status = 'pending'"),))

    approval_id: str
    run_id: str
    seq: int
    tool_call_id: str
    step_id: str
    tool: str
    digest: str
    status: str
    requested_at: int
    expires_at: int | None = None
    arguments_summary: str | None = None


class DecisionRow(Row):
    """What a person answered."""

    TABLE = Table("approval_decisions", ("approval_id",), indexes=(("run_id",),))

    approval_id: str
    run_id: str
    seq: int
    decision: str
    digest: str
    edited: bool
    by: str
    at: int
    comment: str | None = None


class FeedbackRow(Row):
    """What somebody thought of the run. Fed by the stream it was added to: `stream` is run or annex."""

    TABLE = Table("feedback", ("run_id", "feedback_id"))

    feedback_id: str
    run_id: str
    stream: str
    seq: int
    source: str
    score: str | None
    by: str
    at: int
    comment: str | None = None


class AuditRow(Row):
    """Everything that somebody must answer for, in the order of its stream."""

    TABLE = Table("audit", ("stream", "seq"), indexes=(("run_id",),))

    stream: str
    seq: int
    run_id: str | None
    event: str
    actor: str
    at: int
    subject: str | None
    outcome: str | None
    detail: str | None = None


ROWS: tuple[type[Row], ...] = (
    RunRow,
    StepRow,
    ToolCallRow,
    IntentRow,
    ArtifactRow,
    CostRow,
    ApprovalRow,
    DecisionRow,
    FeedbackRow,
    AuditRow,
)
"""All tables that are folds of events, in the order in which they are created."""
