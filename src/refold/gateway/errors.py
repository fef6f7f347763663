"""What a tool call can end with besides a result, and what the gateway refuses."""

from __future__ import annotations

from typing import Any

from refold.errors import RefoldError


class ToolFailed(RefoldError):
    """A tool call failed: raised by a tool's code to say "they answered no", and what the workflow's code catches.

    Only a definite answer is one: a timeout, a reset or a 500 is not. `retryable` says that asking again may help.
    """

    code = "tool_failed"
    exit_status = 1
    remedy = "Handle it in the workflow, or let it end the run; a retryable one is tried again by the tool's policy."

    def __init__(self, message: str = "", *, retryable: bool = False, **facts: Any) -> None:
        super().__init__(message, retryable=retryable, **facts)
        self.retryable = retryable


class NotSent(ToolFailed):
    """Nothing left the process: no connection could be made, or the deadline passed before the write.

    A tool's code may raise it too, as long as it knows that nothing was sent.
    """

    code = "not_sent"
    remedy = "Call again when the other side can be reached: nothing has happened there."

    def __init__(self, message: str = "", *, retryable: bool = True, **facts: Any) -> None:
        super().__init__(message, retryable=retryable, **facts)


class NoAnswer(ToolFailed):
    """Every attempt of a tool that may be repeated ended without an answer (timeout, reset, 5xx, an exception).

    An unsafe tool never ends so: there it is a doubt.
    """

    code = "no_answer"
    remedy = "Call again later, or give the tool a longer timeout or more attempts."


class Abandoned(ToolFailed):
    """A doubt was given up by a person: whether the effect happened is not known, and the run goes on without knowing.

    For everybody else the intent stays in doubt.
    """

    code = "abandoned"
    remedy = "Treat the effect as possibly done; what resolves the intent later is in the run's annex."


class Refused(RefoldError):
    """A tool call was refused before anything left the process."""

    code = "refused"
    exit_status = 6
    remedy = "The facts name who or what refused, and why."


class IdempotencyConflict(Refused):
    """This key was used for another call: other arguments, or another version of the tool. Nothing was sent.

    Facts: `path`, the first place at which the arguments differ, or `version`.
    """

    code = "idempotency_conflict"
    remedy = "Use a key of its own for each effect; the same key with the same arguments gives the recorded outcome."


class InProgress(Refused):
    """Another run is making this very call. Facts: `owner`, the run that does, and `age_us` where it is known."""

    code = "in_progress"
    remedy = "Call again when the owner has ended the call; its answer is then replayed."


class OutcomeUnknown(Refused):
    """The call was sent by another run and it is not known how it ended. Nothing was sent again."""

    code = "outcome_unknown"
    remedy = "Have somebody resolve the doubt (`refold resolve CALL`), then call again."


class NotOffered(Refused):
    """A model asked for a tool that no request of the run had offered it. Nothing was called: what a model may do is
    what `tools=` of its requests says, and not all that the App has.
    """

    code = "not_offered"
    remedy = "Offer the tool (`run.infer(..., tools=[...])`), or call it yourself when the code wants it."


class KeyExpired(Refused):
    """The key of an unsafe call is older than keys are kept, so that it cannot be told whether it was done."""

    code = "key_expired"
    remedy = "Find out on the other side, then call with a new key."


class ReceiptErased(Refused):
    """The call was made and answered, and the answer was erased on request. It is not made again."""

    code = "receipt_erased"
    remedy = "Nothing can bring the answer back; use another key for another effect."


class ChangedCall(RefoldError):
    """The code asks at this site for another call than the one on record. Nothing was sent.

    Facts: `site`, `tool`, `path` of the first difference. The run pauses as diverged.
    """

    code = "changed_call"
    exit_status = 6
    remedy = "Bring the code back, or fork the run before the call and go on from there."


class ResultNotRecordable(RefoldError):
    """The tool answered, and its answer could not be recorded losslessly. It is not called again.

    `kept` is what could be kept. Facts: `path`, `type` and `reason` of what could not.
    """

    code = "result_not_recordable"
    exit_status = 2
    remedy = "Make the tool return JSON, a standard type, or a class that is annotated or registered with the App."

    def __init__(self, message: str, *, kept: Any = None, **facts: Any) -> None:
        super().__init__(message, **facts)
        self.kept = kept


class NestedCall(RefoldError):
    """A tool was called inside a tool or a step, where the call could be neither recorded nor resumed."""

    code = "nested_call"
    exit_status = 2
    remedy = "Call it from the workflow's own code, or call the plain function behind it: `tool.function(...)`."


class BadTool(RefoldError):
    """A tool's declaration cannot hold: its key template names no parameter, a number is out of range."""

    code = "bad_tool"
    exit_status = 2
    remedy = "Correct the declaration."


class BadKey(RefoldError):
    """A key for a tool call is empty, too long, or made from an argument that names nothing."""

    code = "bad_key"
    exit_status = 2
    remedy = "Give 1 to 255 characters that name this one effect."


class BadArguments(RefoldError):
    """Arguments do not fit the tool's parameters. Nothing was sent. Facts: `tool`, `reason`."""

    code = "bad_arguments"
    exit_status = 2
    remedy = "Give each required parameter a value of its type, and no others."


class NoSuchCall(RefoldError):
    """There is no such tool call in this scope."""

    code = "no_such_call"
    exit_status = 2
    remedy = "`refold tool-calls` lists the calls of a scope."


class NotInDoubt(RefoldError):
    """The call's outcome is known, or its owner is still at it: there is nothing to resolve."""

    code = "not_in_doubt"
    exit_status = 6
    remedy = "`refold tool-calls --status in_doubt` lists what `refold resolve` can settle."


class TooEarly(RefoldError):
    """ "Did not happen" is said before it can be known: until the call's deadline and its settling time have passed,
    the other side may still do it. Facts: `until`, microseconds UTC.
    """

    code = "too_early"
    exit_status = 6
    remedy = "Ask the other side again after that time."


class AlreadyResolved(RefoldError):
    """Somebody has resolved this doubt in another way. The first resolution stands."""

    code = "already_resolved"
    exit_status = 6
    remedy = "Read the audit for who resolved it and on what basis."
