"""Effects on the outside world. An intent is one logical effect; a call is one call site; attempts are events.

Every event that touches an intent carries its gapless `revision`; the fold of `tool_intents` applies them in that
order, whatever streams they stand in.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from refold.events.catalog.base import Facts, Name, event

Effect = Literal["pure", "read", "idempotent", "unsafe"]
Resolution = Literal["happened", "did_not_happen", "resend", "abandon"]


class Claim(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True, gc=False):
    """Who wants which effect: the identity of the intent and of the call. Digests are hex, keyed by the tenant's
    secret.
    """

    step_id: str
    tool: Name
    key: str
    fingerprint: str
    effect_domain: str
    version: int = 1
    effect: Effect = "unsafe"
    attempt: int = 1


class _OfIntent(Facts, frozen=True, kw_only=True):
    intent_id: str
    tool_call_id: str
    revision: int


@event("tool.claimed")
class ToolClaimed(_OfIntent, frozen=True, kw_only=True):
    """The effect is wanted and not yet sent; written where claim and dispatch are two commits. Content: arguments."""

    claim: Claim


@event("tool.dispatched")
class ToolDispatched(_OfIntent, frozen=True, kw_only=True):
    """From here on it may have happened. Carries the claim when both are one commit. Content then: arguments.

    `observed`: read from somebody else's record, where dispatch and answer were seen from outside. Times are
    microseconds UTC: the call's deadline; when a "did not happen" begins to count (`settles_us`); when the other side
    may have forgotten the key (`key_expires_us`).
    """

    claim: Claim | None = None
    deadline_us: int | None = None
    observed: bool = False
    settles_us: int | None = None
    key_expires_us: int | None = None


@event("tool.answered")
class ToolAnswered(_OfIntent, frozen=True, kw_only=True):
    """It happened and this is what came back. Content: result, or nothing where an artifact holds it; for a result
    that could not be recorded `not_recordable` (path, type, reason) and `kept`.
    """

    result_bytes: int
    artifact_id: str | None = None
    duration_us: int | None = None


@event("tool.failed")
class ToolFailed(_OfIntent, frozen=True, kw_only=True):
    """It failed: the other side said no, or it was never sent, or (`unknown`) nothing came back from a tool that may be
    repeated. `retrying`: another attempt follows, and the call has no outcome yet. Content: error.
    """

    how: Literal["answered", "not_sent", "unknown"]
    error_code: str = "tool_failed"
    retryable: bool = False
    artifact_id: str | None = None
    duration_us: int | None = None
    retrying: bool = False


@event("tool.doubted")
class ToolDoubted(_OfIntent, frozen=True, kw_only=True):
    """Dispatched, and not known how it ended. Content: error, what the attempt raised, if it did."""

    why: Literal["crash", "timeout", "connection", "server_error", "canceled", "exception"]


@event("tool.resolved")
class ToolResolved(_OfIntent, frozen=True, kw_only=True):
    """Somebody, or a probe, settled a doubt. Content: basis, result."""

    resolution: Resolution
    by: Literal["person", "probe"]


@event("tool.refused")
class ToolRefused(Facts, frozen=True):
    """A call was refused before anything left. The intent stays as it was. Content: arguments, error."""

    tool_call_id: str
    step_id: str
    tool: Name
    reason: Literal[
        "policy",
        "quota",
        "egress",
        "rejected",
        "key_expired",
        "conflict",
        "in_progress",
        "outcome_unknown",
        "receipt_erased",
        "canceled",
    ]
    fingerprint: str | None = None


@event("tool.replayed")
class ToolReplayed(Facts, frozen=True):
    """A call was answered from the record of an earlier one; nothing left the process. Content: arguments, and what the
    earlier one has: result, `not_recordable` and `kept`, or error.
    """

    tool_call_id: str
    step_id: str
    intent_id: str
    tool: Name
    fingerprint: str | None = None
    artifact_id: str | None = None
    failed: Literal["answered", "not_sent", "unknown"] | None = None
    error_code: str | None = None
    retryable: bool = False
