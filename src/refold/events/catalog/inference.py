"""Asking models, and what it costs. At-least-once: each attempt is an event with its own cost entry."""

from __future__ import annotations

from typing import Literal

import msgspec

from refold.events.catalog.base import Facts, Name, event

Finish = Literal["stop", "tool_use", "length", "content_filter", "other"]


class Usage(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True, gc=False):
    """Tokens, normalised once: `prompt` includes what was read from and written to a cache. The provider's own
    figures stay in the content."""

    prompt: int = 0
    completion: int = 0
    cached: int = 0
    cache_write: int = 0
    reasoning: int = 0


@event("inference.requested")
class InferenceRequested(Facts, frozen=True):
    """Durable before the request leaves. Content: messages and tools (part lists), settings; recorded at the transport,
    the request itself.

    `fingerprint` is a keyed digest of what makes two requests equal, for a replay to compare. `reserved_...` is the
    most that the attempt was expected to use; it counts as spent when no outcome follows.
    """

    step_id: str
    model: Name
    provider: Name
    attempt: int = 1
    operation: Literal["chat", "completion", "embedding", "rerank", "other"] = "chat"
    fingerprint: str | None = None
    reserved_tokens: int | None = None
    reserved_amount: str | None = None
    reserved_currency: str | None = None


@event("inference.part")
class InferencePart(Facts, frozen=True):
    """A piece of an attempt's answer that code was given before the whole was there. `index` counts from 0 within the
    attempt. Content: text, calls.
    """

    step_id: str
    index: int
    attempt: int = 1


@event("inference.completed")
class InferenceCompleted(Facts, frozen=True):
    """An attempt was answered. Content: message (a part list of one), usage as the provider wrote it, response_id,
    model as the provider named it; recorded at the transport, the response itself.
    """

    step_id: str
    finish: Finish
    attempt: int = 1
    usage: Usage | None = None
    duration_us: int | None = None


@event("inference.failed")
class InferenceFailed(Facts, frozen=True):
    """An attempt ended without an answer that counts. What it used is kept. Content: message so far, error.

    `retrying`: another attempt follows, so the step goes on.
    """

    step_id: str
    error_code: Literal["aborted", "provider_error", "timeout", "connection", "incomplete", "other"]
    attempt: int = 1
    usage: Usage | None = None
    duration_us: int | None = None
    retrying: bool = False


@event("inference.lost")
class InferenceLost(Facts, frozen=True):
    """The process that asked died before an answer was recorded. Another attempt may follow."""

    step_id: str
    attempt: int = 1


@event("cost.recorded")
class CostRecorded(Facts, frozen=True):
    """One metered call. `amount` is a decimal in the currency's unit, None when no price is known - never zero for
    that.

    `source_ref` names what was metered and is unique in the scope. `pricing` is the version of the price table, or
    `source` when the amount was read from an import.
    """

    cost_id: str
    source_ref: str
    step_id: str | None = None
    currency: str | None = None
    amount: str | None = None
    estimated: bool = False
    pricing: str | None = None
    basis: Literal["tokens", "request", "second", "byte", "other"] = "tokens"
    quantity: str | None = None
    provider: Name | None = None
    model: Name | None = None
    usage: Usage | None = None
    latency_us: int | None = None
    requests: int = 1
    embeddings: int = 0
    reranks: int = 0
    vectors: int = 0
    storage_bytes: int = 0
