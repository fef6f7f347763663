"""The enumerator: the same scenario again and again, each time with a fault at the next point of the seam.

A *scenario* does the work under test in a fresh directory and calls `ack(line)` for everything that it
has promised to somebody. A first run counts the points it reaches. Then, for each point, a new process
runs the scenario in a new directory and the fault (SIGKILL unless said otherwise) strikes there, before
the operation; after that yet another process runs the *check* on what is left, with the lines
acknowledged until then.

Where the processes come from: forking a process that has threads can copy a lock in its locked state, and
pytest, xdist and the ledger's own writer have threads. So one helper interpreter is started ("spawn"),
imports what the scenario and the check need, stays single-threaded and never opens a database; all runs
are forks of *it*, at a few milliseconds each. Hence scenario, check and fault must be importable:
functions of a module, or `functools.partial` of them, not lambdas. A script that calls this needs the
usual `if __name__ == "__main__"`.

A killed process keeps what the kernel has. `faults.power_cut` also takes away what was not synced.
"""

from __future__ import annotations

import faulthandler
import itertools
import multiprocessing
import os
import shutil
import signal
import threading
import traceback
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from refold import seam
from refold.errors import RefoldError
from refold.testing.faults import Fault, kill

__all__ = [
    "Ack",
    "Check",
    "CrashTestFailed",
    "Failure",
    "Report",
    "Scenario",
    "fault_at_each",
    "fault_from_each",
    "kill_at_each",
    "points",
]

Ack = Callable[[str], None]
Scenario = Callable[[Path, Ack], None]
Check = Callable[[Path, list[str]], None]

_SHOWN = 3


class CrashTestFailed(RefoldError, AssertionError):
    """A crash test found a loss, an unfinished run, or a point that was wanted and never reached."""

    code = "crash_test_failed"
    exit_status = 7
    remedy = "Look into the kept directories; the number of the point repeats the run."


@dataclass(frozen=True, slots=True)
class Failure:
    """One run after which the check, or which itself, went wrong. Its `directory` is kept.

    `number` counts the points of the campaign from 1; 0 is the counting run, which no fault disturbs.
    """

    number: int
    point: str
    acks: list[str]
    problem: str
    directory: Path


@dataclass(slots=True)
class Report:
    """What a campaign did: the points of the undisturbed run, in order, and where the fault struck how often.

    `unreached` counts runs that ended before their point (threads race); they are checked all the same.
    """

    points: list[str] = field(default_factory=list)
    struck: Counter[str] = field(default_factory=Counter)
    unreached: int = 0
    failures: list[Failure] = field(default_factory=list)

    def __str__(self) -> str:
        total = f"{self.struck.total()} faults at {len(self.struck)} kinds of points"
        lines = [f"{total}; {self.unreached} runs ended before theirs"]
        lines += [f"{count:7}  {point}" for point, count in sorted(self.struck.items())]
        for failure in self.failures[:_SHOWN]:
            lines.append(f"point {failure.number} ({failure.point}), {len(failure.acks)} acknowledged:")
            lines.append(f"  left in {failure.directory}")
            lines.extend("  " + line for line in failure.problem.rstrip().splitlines())
        if len(self.failures) > _SHOWN:
            lines.append(f"and {len(self.failures) - _SHOWN} more failures")
        return "\n".join(lines)


def points(
    scenario: Scenario, check: Check | None = None, *, under: Path, at: str = "*", timeout: float = 60
) -> list[str]:
    """The points matching the glob `at` that an undisturbed run of `scenario` reaches, in order.

    A scenario that leaves processes behind needs the `check` that waits for them, as in a campaign: afterwards the
    run's directory is removed.
    """
    return _in_helper(partial(_count, scenario, check, under, at, timeout)).points


def kill_at_each(
    scenario: Scenario,
    check: Check,
    *,
    under: Path,
    at: str = "*",
    every: int = 1,
    require: Collection[str] = (),
    timeout: float = 60,
) -> Report:
    """SIGKILL `scenario` at each of its points and `check` what survives; prints and returns the report.

    Parameters
    ----------
    scenario: gets (a fresh directory, ack). When it returns or is killed it is over; raising is a failure.
    check: gets (that directory, the acknowledged lines) in another process; raises when something is wrong.
    under: where the directories are made; those of failures stay.
    at: a glob; only points that match it count, e.g. "vfs.write:*".
    every: strikes at one of so many of those points only, evenly spread, always the same ones.
    require: points that must have been struck at least once.
    timeout: seconds for one run or one check; afterwards it fails with the stacks of its threads.

    Raises
    ------
    CrashTestFailed: the report is its message.
    """
    return fault_at_each(scenario, check, kill, under=under, at=at, every=every, require=require, timeout=timeout)


def fault_at_each(
    scenario: Scenario,
    check: Check,
    fault: Fault,
    *,
    under: Path,
    at: str = "*",
    every: int = 1,
    require: Collection[str] = (),
    timeout: float = 60,
) -> Report:
    """As `kill_at_each` with another fault, once per run; its errors are for the scenario to handle."""
    return _judge(_in_helper(partial(_campaign, scenario, check, fault, False, under, at, every, timeout)), require)


def fault_from_each(
    scenario: Scenario,
    check: Check,
    fault: Fault,
    *,
    under: Path,
    at: str = "*",
    require: Collection[str] = (),
    timeout: float = 60,
) -> Report:
    """As `fault_at_each`, but the fault stays from its point on: a full disk does not empty itself."""
    return _judge(_in_helper(partial(_campaign, scenario, check, fault, True, under, at, 1, timeout)), require)


