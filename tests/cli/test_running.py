"""Runs from the command line: begun, let go, told things, gone on with; in this process and in others that die."""

from __future__ import annotations

import io
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli import agency
from tests.cli.conftest import Call
from tests.cli.support import Answer, finished, process

HERE = "tests.cli.agency"
RUN_KEYS = {"run_id", "key", "status", "reason", "output", "head_seq", "head_hash"}
ORDER = '{"id": "o1", "amount": 3}'


@pytest.fixture
def ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A ledger that is not there yet, the App, and the file of what was really done, for this process and others."""
    path = tmp_path / "agency.db"
    monkeypatch.setenv("REFOLD_LEDGER", str(path))
    monkeypatch.setenv("REFOLD_APP", f"{HERE}:app")
    monkeypatch.setenv("AGENCY_TRUTH", str(tmp_path / "truth"))
    return path


@pytest.fixture
def started(ledger: Path) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Processes of a test; those that still live at its end are killed."""
    processes: list[subprocess.Popen[bytes]] = []
    yield processes
    for each in processes:
        if each.poll() is None:
            each.kill()
            each.communicate()


def begun(started: list[subprocess.Popen[bytes]], *args: str, upto: str, **environment: str) -> Any:
    """A process of the program, as soon as its run has committed an event of a type."""
    one = process(*args, environment=environment)
    started.append(one)
    assert one.stderr is not None
    for line in one.stderr:
        if upto in line.decode():
            return one
    raise AssertionError(f"it ended with {one.wait()} before {upto}")


def only_run(call: Call) -> str:
    (run,) = call("runs", "--json").json["runs"]
    return str(run["run_id"])


def only_call(call: Call, status: str = "in_doubt") -> dict[str, Any]:
    (found,) = call("tool-calls", "--status", status, "--json").json["tool_calls"]
    return dict(found)


# Running.


def test_a_run_ends_with_its_result_and_a_key_names_it_again(ledger: Path, call: Call) -> None:
    first = call("run", f"{HERE}:buy", "--input", ORDER, "--key", "k", "--json")
    assert (first.status, first.err) == (0, "")
    assert set(first.json) >= RUN_KEYS
    assert (first.json["key"], first.json["status"], first.json["output"]) == ("k", "succeeded", ["o1", 6, "Receipt"])
    again = call("run", "buy", "--input", ORDER, "--key", "k", "--json")
    assert (again.status, again.json) == (0, first.json)
    assert len(agency.truth()) == 1
    other = call("run", "buy", "--input", '{"id": "o2", "amount": 3}', "--key", "k", "--json")
    assert (other.status, other.error["code"]) == (6, "key_conflict")


def test_people_see_the_events_and_then_the_result(ledger: Path, call: Call) -> None:
    answer = call("run", "buy", "--input", ORDER)
    assert answer.status == 0
    assert [line.split()[3] for line in answer.err.splitlines()][-3:] == [
        "tool.dispatched",
        "tool.answered",
        "run.succeeded",
    ]
    assert '["o1",6,"Receipt"]' in answer.out


@pytest.mark.parametrize(
    ("given", "where"),
    [
        ('{"id": "o1", "amount": "many"}', "$.amount"),
        ('{"id": "o1"}', "amount"),
        ("{", "truncated"),
        ("[]", "expected `object`"),
    ],
)
def test_an_input_that_does_not_fit_is_refused_with_its_path(ledger: Path, call: Call, given: str, where: str) -> None:
    answer = call("run", "buy", "--input", given, "--json")
    assert (answer.status, answer.error["code"]) == (2, "bad_input")
    assert where.lower() in answer.error["message"].lower()
    assert not ledger.exists()


def test_an_input_comes_from_a_file_or_standard_input(
    ledger: Path, call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "order.json").write_text(ORDER)
    assert call("run", "buy", "--input", f"@{tmp_path / 'order.json'}", "--json").json["output"][0] == "o1"
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(ORDER.encode())))
    assert call("run", "buy", "--input", "-", "--json").json["output"][0] == "o1"
    assert call("run", "buy", "--input", "@nothing.json").status == 2
    assert call("run", "ask", "--input", "3", "--json").error["code"] == "bad_input"


def test_a_run_that_fails_ends_with_3_and_so_does_resuming_it(ledger: Path, call: Call) -> None:
    failed = call("run", "fail", "--json")
    assert (failed.status, failed.json["status"], failed.json["output"]) == (3, "failed", None)
    assert failed.json["error"] == {"code": "exception", "message": "no such order"}
    assert call("resume", failed.json["run_id"], "--json").json == failed.json
    assert call("resume", failed.json["run_id"]).status == 3
    assert call("show", failed.json["run_id"]).status == 0


