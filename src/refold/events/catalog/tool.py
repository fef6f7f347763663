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

    `observed`: read from somebody else's record, where dispatch and answer were seen from outside.
    """

    claim: Claim | None = None
    deadline_us: int | None = None
    observed: bool = False


@event("tool.answered")
class ToolAnswered(_OfIntent, frozen=True, kw_only=True):
    """It happened and this is what came back. Content: result, or the artifact that holds it."""

    result_bytes: int
    artifact_id: str | None = None
    duration_us: int | None = None


@event("tool.failed")
class ToolFailed(_OfIntent, frozen=True, kw_only=True):
    """It definitely failed: the other side said no, or it was never sent. Content: error."""

    how: Literal["answered", "not_sent"]
    error_code: str = "tool_failed"
    retryable: bool = False
    artifact_id: str | None = None
    duration_us: int | None = None


@event("tool.doubted")
class ToolDoubted(_OfIntent, frozen=True, kw_only=True):
    """Dispatched, and not known how it ended."""

    why: Literal["crash", "timeout", "connection", "server_error", "canceled", "exception"]


@event("tool.resolved")
class ToolResolved(_OfIntent, frozen=True, kw_only=True):
    """Somebody, or a probe, settled a doubt. Content: basis, result."""

    resolution: Resolution
    by: Literal["person", "probe"]


@event("tool.refused")
class ToolRefused(Facts, frozen=True):
    """A call was refused before anything left. The intent stays unclaimed."""

    tool_call_id: str
    step_id: str
    tool: Name
    reason: Literal["policy", "quota", "egress", "rejected", "key_expired"]


@event("tool.replayed")
class ToolReplayed(Facts, frozen=True):
    """A call was answered from the record of an earlier one; nothing left the process."""

    tool_call_id: str
    step_id: str
    intent_id: str
    tool: Name
