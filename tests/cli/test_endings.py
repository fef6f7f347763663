"""How commands end when they cannot do what was asked."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from refold.cli.main import COMMANDS
from refold.projections.runs import TRANSITIONS
from tests.cli.conftest import Call, Sample
from tests.cli.support import finished, on_ledger, process, record_run


def _not_a_ledger(path: Path) -> None:
    path.write_bytes(b"a letter to my aunt" * 100)


def _another_database(path: Path) -> None:
    import sqlite3

    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE t (x)")
    connection.close()


REFUSED = {
    "no such run": (("show", "run_01ARZ3NDEKTSV4RRFFQ69G5FAV"), 2, "run_not_found"),
    "a run that is no id": (("events", "\x1b[31m"), 2, "run_not_found"),
    "a run of another tenant": (("show", "RUN", "--scope", "other/default"), 2, "run_not_found"),
    "a run of another workspace": (("events", "RUN", "--scope", "default/other"), 2, "run_not_found"),
    "verify in another tenant": (("verify", "RUN", "--scope", "other/default"), 2, "run_not_found"),
    "a scope without a slash": (("runs", "--scope", "other"), 2, "bad_name"),
    "a scope that climbs": (("runs", "--scope", "../.."), 2, "bad_name"),
    "a seq beyond the head": (("events", "RUN", "--after", "1000"), 2, "beyond_head"),
    "an unknown command": (("frobnicate",), 2, "bad_usage"),
    "an unknown option": (("runs", "--frobnicate"), 2, "bad_usage"),
    "a missing argument": (("show",), 2, "bad_usage"),
    "a limit of nothing": (("runs", "--limit", "0"), 2, "bad_usage"),
    "a page token of nobody": (("runs", "--next", "ä"), 2, "bad_token"),
    "no ledger there": (("runs", "--ledger", "nothing.db"), 2, "ledger_missing"),
    "a folder": (("runs", "--ledger", "."), 2, "not_a_ledger"),
}


@pytest.mark.parametrize("name", list(REFUSED))
def test_an_error_is_one_object_on_standard_error(sample: Sample, call: Call, name: str) -> None:
    args, status, code = REFUSED[name]
    args = tuple(sample.run_id if each == "RUN" else each for each in args)
    answer = call(*args, "--json")
    assert (answer.status, answer.out) == (status, "")
    assert set(answer.error) == {"code", "message", "facts", "remedy", "page"}
    assert answer.error["code"] == code
    assert answer.err.count("\n") == 1
    people = call(*args)
    assert people.status == status
    assert people.err.startswith("Error: ")
    assert people.err.replace("\n", "").isprintable()


@pytest.mark.parametrize("make", [_not_a_ledger, _another_database])
def test_somebody_elses_file_is_refused_and_not_touched(call: Call, tmp_path: Path, make: object) -> None:
    path = tmp_path / "theirs"
    make(path)  # type: ignore[operator]
    before = path.read_bytes()
    answer = call("runs", "--ledger", str(path), "--json")
    assert (answer.status, answer.error["code"]) == (2, "not_a_ledger")
    assert path.read_bytes() == before


def test_a_beginning_of_an_id_names_a_run_while_it_is_unique(sample: Sample, call: Call) -> None:
    short = sample.run_id[:8]
    assert call("show", short, "--json").json["run"]["run_id"] == sample.run_id
    assert call("show", short.removeprefix("run_"), "--json").json["run"]["run_id"] == sample.run_id
    on_ledger(sample.path, lambda ledger: record_run(ledger, key="second"))
    ambiguous = call("show", short, "--json")
    assert (ambiguous.status, ambiguous.error["code"]) == (2, "run_not_found")
    assert "more than one" in ambiguous.error["message"]
    assert ambiguous.error["remedy"] == "Give more of its id."
    assert call("show", sample.run_id, "--json").status == 0


@pytest.mark.parametrize("unset", ["", "run_"])
def test_a_name_that_somebody_forgot_to_set_ends_and_erases_no_run(sample: Sample, call: Call, unset: str) -> None:
    for args in (("show", unset), ("cancel", unset, "--basis", "x"), ("erase", unset, "--basis", "x")):
        answer = call(*args, "--json")
        assert (answer.status, answer.error["code"]) == (2, "run_not_found")
    assert call("runs", "--json").json["runs"][0]["status"] == "paused"


def test_a_status_that_does_not_exist_is_refused_and_not_answered_with_nothing(sample: Sample, call: Call) -> None:
    assert call("tool-calls", "--status", "in_doubt", "--json").json["tool_calls"]
    for args in (("tool-calls", "--status", "in-doubt"), ("runs", "--status", "cancelled")):
        answer = call(*args, "--json")
        assert (answer.status, answer.error["code"]) == (2, "bad_usage")


def test_every_status_of_a_run_can_be_asked_for(sample: Sample, call: Call) -> None:
    for status in TRANSITIONS:
        assert call("runs", "--status", status, "--json").status == 0


def test_a_reader_that_goes_away_ends_the_command_quietly(sample: Sample) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    started = process("events", sample.run_id, stdout=writing)
    os.close(writing)
    assert (started.communicate(timeout=60)[1], started.returncode) == (b"", 141)


def test_ctrl_c_ends_a_follower_with_130(sample: Sample) -> None:
    started = process("events", sample.run_id, "--follow", "--json")
    assert started.stdout is not None
    assert b'"seq"' in started.stdout.readline()
    started.send_signal(signal.SIGINT)
    answer = finished(started)
    assert (answer.status, answer.err) == (130, "Interrupted.\n")


def test_a_follower_gets_what_comes_and_ends_with_the_stream(sample: Sample, call: Call) -> None:
    before = call("events", sample.run_id, "--json").lines
    started = process("events", sample.run_id, "--follow", "--json")
    assert started.stdout is not None
    first = [started.stdout.readline() for _ in before]
    assert len(first) == len(before)
    call("cancel", sample.run_id, "--basis", "enough")
    rest = finished(started)
    assert rest.status == 0
    assert [event["type"] for event in rest.lines] == ["run.canceled"]


def test_a_fault_of_ours_is_one_sentence_and_a_traceback_only_on_request(
    sample: Sample, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise LookupError("\x1b[31mred")

    monkeypatch.setattr("refold.ledger.ledger.open_ledger", broken)
    answer = call("runs")
    assert answer.status == 1
    assert "LookupError" in answer.err
    assert "Traceback" not in answer.err
    assert "\x1b" not in answer.err
    monkeypatch.setenv("REFOLD_DEBUG", "1")
    assert "Traceback" in call("runs").err


def test_no_command_at_all_is_bad_usage_with_the_help(call: Call) -> None:
    answer = call()
    assert (answer.status, answer.out) == (2, "")
    assert "Usage: refold" in answer.err


@pytest.mark.parametrize("name", [command.name for command in COMMANDS])
def test_every_command_explains_itself(call: Call, name: str) -> None:
    answer = call(name, "--help")
    assert answer.status == 0
    assert "--json" in answer.out


def test_help_and_completion_load_neither_the_database_nor_the_tables() -> None:
    code = (
        "import sys; from refold.cli.main import run; status = run(['--help']);"
        "heavy = {'apsw', 'msgspec', 'rich', 'asyncio'} & set(sys.modules); sys.exit(str(heavy) if heavy else status)"
    )
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", code], env=environ, capture_output=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    shell = {"_REFOLD_COMPLETE": "bash_complete", "COMP_WORDS": "refold ar", "COMP_CWORD": "1"}
    completed = finished(process(environment=shell))
    assert (completed.status, completed.out) == (0, "plain,artifact\n")