def test_a_run_that_waits_is_let_go_with_4_and_goes_on_with_its_signal(ledger: Path, call: Call) -> None:
    waiting = call("run", "ask", "--json")
    assert (waiting.status, waiting.json["status"], waiting.json["reason"]) == (4, "paused", "waiting")
    assert [(each["kind"], each["name"]) for each in waiting.json["waits_for"]] == [("signal", "answer")]
    run_id = waiting.json["run_id"]
    assert call("resume", run_id, "--json").status == 4
    people = call("resume", run_id)
    assert f"refold signal {run_id} answer" in people.out
    told = call("signal", run_id, "answer", "--value", '"yes"', "--id", "1", "--json")
    assert (told.status, told.json["owned"]) == (0, False)
    call("signal", run_id, "answer", "--value", '"no"', "--id", "1")
    resumed = call("resume", run_id, "--json")
    assert (resumed.status, resumed.json["output"]) == (0, "yes")
    late = call("signal", run_id, "answer", "--json")
    assert (late.status, late.error["code"]) == (6, "stream_closed")


def test_code_that_changed_is_5_and_code_put_back_goes_on(
    ledger: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AGENCY_RESETS", "1")
    run_id = call("run", "buy", "--input", ORDER, "--json").json["run_id"]
    (before,) = [each["head_seq"] for each in call("runs", "--json").json["runs"]]
    with monkeypatch.context() as patched:
        patched.setattr(agency, "FACTOR", 3)
        patched.setattr(agency, "times", lambda number: number)
        assert call("replay", run_id, "--mode", "inference-skipping", "--json").status == 5
        assert call("runs", "--json").json["runs"][0]["head_seq"] == before
        changed = call("resume", run_id, "--json")
        assert (changed.status, changed.json["reason"]) == (5, "diverged")
        assert changed.json["divergences"][0]["kind"] == "missing"
        assert "diverged" in call("resume", run_id).out
    back = call("resume", run_id, "--json")
    assert (back.status, back.json["reason"]) == (4, "in_doubt")
    assert len(agency.truth()) == 1


# Processes that die, and processes that are told.


def test_a_killed_run_is_in_doubt_its_probe_settles_it_and_it_goes_on_with_one_effect(
    ledger: Path, call: Call, started: list[subprocess.Popen[bytes]]
) -> None:
    one = begun(started, "run", "invoice", "--input", ORDER, "--key", "k", upto="tool.dispatched", AGENCY_HANGS="1")
    while not agency.truth():  # It has been sent; now it is done too, and nobody gets the answer.
        assert one.poll() is None
    one.kill()
    one.communicate()
    doubt = only_call(call)
    assert (doubt["tool"], doubt["recorded_status"]) == ("bill", "dispatched")
    assert "its process died while it was out" in call("tool-calls", "--status", "in_doubt").out
    assert call("tool-calls", "--status", "dispatched", "--json").json["tool_calls"] == []
    stuck = call("doctor", "--json").json["checks"][-1]
    assert (stuck["name"], stuck["ok"], stuck["facts"]["unowned"]) == ("runs", False, [f"{doubt['run_id']} invoice"])
    settled = call("resolve", doubt["id"][:16], "--probe", "--json")
    assert settled.status == 0
    assert (settled.json["id"], settled.json["resolution"], settled.json["run_status"]) == (
        doubt["id"],
        "happened",
        "running",
    )
    event = call("events", doubt["run_id"], "--json").lines[-1]
    assert (event["type"], event["data"]["by"]) == ("tool.resolved", "probe")
    done = call("run", "invoice", "--input", ORDER, "--key", "k", "--json")
    assert (done.status, done.json["output"], done.json["run_id"]) == (0, "Receipt", doubt["run_id"])
    assert len(agency.truth()) == 1


def test_ctrl_c_lets_the_run_go_and_says_how_to_go_on(
    ledger: Path, call: Call, started: list[subprocess.Popen[bytes]]
) -> None:
    one = begun(started, "run", f"{HERE}:wait", upto="run.started")
    run_id = only_run(call)
    one.send_signal(signal.SIGINT)
    answer = finished(one)
    assert (answer.status, answer.out) == (130, "")
    assert f"`refold resume {run_id}` goes on with it" in answer.err
    assert call("runs", "--json").json["runs"][0]["status"] == "running"
    call("signal", run_id, "answer", "--value", '"yes"')
    assert call("resume", run_id, "--json").json["output"] == "yes"


def test_a_process_that_has_the_run_is_paused_from_outside_and_ends_with_4(
    ledger: Path, call: Call, started: list[subprocess.Popen[bytes]]
) -> None:
    one = begun(started, "run", "wait", upto="run.started")
    run_id = only_run(call)
    paused = call("pause", run_id, "--basis", "lunch", "--json")
    assert (paused.status, paused.json["reason"], paused.json["taken"]) == (0, "requested", True)
    assert finished(one).status == 4
    call("signal", run_id, "answer", "--value", '"yes"')
    assert call("resume", run_id, "--json").json["output"] == "yes"


def test_a_process_that_has_the_run_is_canceled_from_outside_and_ends_with_3(
    ledger: Path, call: Call, started: list[subprocess.Popen[bytes]]
) -> None:
    one = begun(started, "run", "wait", upto="run.started")
    canceled = call("cancel", only_run(call), "--basis", "enough", "--json")
    assert (canceled.status, canceled.json["status"]) == (0, "canceled")
    assert finished(one).status == 3


def test_a_second_command_watches_the_process_that_has_the_run(
    ledger: Path, call: Call, started: list[subprocess.Popen[bytes]]
) -> None:
    one = begun(started, "run", "wait", "--key", "k", upto="run.started")
    two = process("run", "wait", "--key", "k", "--json")
    started.append(two)
    call("signal", only_run(call), "answer", "--value", '"yes"')
    assert (finished(one).status, finished(two).json["output"]) == (0, "yes")


# Runs that nobody has.


def waiting_run(call: Call) -> str:
    return str(call("run", "ask", "--json").json["run_id"])


def test_a_run_that_nobody_has_is_canceled_by_its_code_where_an_app_is_named(
    ledger: Path, call: Call, started: list[subprocess.Popen[bytes]]
) -> None:
    one = begun(started, "run", "wait", upto="run.started")
    one.kill()
    one.communicate()
    answer = call("cancel", only_run(call), "--basis", "enough", "--json")
    assert (answer.status, answer.json["status"]) == (0, "canceled")
    types = [event["type"] for event in call("events", answer.json["run_id"], "--json").lines]
    assert types[-3:] == ["run.stop_requested", "step.completed", "run.canceled"]


def test_without_an_app_a_cancellation_is_posted_or_the_run_closed_without_its_code(
    ledger: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = waiting_run(call)
    monkeypatch.delenv("REFOLD_APP")
    posted = call("cancel", run_id, "--basis", "enough", "--json")
    assert (posted.status, posted.json["status"], posted.json["owned"]) == (0, "paused", False)
    assert f"refold resume {run_id}" in call("cancel", run_id, "--basis", "enough").out
    closed = call("cancel", run_id, "--basis", "the code is gone", "--without-code", "--json")
    assert (closed.status, closed.json["status"]) == (0, "canceled")


def test_a_run_that_nobody_has_is_paused_at_once_and_stays_so_until_it_is_resumed(ledger: Path, call: Call) -> None:
    run_id = waiting_run(call)
    assert call("pause", run_id, "--json").json["reason"] == "requested"
    call("signal", run_id, "answer", "--value", '"yes"')
    assert call("show", run_id, "--json").json["run"]["reason"] == "requested"
    assert call("resume", run_id, "--json").json["output"] == "yes"


def test_a_key_does_not_go_on_with_what_somebody_paused(ledger: Path, call: Call) -> None:
    run_id = call("run", "ask", "--key", "k", "--json").json["run_id"]
    call("pause", run_id)
    again = call("run", "ask", "--key", "k", "--json")
    assert (again.status, again.json["run_id"], again.json["reason"]) == (4, run_id, "requested")


def test_an_imported_session_has_no_code_to_run(sample: Any, call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REFOLD_APP", f"{HERE}:app")
    for args in (("resume",), ("pause",), ("replay", "--mode", "inference-skipping")):
        answer = call(args[0], sample.run_id, *args[1:], "--json")
        assert (answer.status, answer.error["code"]) == (6, "not_a_workflow_run")


def test_what_is_wrong_with_runs_is_told_by_the_doctor(
    ledger: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = waiting_run(call)
    fine: Answer = call("doctor", "--json")
    checks = {check["name"]: check for check in fine.json["checks"]}
    assert checks["runs"]["facts"]["waiting"] == [f"{run_id} ask"]
    assert (fine.status, checks["app"]["facts"]["tools"]) == (0, ["bill", "charge"])
    monkeypatch.delitem(agency.app._workflows, "ask")
    missing = call("doctor", "--json")
    assert missing.status == 1
    assert missing.json["checks"][-1]["facts"]["code_missing"] == [f"{run_id} ask version 1"]
    monkeypatch.setenv("REFOLD_APP", "nowhere:app")
    assert [check["name"] for check in call("doctor", "--json").json["checks"] if not check["ok"]] == ["app"]
