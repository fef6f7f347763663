"""Who allowed what, who said what about it, and what was done to the record itself."""

from __future__ import annotations

from typing import Literal

from refold.events.catalog.base import Facts, Name, event


@event("approval.requested")
class ApprovalRequested(Facts, frozen=True):
    """A governed call waits for a person. `digest` binds exactly what would run. Content: arguments."""

    approval_id: str
    tool_call_id: str
    step_id: str
    tool: Name
    digest: str
    expires_at: int | None = None


@event("approval.decided")
class ApprovalDecided(Facts, frozen=True):
    """A person decided. `digest` is of what may run now, other than the requested one when it was edited. Content:
    comment.
    """

    approval_id: str
    decision: Literal["approved", "rejected"]
    digest: str
    edited: bool = False


@event("approval.expired")
class ApprovalExpired(Facts, frozen=True):
    """Nobody decided in time."""

    approval_id: str


@event("policy.decided")
class PolicyDecided(Facts, frozen=True):
    """A rule allowed or refused a call before it went."""

    policy: Name
    kind: Literal["permission", "egress", "quota"]
    decision: Literal["allow", "refuse", "ask"]
    step_id: str | None = None
    tool_call_id: str | None = None


@event("feedback.added")
class FeedbackAdded(Facts, frozen=True):
    """What somebody, or an evaluator, thought of the run. `score` is a decimal. Content: comment, details."""

    feedback_id: str
    source: Literal["person", "evaluator"]
    score: str | None = None


@event("content.erased")
class ContentErased(Facts, frozen=True):
    """Content, views, salts, blobs, artifacts and snapshots of the run are gone; the chain stays. Content: basis."""

    events: int
    blobs: int
    files: int


@event("incident.raised")
class IncidentRaised(Facts, frozen=True):
    """Something contradicts the record. Content: details."""

    kind: Literal["contradicting_answer", "late_answer", "other"]
    tool_call_id: str | None = None


@event("access.read")
class AccessRead(Facts, frozen=True):
    """Somebody read under audit."""

    what: Literal["run", "artifact", "events"]
    run_id: str | None = None


@event("access.exported")
class AccessExported(Facts, frozen=True):
    """Somebody exported under audit."""

    what: Literal["run", "events", "archive"]
    run_id: str | None = None
