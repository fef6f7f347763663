"""`refold import` on a small session that the project wrote itself: what it answers, and how it ends."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Call
from tests.cli.support import HOSTILE

TIME = "2026-01-01T10:00:0{}.000Z"
RUN_KEYS = {"run_id", "source", "created", "events", "inferences", "tool_calls", "unanswered", "errors", "charges"}


def _message(second: int, **message: Any) -> dict[str, Any]:
    return {"type": "message", "timestamp": TIME.format(second), "message": message}


def _session(last: str = "thanks") -> list[dict[str, Any]]:
    def call(number: int) -> dict[str, Any]:
        return {"type": "toolCall", "id": f"call{number}", "name": "bash", "arguments": {"command": HOSTILE}}

    cost = {"total": 0.017400000000000002}
    usage = {"input": 10, "output": 5, "cacheRead": 0, "cacheWrite": 0, "cost": cost}
    return [
        {"type": "session", "id": "small", "timestamp": TIME.format(0), "cwd": "/tmp"},
        _message(1, role="user", content=[{"type": "text", "text": HOSTILE}]),
        _message(
            2,
            role="assistant",
            content=[call(1), call(2)],
            api="x",
            provider="p",
            model="m",
            usage=usage,
            stopReason="toolUse",
        ),
        _message(3, role="toolResult", toolCallId="call1", toolName="bash", content=[{"type": "text", "text": "ok"}]),
        _message(4, role="user", content=[{"type": "text", "text": last}]),
    ]


def _write(path: Path, records: list[dict[str, Any]], *, cut: int = 0) -> str:
    text = "".join(json.dumps(record) + "\n" for record in records)
    path.write_text(text[: len(text) - cut])
    return str(path)


@pytest.fixture
def ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "new.db"
    monkeypatch.setenv("REFOLD_LEDGER", str(path))
    return path


def test_an_import_makes_the_ledger_and_tells_what_came_in(ledger: Path, call: Call, tmp_path: Path) -> None:
    source = _write(tmp_path / "s.jsonl", _session())
    answer = call("import", "pi", source, "--json")
    assert answer.status == 0
    (run,) = answer.json["runs"]
    assert set(run) >= RUN_KEYS
    assert (run["created"], run["inferences"], run["tool_calls"], run["unanswered"]) == (True, 1, 2, 1)
    assert run["charges"] == {"USD": "0.017400000000000002"}
    assert answer.json["unknown"] == []
    heads = call("runs", "--json").json
    again = call("import", "pi", source, "--json")
    assert (again.status, again.json["runs"][0]["created"]) == (0, False)
    assert call("runs", "--json").json == heads
    assert call("import", "pi", source).out.replace("\n", "").isprintable()


def test_a_cut_file_ends_with_8_and_the_whole_one_completes_it(ledger: Path, call: Call, tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    cut = call("import", "pi", _write(path, _session(), cut=20), "--json")
    assert cut.status == 8
    (run,) = cut.json["runs"]
    assert run["errors"][0]["line"] == 5
    whole = call("import", "pi", _write(path, _session()), "--json")
    assert (whole.status, whole.json["runs"][0]["run_id"]) == (0, run["run_id"])
    assert whole.json["runs"][0]["events"] > run["events"]


def test_a_changed_earlier_record_is_a_conflict(ledger: Path, call: Call, tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    assert call("import", "pi", _write(path, _session())).status == 0
    changed = call("import", "pi", _write(path, _session(last="no thanks")), "--json")
    assert (changed.status, changed.error["code"]) == (6, "import_conflict")


def test_a_file_of_another_format_is_said_to_be_unread(ledger: Path, call: Call, tmp_path: Path) -> None:
    answer = call("import", "chat", _write(tmp_path / "s.jsonl", _session()))
    assert (answer.status, "Nothing could be read as chat" in answer.out) == (8, True)
    assert "unchanged" not in answer.out


@pytest.mark.parametrize("args", [("pi", "nothing.jsonl"), ("pi", "."), ("other", "SOURCE"), ("pi",)])
def test_bad_input_makes_no_ledger(ledger: Path, call: Call, tmp_path: Path, args: tuple[str, ...]) -> None:
    source = _write(tmp_path / "s.jsonl", _session())
    answer = call("import", *(source if each == "SOURCE" else each for each in args), "--json")
    assert (answer.status, answer.out) == (2, "")
    assert not ledger.exists()
