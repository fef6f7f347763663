"""How asking a model fails. What is recorded of a failure is enough to raise it again in a replay."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from refold.errors import RefoldError
from refold.events.catalog.inference import Usage

ErrorCode = Literal["aborted", "provider_error", "timeout", "connection", "incomplete", "other"]

MOST_BODY = 4096
"""Characters of a provider's error that are kept."""


class InferenceFailed(RefoldError):
    """A model was asked and no answer came that counts.

    The step has its failure on record, and each attempt its cost entry. `retryable` says whether asking again may
    help, `retry_after` how many seconds the provider wants to be left alone, `status` its HTTP status, `body` what it
    said (the first 4096 characters). `answer_so_far` is the message as far as it had come, `usage` what the provider
    says that it used. `sent` is False when nothing had left this process.
    """

    code: ClassVar[str] = "inference_failed"
    exit_status: ClassVar[int] = 1
    error_code: ClassVar[ErrorCode] = "other"
    may_help: ClassVar[bool] = False
    remedy = "Look at the step's last event (`refold events RUN --exact`): it holds what the provider said."

    def __init__(
        self,
        message: str,
        *,
        retryable: bool | None = None,
        retry_after: float | None = None,
        status: int | None = None,
        body: str | None = None,
        sent: bool = True,
        usage: Usage | None = None,
        raw_usage: Any = None,
        answer_so_far: dict[str, Any] | None = None,
        **facts: Any,
    ) -> None:
        super().__init__(message, **facts)
        self.retryable = self.may_help if retryable is None else retryable
        self.retry_after = retry_after
        self.status = status
        self.body = None if body is None else body[:MOST_BODY]
        self.sent = sent
        self.usage = usage
        self.raw_usage = raw_usage
        self.answer_so_far = answer_so_far


class ProviderError(InferenceFailed):
    """The provider answered, and not with an answer: an error status, an error in the middle of a stream, or something
    that cannot be read.
    """

    code = "provider_error"
    error_code = "provider_error"
    remedy = "What the provider said stands in the step's last event; 4xx mostly means that the request must change."


class InferenceTimeout(InferenceFailed):
    """The whole answer was not there in the time that the step gives an attempt."""

    code = "inference_timeout"
    error_code = "timeout"
    may_help = True
    remedy = "Give the step a longer timeout, or ask for a shorter answer."


class ProviderUnreachable(InferenceFailed):
    """The connection to the provider could not be made, or broke before the answer had ended."""

    code = "provider_unreachable"
    error_code = "connection"
    may_help = True
    remedy = "Check that the provider's base URL is right and can be reached from here."


class AnswerIncomplete(InferenceFailed):
    """The provider ended its answer without saying that it was whole. What came is kept and not used."""

    code = "answer_incomplete"
    error_code = "incomplete"
    may_help = True
    remedy = "Ask again; when it goes on, the provider or a proxy before it cuts streams."


class InferenceAborted(InferenceFailed):
    """Nobody wanted the rest: code stopped reading a stream, or its task was cancelled."""

    code = "inference_aborted"
    error_code = "aborted"
    remedy = "Nothing is wrong. What had come by then, and what it is thought to cost, is on record."


class BadRequest(InferenceFailed):
    """A request to a model that cannot be sent: it holds something that is not JSON, or is not set up."""

    code = "bad_model_request"
    exit_status = 2
    remedy = "Make messages, settings and tools of dicts, lists, strings, numbers, booleans and None."


class ScriptExhausted(InferenceFailed):
    """A scripted model was asked more often than it has answers."""

    code = "script_exhausted"
    exit_status = 2
    remedy = "Add an answer to the script, or look at why the code asks once more."


BY_CODE: dict[str, type[InferenceFailed]] = {
    kind.code: kind
    for kind in (
        InferenceFailed,
        ProviderError,
        InferenceTimeout,
        ProviderUnreachable,
        AnswerIncomplete,
        InferenceAborted,
        BadRequest,
        ScriptExhausted,
    )
}
"""The class that a recorded failure is raised as."""

BY_ERROR_CODE: dict[str, type[InferenceFailed]] = {
    kind.error_code: kind
    for kind in (
        InferenceFailed,
        ProviderError,
        InferenceTimeout,
        ProviderUnreachable,
        AnswerIncomplete,
        InferenceAborted,
    )
}
"""The class for a failure of which nothing more is recorded than its fact."""
