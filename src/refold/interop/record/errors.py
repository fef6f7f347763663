"""What recording and replaying a recording refuse."""

from __future__ import annotations

from refold.errors import RefoldError


class NothingRecorded(RefoldError):
    """A recorded block ended without an error, and not one request went through its clients.

    The agent has a client of its own, or a package that refold does not record at. The run is on record as failed: an
    empty recording that looks like a quiet night is worse than none.
    """

    code = "nothing_recorded"
    exit_status = 6
    remedy = (
        "Hand one of the recording's clients to the SDK, as in OpenAI(http_client=rec.httpx_client()), and use "
        "another key."
    )


class RecordingExists(RefoldError):
    """The key belongs to a recording that is there already. A recording cannot be resumed: code that is no workflow
    has no place at which it could go on.

    One whose process died is ended as failed when its key is asked for again, its unanswered requests as lost.
    """

    code = "recording_exists"
    exit_status = 6
    remedy = "Replay it with refold.replay_recording(run_id), or record under another key."


class RecordingOver(RefoldError):
    """A client of a recording was used after its block had ended. Nothing was sent: it could not have been recorded."""

    code = "recording_over"
    exit_status = 6
    remedy = "Use the clients inside the `with` block only, and wait there for the threads and tasks that use them."


class NotARecording(RefoldError):
    """The run was not made by `refold.record`, or by a version whose requests are matched by other rules."""

    code = "not_a_recording"
    exit_status = 2
    remedy = "`refold runs` lists the runs of a scope."


class RecordingDiverged(RefoldError):
    """The code asked for something that its recording does not hold, or no more. Nothing was sent in its place.

    `kind` is `changed_request` (no recorded request is equal; the nearest one and the path of the first difference are
    named), `exhausted` (all equal ones were used up), `unanswered` (the recorded request never got an answer) or `cut`
    (more of a stream was read than was read then).
    """

    code = "recording_diverged"
    exit_status = 5
    remedy = "Compare the request with the recorded one at the path that is named; undo the change, or record anew."


class ClientMissing(RefoldError):
    """The HTTP package whose client was asked for is not installed."""

    code = "client_missing"
    exit_status = 2
    remedy = "Install it: `pip install httpx2`. httpx itself comes with refold."
