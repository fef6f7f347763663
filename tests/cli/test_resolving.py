"""Doubts settled from the command line, in each of the ways there are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from refold import CannotTell, DidNotHappen, Happened
from refold.clock import SystemClock
from refold.gateway.tools import Doubt
from tests.cli import agency
from tests.cli.conftest import Call

HERE = "tests.cli.agency"
ORDER = '{"id": "o1", "amount": 3}'
BASIS = ("--basis", "their log")


@pytest.fixture
def doubt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: Call) -> dict[str, Any]:
    """A call in doubt: it was done, and its answer got lost. From now on the other side answers."""
    monkeypatch.setenv("REFOLD_LEDGER", str(tmp_path / "agency.db"))
    monkeypatch.setenv("REFOLD_APP", f"{HERE}:app")
    monkeypatch.setenv("AGENCY_TRUTH", str(tmp_path / "truth"))
    monkeypatch.setenv("AGENCY_RESETS", "1")
    run = call("run", "buy", "--input", ORDER, "--json")
    assert (run.status, run.json["status"], run.json["reason"]) == (4, "paused", "in_doubt")
    monkeypatch.delenv("AGENCY_RESETS")
    (found,) = call("tool-calls", "--status", "in_doubt", "--json").json["tool_calls"]
    assert run.json["doubts"] == [{"id": found["id"], "tool": "charge", "why": "connection"}]
    return dict(found)


@pytest.fixture
def later(doubt: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """An hour has passed since."""
    now = SystemClock.now
    monkeypatch.setattr(SystemClock, "now", lambda self: now(self) + 3_600_000_000)


def test_what_happened_is_read_as_the_tool_s_annotation_says(doubt: dict[str, Any], call: Call) -> None:
    wrong = call("resolve", doubt["id"], "--happened", '{"nummer": "7"}', *BASIS, "--json")
    assert (wrong.status, wrong.error["code"]) == (2, "bad_input")
    answer = call("resolve", doubt["id"], "--happened", '{"number": "7"}', *BASIS, "--by", "ada", "--json")
    assert answer.status == 0
    assert set(answer.json) >= {"id", "status", "resolution", "run_status"}
    assert [answer.json[name] for name in ("status", "resolution", "how", "owned")] == [
        "succeeded",
        "happened",
        "recorded",
        False,
    ]
    event = call("events", doubt["run_id"], "--json").lines[-1]
    assert (event["type"], event["actor"], event["data"]["content"]["basis"]) == ("tool.resolved", "ada", "their log")
    again = call("resolve", doubt["id"], "--happened", '{"number": "7"}', *BASIS, "--json")
    assert (again.status, again.json["how"]) == (0, "already")
    other = call("resolve", doubt["id"], "--abandon", *BASIS, "--json")
    assert (other.status, other.error["code"]) == (6, "already_resolved")
    assert (
        f"refold resume {doubt['run_id']}" in call("resolve", doubt["id"], "--happened", '{"number": "7"}', *BASIS).out
    )
    assert call("resume", doubt["run_id"], "--json").json["output"] == ["o1", 6, "Receipt"]
    assert len(agency.truth()) == 1


@pytest.mark.usefixtures("later")
@pytest.mark.parametrize(
    ("way", "keys"), [(("--did-not-happen",), 2), (("--resend", "--acknowledge"), 1)], ids=["did not happen", "resend"]
)
def test_what_is_made_again_goes_out_when_the_run_is_resumed(
    doubt: dict[str, Any], call: Call, monkeypatch: pytest.MonkeyPatch, way: tuple[str, ...], keys: int
) -> None:
    monkeypatch.delenv("REFOLD_APP")
    assert call("resolve", doubt["id"], *way, *BASIS).status == 0
    assert len(agency.truth()) == 1
    resumed = call("resume", doubt["run_id"], "--app", f"{HERE}:app", "--json")
    assert (resumed.status, resumed.json["output"]) == (0, ["o1", 6, "Receipt"])
    assert (len(agency.truth()), len(set(agency.truth()))) == (2, keys)


def test_did_not_happen_is_refused_while_it_may_still_happen(doubt: dict[str, Any], call: Call) -> None:
    early = call("resolve", doubt["id"], "--did-not-happen", *BASIS, "--json")
    assert (early.status, early.error["code"]) == (6, "too_early")


def test_what_is_given_up_fails_the_call_and_the_run_is_told(doubt: dict[str, Any], call: Call) -> None:
    assert call("resolve", doubt["id"], "--abandon", *BASIS).status == 0
    resumed = call("resume", doubt["run_id"], "--json")
    assert (resumed.status, resumed.json["error"]["code"]) == (3, "abandoned")


def test_a_tool_without_a_probe_cannot_be_asked(doubt: dict[str, Any], call: Call) -> None:
    answer = call("resolve", doubt["id"], "--probe", "--json")
    assert (answer.status, answer.error["code"]) == (6, "no_probe")


def test_a_probe_needs_the_app(doubt: dict[str, Any], call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("REFOLD_APP")
    answer = call("resolve", doubt["id"], "--probe", "--json")
    assert (answer.status, answer.error["code"]) == (2, "app_missing")


def test_a_probe_s_did_not_happen_counts_when_the_deadline_has_settled(
    doubt: dict[str, Any], call: Call, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("AGENCY_RESETS", "1")
    monkeypatch.setattr(agency.bill, "probe", lambda asked: CannotTell())
    run = call("run", "invoice", "--input", ORDER, "--json").json
    (asked,) = run["doubts"]
    monkeypatch.delenv("AGENCY_RESETS")
    cannot = call("resolve", asked["id"], "--probe", "--json")
    assert (cannot.status, cannot.error["code"]) == (6, "probe_cannot_tell")
    (tmp_path / "truth").unlink()
    now = SystemClock.now

    def slow(asked: Doubt) -> Happened | DidNotHappen:
        answer = agency.look(asked)
        monkeypatch.setattr(SystemClock, "now", lambda self: now(self) + 3_600_000_000)
        return answer

    monkeypatch.setattr(agency.bill, "probe", slow)
    early = call("resolve", asked["id"], "--probe", "--json")
    assert (early.status, early.error["code"]) == (6, "too_early"), "asked for before it had settled, it does not count"
    settled = call("resolve", asked["id"], "--probe", "--json")
    assert (settled.status, settled.json["resolution"]) == (0, "did_not_happen")
    assert call("resume", run["run_id"], "--json").json["output"] == "Receipt"
    assert len(agency.truth()) == 1


@pytest.mark.parametrize(
    "args",
    [
        (),
        ("--abandon", "--did-not-happen", *BASIS),
        ("--abandon",),
        ("--resend", *BASIS),
        ("--abandon", "--acknowledge", *BASIS),
        ("--happened", "{", *BASIS),
    ],
    ids=["nothing", "two ways", "no basis", "not acknowledged", "acknowledged for nothing", "no JSON"],
)
def test_a_decision_that_is_not_one_is_refused(doubt: dict[str, Any], call: Call, args: tuple[str, ...]) -> None:
    answer = call("resolve", doubt["id"], *args, "--json")
    assert (answer.status, answer.error["code"]) in ((2, "bad_usage"), (2, "bad_input"))
    assert call("tool-calls", "--status", "in_doubt", "--json").json["tool_calls"] == [doubt]


@pytest.mark.parametrize("prefix", ["", "tc_", "tc_0NOSUCHCALL"])
def test_a_call_that_is_not_there_is_refused(doubt: dict[str, Any], call: Call, prefix: str) -> None:
    answer = call("resolve", prefix, "--abandon", *BASIS, "--json")
    assert (answer.status, answer.error["code"]) == (2, "no_such_call")


def test_another_tenant_s_doubt_is_not_there(doubt: dict[str, Any], call: Call) -> None:
    answer = call("resolve", doubt["id"], "--abandon", *BASIS, "--scope", "other/default", "--json")
    assert (answer.status, answer.error["code"]) == (2, "no_such_call")
