"""What happens inside a run besides models and tools: pure steps, messages received, contexts compressed."""

from __future__ import annotations

from typing import Literal

from refold.events.catalog.base import Facts, Name, event

StepType = Literal[
    "llm",
    "retrieval",
    "rerank",
    "tool",
    "workflow_node",
    "agent_plan",
    "memory_write",
    "io",
    "validation",
    "context",
    "approval",
    "other",
]


@event("step.completed")
class StepCompleted(Facts, frozen=True):
    """A pure step ran once and its result is recorded. Content: input, output."""

    step_id: str
    name: Name
    type: StepType = "workflow_node"
    duration_us: int | None = None
    skipped: bool = False


@event("step.failed")
class StepFailed(Facts, frozen=True):
    """A pure step raised. Content: input, error."""

    step_id: str
    name: Name
    error_code: str
    type: StepType = "workflow_node"
    duration_us: int | None = None


@event("signal.received")
class SignalReceived(Facts, frozen=True):
    """Something from outside was delivered: in a session, what a person wrote. Content: value."""

    step_id: str
    signal: Name


@event("timer.fired")
class TimerFired(Facts, frozen=True):
    """A sleep, timeout or other timer of the run's code went off, `delay_us` after the delivery in which it was set."""

    delay_us: int


@event("child.started")
class ChildStarted(Facts, frozen=True):
    """A child run is wanted, and is created under this id when this event is durable. Content: input."""

    step_id: str
    child_run_id: str
    workflow: Name
    attached: bool = True


@event("child.ended")
class ChildEnded(Facts, frozen=True):
    """A child run ended. Content: output, or error."""

    step_id: str
    child_run_id: str
    status: Literal["succeeded", "failed", "canceled", "expired", "detached"]
    error_code: str | None = None


@event("operation.refused")
class OperationRefused(Facts, frozen=True):
    """An operation was refused before it began. Content: error."""

    step_id: str
    operation: Literal["step", "tool", "infer", "child"]
    name: Name
    error_code: str


@event("context.compressed")
class ContextCompressed(Facts, frozen=True):
    """The conversation so far was replaced by a summary. Content: summary."""

    step_id: str
    tokens_before: int | None = None
    tokens_after: int | None = None


@event("artifact.stored")
class ArtifactStored(Facts, frozen=True):
    """Bytes too large for a row. `digest` is over the stored, salted bytes (hex). Content: sha256 of the plain bytes,
    name.
    """

    artifact_id: str
    kind: Literal["tool_result", "input", "output", "attachment"]
    type: Literal["json", "text", "binary"]
    mime: str
    size_bytes: int
    digest: str
    blob: int
    store: Literal["blob", "file"] = "blob"
    step_id: str | None = None
    tool_call_id: str | None = None
