"""What a run refuses, and how it ends for whoever waits for it."""

from __future__ import annotations

from typing import Any

from refold.errors import RefoldError


class NotDeterministic(RefoldError):
    """Workflow code did something whose result would not be the same in a replay: a socket, a thread, a process.

    Code of a workflow runs again whenever its run is resumed or replayed. What it learns from the outside must come
    through an operation, whose result is recorded.
    """

    code = "not_deterministic"
    exit_status = 2
    remedy = "Put it into a step (`await run.step(f, ...)`), or into a tool when it changes something outside."


class NeverQuiet(RefoldError):
    """Workflow code went on and on without waiting for anything: a loop around `asyncio.sleep(0)`, for example.

    A run takes the next answer, timer or signal only when its code is quiet.
    """

    code = "never_quiet"
    exit_status = 2
    remedy = "Wait for what the loop waits for: await the task, the event, or `run.sleep(seconds)`."


class NotQuiet(RefoldError):
    """A checkpoint was asked for while other operations of the run were under way."""

    code = "not_quiet"
    exit_status = 2
    remedy = "Await or cancel what is under way before `run.checkpoint(state)`."


class NothingMoves(RefoldError):
    """Workflow code waits for something that no operation will ever bring: a future or an event that nobody sets.

    No answer, timer, signal or doubt is outstanding, so nothing can move the run.
    """

    code = "nothing_moves"
    exit_status = 2
    remedy = "Look for a task that waits for something else than an operation, a timer or another task of the run."


class OutsideRun(RefoldError):
    """An operation was asked for outside the code of its run: in a step, a tool, or after the run's end."""

    code = "outside_run"
    exit_status = 2
    remedy = "Ask for operations in the workflow's own code; hand their results to steps and tools as arguments."


class StepFailed(RefoldError):
    """A step raised an exception of a class that cannot be made again from the record.

    Facts: `type`, the class's name. Exceptions of Python itself, and those registered with the App, come back as
    themselves.
    """

    code = "step_failed"
    exit_status = 3
    remedy = "Catch StepFailed, or register the exception class with the App (`app.register`)."


class ChildFailed(RefoldError):
    """A child run ended without a result. Facts: `run_id`, `status`, `error_code`."""

    code = "child_failed"
    exit_status = 3
    remedy = "`refold show RUN` tells what happened in the child."


class BudgetExceeded(RefoldError):
    """An operation would have gone over the run's budget, and was not begun. Facts: `budget`, `limit`, `used`."""

    code = "budget_exceeded"
    exit_status = 3
    remedy = "Start the run with a larger budget, or let the workflow end earlier."


class NotRegistered(RefoldError):
    """A workflow, tool or model of this name is not registered with the App."""

    code = "not_registered"
    exit_status = 2
    remedy = "Register it with the App that opens the ledger (`@app.workflow`, `@app.tool`, `App(models=...)`)."


class AlreadyRegistered(RefoldError):
    """Two workflows, tools or models were registered under one name."""

    code = "already_registered"
    exit_status = 2
    remedy = "Give one of them another name (`name=...`)."


class BadRegistration(RefoldError):
    """What an App is given cannot be the name of a workflow, tool or model. Names stand in facts and sites."""

    code = "bad_registration"
    exit_status = 2
    remedy = "Use 1 to 100 letters, digits, dots, dashes and underscores, and begin with a letter."


class CodeUnavailable(RefoldError):
    """The App has the workflow, but not the version that the run was started with."""

    code = "code_unavailable"
    exit_status = 6
    remedy = "Open the ledger with the code of that version, or register it beside the new one (`version=...`)."


class RunPaused(RefoldError):
    """The run waits for something that its own process cannot bring: a doubt, a drift of its code, a person.

    Facts: `reason` (`in_doubt`, `diverged`, `requested`, `waiting`), `doubts` (ids of the calls in doubt),
    `divergences`.
    """

    code = "run_paused"
    exit_status = 4
    remedy = "`refold show RUN` says what it waits for; `refold resolve CALL` settles a doubt."

    @property
    def reason(self) -> str:
        return str(self.facts["reason"])


class RunEnded(RefoldError):
    """The run ended without a result: it failed, was canceled, or expired. Facts: `run_id`, `status`, `error_code`."""

    code = "run_ended"
    exit_status = 3
    remedy = "`refold show RUN` and `refold evidence RUN` tell what happened."


class NotARun(RefoldError):
    """The stream is no run of a workflow: an imported or recorded session has no code to run again."""

    code = "not_a_workflow_run"
    exit_status = 6
    remedy = "Evidence, catch-up and projection-only replay work for every run."


def not_registered(what: str, name: str, known: Any) -> NotRegistered:
    """The error for a name that an App does not know, with the names that it does."""
    listed = ", ".join(sorted(known)) or "none"
    return NotRegistered(f"No {what} {name!r} is registered with the App (registered: {listed}).", name=name)


def nothing_moves() -> NothingMoves:
    """The error for code that waits where nothing is under way."""
    return NothingMoves("The code waits, and no operation is under way that could move it.")
