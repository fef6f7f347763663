"""From what is recorded of an inference to what code gets: one way, live and replayed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import msgspec

from refold.events import values
from refold.events.catalog import inference as facts_of
from refold.events.content import PartList
from refold.events.envelope import Event
from refold.gateway.model_errors import BY_CODE, BY_ERROR_CODE, InferenceFailed
from refold.gateway.models import Completion, Part
from refold.ledger.drafts import Draft


def outcome(event: Event, content: Mapping[str, Any]) -> Completion:
    """What code gets for an `inference.completed`; raises the InferenceFailed that an `inference.failed` tells of.

    `content` is the event's exact content: from `refold.ledger.reading.exact_content`, or from `content_of` the draft
    while its parts cannot be read from the ledger yet.
    """
    facts = event.facts
    if isinstance(facts, facts_of.InferenceCompleted):
        return Completion(
            message=content["message"][0],
            finish=facts.finish,
            usage=facts.usage,
            raw_usage=content.get("usage"),
            response_id=content.get("response_id"),
            model=content.get("model"),
        )
    if isinstance(facts, facts_of.InferenceFailed):
        raise _failure(facts, content)
    raise ValueError(f"{event.type} is no outcome of an inference")


class AnswerDraft(Draft):
    """A draft of how an inference ended, with its message as it is encoded, which the content names as a part only."""

    message: bytes | None = None


def content_of(draft: Draft) -> dict[str, Any]:
    """What `exact_content` will give for the event of this draft, which `Inference` made."""
    found: dict[str, Any] = {}
    for name, value in (draft.content or {}).items():
        if isinstance(value, PartList):
            assert isinstance(draft, AnswerDraft)
            assert draft.message is not None
            found[name] = [values.decode(draft.message)]
        else:
            found[name] = values.decode(values.encode(value))
    return found


def part_of(event: Event, content: Mapping[str, Any]) -> Part:
    """The piece of an answer that an `inference.part` gave to code."""
    facts: facts_of.InferencePart = event.facts
    part: Part = msgspec.convert({**content, "index": facts.index, "attempt": facts.attempt}, Part)
    return part


def completed_content(answer: Completion) -> dict[str, Any]:
    """What is recorded of an answer beside its message."""
    said = {"usage": answer.raw_usage, "response_id": answer.response_id, "model": answer.model}
    return {name: value for name, value in said.items() if value is not None}


def failed_content(error: InferenceFailed) -> dict[str, Any]:
    """What is recorded of a failure beside the message so far."""
    told = {
        "code": error.code,
        "message": error.message,
        "retryable": error.retryable,
        "retry_after": error.retry_after,
        "status": error.status,
        "body": error.body,
    }
    content: dict[str, Any] = {"error": {name: value for name, value in told.items() if value is not None}}
    if error.raw_usage is not None:
        content["usage"] = error.raw_usage
    return content


def part_content(part: Part) -> dict[str, Any]:
    """What is recorded of a part."""
    content: dict[str, Any] = {"text": part.text} if part.text else {}
    if part.calls:
        content["calls"] = msgspec.to_builtins(part.calls)
    return content


class Standing(NamedTuple):
    """How far a step's inference has come on record: the number of its last attempt, how many attempts failed, and the
    request that nothing followed - which is lost when the process that made it is gone.
    """

    attempts: int = 0
    failures: int = 0
    unanswered: facts_of.InferenceRequested | None = None


def standing(events: Iterable[Event]) -> Standing:
    """Where the events of one step leave it; an ended step is asked about no more."""
    found = Standing()
    for event in events:
        facts = event.facts
        if isinstance(facts, facts_of.InferenceRequested):
            found = Standing(facts.attempt, found.failures, facts)
        elif isinstance(facts, facts_of.InferenceFailed):
            found = Standing(max(found.attempts, facts.attempt), found.failures + 1)
        elif isinstance(facts, facts_of.InferenceLost | facts_of.InferenceCompleted):
            found = Standing(found.attempts, found.failures)
    return found


def _failure(facts: facts_of.InferenceFailed, content: Mapping[str, Any]) -> InferenceFailed:
    told = content.get("error")
    if not isinstance(told, Mapping):
        # An import says it in words, or not at all.
        kind = BY_ERROR_CODE[facts.error_code]
        return kind(told if isinstance(told, str) else f"Asking the model failed: {facts.error_code}.")
    kind = BY_CODE.get(told["code"], BY_ERROR_CODE[facts.error_code])
    so_far = content.get("message")
    return kind(
        told["message"],
        retryable=told["retryable"],
        retry_after=told.get("retry_after"),
        status=told.get("status"),
        body=told.get("body"),
        usage=facts.usage,
        raw_usage=content.get("usage"),
        answer_so_far=so_far[0] if so_far else None,
    )