def _judge(report: Report, require: Collection[str]) -> Report:
    print(report)
    never = sorted(set(require) - set(report.struck))
    if never:
        raise CrashTestFailed(f"No fault struck at {', '.join(never)}.\n{report}", never=never)
    if report.failures:
        failed = len(report.failures)
        raise CrashTestFailed(f"{failed} of {len(report.points)} disturbed runs failed.\n{report}", failed=failed)
    return report


def _in_helper(job: Callable[[], Report]) -> Report:
    spawn = multiprocessing.get_context("spawn")
    ours, theirs = spawn.Pipe(duplex=False)
    helper = spawn.Process(target=_serve, args=(theirs, job), daemon=True)
    helper.start()
    theirs.close()
    try:
        result = ours.recv()
    except EOFError:
        result = "it ended without a word"
    helper.join()
    if isinstance(result, Report):
        return result
    raise CrashTestFailed(f"The helper process failed: {result}")


def _serve(pipe: Connection[Any, Any], job: Callable[[], Report]) -> None:
    try:
        if threading.active_count() > 1:
            raise RuntimeError("importing the scenario started a thread; forking would not be safe")
        pipe.send(job())
    except BaseException:  # noqa: BLE001 - whatever it is belongs to the caller
        pipe.send(traceback.format_exc())


def _campaign(
    scenario: Scenario, check: Check, fault: Fault, lasting: bool, under: Path, at: str, every: int, timeout: float
) -> Report:
    report = _count(scenario, check, under, at, timeout)
    for number, point in list(enumerate(report.points, 1))[every // 2 :: every]:
        run = _Run(under / f"point-{number}", number, timeout)
        status = run.play(scenario, _Strike(at, number, fault, lasting, run.struck))
        struck = run.struck.read_text() if run.struck.exists() else ""
        if struck:
            report.struck[struck] += 1
        else:
            report.unreached += 1
        fine = status == 0 or (status == -signal.SIGKILL and struck != "")
        run.close(report, struck or point, "" if fine else run.explain("scenario", status), check)
    return report


def _count(scenario: Scenario, check: Check | None, under: Path, at: str, timeout: float) -> Report:
    run = _Run(under / "undisturbed", 0, timeout)
    status = run.play(scenario, partial(_note, run.struck, at))
    reached = run.struck.read_text().splitlines() if run.struck.exists() else []
    report = Report(points=reached)
    run.close(report, "undisturbed", "" if status == 0 else run.explain("scenario", status), check)
    if report.failures:
        raise CrashTestFailed(f"The run without any fault failed.\n{report}")
    return report


def _note(path: Path, at: str, point: str) -> None:
    if fnmatchcase(point, at):
        _append(path, point + "\n")


class _Strike:
    """The hook of a disturbed run."""

    def __init__(self, at: str, number: int, fault: Fault, lasting: bool, struck: Path) -> None:
        self._at = at
        self._number = number
        self._fault = fault
        self._lasting = lasting
        self._struck = struck
        # next() of this is one step under the interpreter's lock: threads never share a number.
        self._seen = itertools.count(1)

    def __call__(self, point: str) -> None:
        if not fnmatchcase(point, self._at):
            return
        seen = next(self._seen)
        if seen == self._number:
            _append(self._struck, point)
            self._fault(point)
        elif self._lasting and seen > self._number:
            self._fault(point)


class _Run:
    """One fresh directory, the scenario on it, the check on it; each in a fork of its own."""

    def __init__(self, room: Path, number: int, timeout: float) -> None:
        self.number = number
        self.room = room
        self.files = room / "files"
        self.struck = room / "struck"
        self._acks = room / "acks"
        self._problem = room / "problem"
        self._timeout = timeout
        self.files.mkdir(parents=True)

    def play(self, scenario: Scenario, hook: seam.Hook) -> int:
        def work() -> None:
            with seam.installed(hook):
                scenario(self.files, self._ack)

        return self._fork(work)

    def close(self, report: Report, point: str, problem: str, check: Check | None) -> None:
        """Check what is left; then clear it away, or report it and leave it."""
        acks = self._acks.read_text().splitlines() if self._acks.exists() else []
        if check is not None and not problem:
            status = self._fork(partial(check, self.files, acks))
            problem = "" if status == 0 else self.explain("check", status)
        if problem:
            report.failures.append(Failure(self.number, point, acks, problem, self.room))
        else:
            shutil.rmtree(self.room)

    def explain(self, who: str, status: int) -> str:
        said = self._problem.read_text() if self._problem.exists() else ""
        return f"the {who} ended with status {status}\n{said}"

    def _ack(self, line: str) -> None:
        if "\n" in line:
            raise ValueError("an acknowledgement is one line")
        _append(self._acks, line + "\n")

    def _fork(self, work: Callable[[], None]) -> int:
        child = os.fork()
        if child:
            return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        # Nothing of the helper may run on in the child: not its finally clauses, not its exit handlers.
        status = 1
        try:
            with self._problem.open("w") as problem:
                faulthandler.dump_traceback_later(self._timeout, exit=True, file=problem)
                try:
                    work()
                    status = 0
                except BaseException:  # noqa: BLE001 - written down for the report; the process ends here
                    traceback.print_exc(file=problem)
        finally:
            os._exit(status)


def _append(path: Path, text: str) -> None:
    # One write call, no buffer: what was written before a SIGKILL is in the file after it.
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(file, text.encode())
    finally:
        os.close(file)
