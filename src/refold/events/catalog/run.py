"""The life of a run."""

from __future__ import annotations

from typing import Literal

from refold.events.catalog.base import Facts, Name, event

Reason = Literal["imported", "in_doubt", "diverged", "requested", "waiting"]
CaptureMode = Literal["full", "metadata_only"]


@event("run.created")
class RunCreated(Facts, frozen=True):
    """The first event of every run stream. Content: input, key, and what the source said of itself.

    `rules` is the version of the rules by which sites are made; `seed` (hex) is where the run's randomness comes from;
    `deadline_us` is when it expires; `site_path` is where in its parent's code a child was asked for, from the root
    down.
    """

    workflow: Name
    effect_domain: str
    lineage_root: str
    origin: Literal["live", "imported"] = "live"
    workflow_version: int | None = None
    subject_kind: Literal["workflow", "session", "tool"] = "workflow"
    subject_id: Name | None = None
    key_digest: str | None = None
    input_digest: str | None = None
    parent_run_id: str | None = None
    source_run_id: str | None = None
    attempt_no: int = 1
    replay_kind: str | None = None
    sandbox: bool = False
    config_digest: str | None = None
    user_id: Name | None = None
    api_key_id: str | None = None
    trace_id: str | None = None
    request_id: str | None = None
    capture: CaptureMode = "full"
    engine: str | None = None
    rules: int = 1
    seed: str | None = None
    deadline_us: int | None = None
    site_path: str = ""


@event("run.started")
class RunStarted(Facts, frozen=True):
    """Code began to run, or an imported session was opened."""


@event("run.paused")
class RunPaused(Facts, frozen=True):
    """The run waits; nothing can move it but what `reason` names."""

    reason: Reason


@event("run.resumed")
class RunResumed(Facts, frozen=True):
    """The run goes on after a pause."""


@event("run.checkpointed")
class RunCheckpointed(Facts, frozen=True):
    """A new segment begins: the workflow's function starts again from input and state. Content: state.

    `unconsumed` are the seqs of signals that came and that nobody waited for yet; they pass into the new segment.
    """

    segment: int
    unconsumed: tuple[int, ...] = ()


@event("run.stop_requested")
class RunStopRequested(Facts, frozen=True):
    """The code was told to stop, as `asyncio` cancels a task: the run ends when what is under way has settled. Content:
    basis.
    """

    why: Literal["canceled", "expired"]


@event("run.succeeded")
class RunSucceeded(Facts, frozen=True):
    """Terminal. Content: output."""


@event("run.failed")
class RunFailed(Facts, frozen=True):
    """Terminal. Content: message, details."""

    error_code: str
    step_id: str | None = None


@event("run.canceled")
class RunCanceled(Facts, frozen=True):
    """Terminal: somebody asked for the end. Content: basis."""


@event("run.expired")
class RunExpired(Facts, frozen=True):
    """Terminal: a deadline passed."""


TERMINAL = frozenset({"run.succeeded", "run.failed", "run.canceled", "run.expired"})
"""Types that close a run's stream; nothing follows them in it."""
