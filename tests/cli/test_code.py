"""Where the code of runs comes from, and what is never imported."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from refold.cli.code import BadTarget, ForeignSettings, load_app, load_workflow
from refold.cli.settings import Setting, load_settings
from tests.cli import agency
from tests.cli.conftest import Call

HERE = "tests.cli.agency"


@pytest.mark.parametrize(
    ("flags", "environment", "file", "value", "source"),
    [
        ({"app": "a:flag"}, {"REFOLD_APP": "a:env"}, True, "a:flag", "flag"),
        ({}, {"REFOLD_APP": "a:env"}, True, "a:env", "environment REFOLD_APP"),
        ({}, {}, True, "a:file", "file HERE/refold.toml"),
        ({}, {}, False, "", "default"),
    ],
)
def test_the_app_is_named_by_flag_then_environment_then_file(
    tmp_path: Path, flags: dict[str, str | None], environment: dict[str, str], file: bool, value: str, source: str
) -> None:
    if file:
        (tmp_path / "refold.toml").write_text('app = "a:file"\n')
    assert load_settings(flags, environment, tmp_path).app == (value, source.replace("HERE", str(tmp_path)))


def test_a_workflow_is_named_by_module_or_by_its_name_in_the_app() -> None:
    assert load_workflow(f"{HERE}:buy", Setting("", "default")) == (agency.app, agency.buy)
    assert load_workflow("buy", Setting(f"{HERE}:app", "flag")) == (agency.app, agency.buy)


@pytest.mark.parametrize(
    "target", [f"{HERE}:app", f"{HERE}:times", f"{HERE}:nothing", "no.such.module:x", f"{HERE}:", "../x:y", ":"]
)
def test_what_is_no_workflow_is_refused_with_a_sentence(target: str) -> None:
    with pytest.raises(BadTarget, match=r"\.$"):
        load_workflow(target, Setting("", "default"))


@pytest.mark.parametrize("error", ["LookupError", "SystemExit", "BaseException"])
def test_a_module_that_fails_is_told_in_one_sentence(call: Call, error: str) -> None:
    Path(f"broken_{error}.py").write_text(f"raise {error}('no price list')\n")
    answer = call("run", f"broken_{error}:buy", "--json")
    assert (answer.status, answer.error["code"]) == (2, "bad_target")
    assert f"{error}: no price list" in answer.error["message"]


def test_the_folder_of_the_settings_file_is_importable_from_below(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: Call
) -> None:
    (tmp_path / "refold.toml").write_text('app = "named_in_a_file:app"\nledger = "l.db"\n')
    (tmp_path / "named_in_a_file.py").write_text(
        "from refold import App, Run\napp = App('x')\n@app.workflow()\nasync def five(run: Run) -> int:\n    return 5\n"
    )
    monkeypatch.delenv("REFOLD_LEDGER", raising=False)
    assert call("run", "five", "--json").json["output"] == 5


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a file away")
def test_a_settings_file_of_somebody_else_names_no_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "refold.toml"
    file.write_text('app = "stranger:app"\n')
    os.chown(file, 65534, 65534)
    setting = load_settings({}, {}, tmp_path).app
    with pytest.raises(ForeignSettings):
        load_app(setting)
    assert isinstance(load_settings({"app": f"{HERE}:app"}, {}, tmp_path).app.value, str)


def test_what_a_record_names_is_shown_and_not_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: Call
) -> None:
    monkeypatch.setenv("REFOLD_LEDGER", str(tmp_path / "l.db"))
    monkeypatch.setenv("AGENCY_TRUTH", str(tmp_path / "truth"))
    run_id = call("run", f"{HERE}:ask", "--json").json["run_id"]
    for args in (("resume", run_id), ("replay", run_id, "--mode", "partial", "--until", "2")):
        answer = call(*args, "--json")
        assert (answer.status, answer.error["code"]) == (2, "app_missing")
    assert "'ask'" in call("resume", run_id).err


def test_kinds_6_and_7_run_the_named_code_and_change_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: Call
) -> None:
    monkeypatch.setenv("REFOLD_LEDGER", str(tmp_path / "l.db"))
    monkeypatch.setenv("REFOLD_APP", f"{HERE}:app")
    monkeypatch.setenv("AGENCY_TRUTH", str(tmp_path / "truth"))
    run = call("run", "buy", "--input", '{"id": "o1", "amount": 3}', "--json").json
    whole = call("replay", run["run_id"], "--mode", "inference-skipping", "--json")
    assert (whole.status, whole.json["result"], whole.json["divergences"]) == (0, "equal", [])
    assert whole.json["state"]["output"] == run["output"]
    assert (
        whole.json["source_head_before"]
        == whole.json["source_head_after"]
        == {
            "seq": run["head_seq"],
            "hash": run["head_hash"],
        }
    )
    assert call("runs", "replay", run["run_id"], "--mode", "inference-skipping", "--json").out == whole.out
    part = call("replay", run["run_id"], "--mode", "partial", "--until", "3", "--json").json
    assert [each["asks"] for each in part["state"]["waits_for"]] == [{"tool": "charge", "arguments": {"amount": 6}}]
    assert "waits for" in call("replay", run["run_id"], "--mode", "partial", "--until", "3").out
    monkeypatch.setattr(agency, "buy", None)
    dry = call("replay", run["run_id"], "--mode", "partial", "--until", "3", "--dry-run", "--json")
    assert (dry.status, dry.json["result"], dry.json["plan"]["executes"]) == (0, None, ["code"])
    assert call("replay", run["run_id"], "--mode", "partial").status == 2
    assert call("replay", run["run_id"], "--mode", "inference-skipping", "--until", "3").status == 2
    assert call("replay", run["run_id"], "--mode", "partial", "--until", "99", "--json").error["code"] == "beyond_head"
    assert len(agency.truth()) == 1
