"""Lines and files that are not what their format says, or just barely."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from refold.interop.importers import SourceUnreadable, UnknownFormat
from tests.interop.support import HEADER, answer, heads_of, imported, line, text, told_of, user, write
from tests.invariants.checks import check_all

BEFORE = [HEADER, user(1, "one"), answer(2, text("two"))]


def _nested(depth: int) -> bytes:
    return b'{"type":"message","message":{"role":"user","content":' + b"[" * depth + b"]" * depth + b"}}\n"


@pytest.mark.parametrize(
    "bad",
    [
        b'{"type": "message", "mess\n',
        b"not json\n",
        b"[1, 2]\n",
        b"null\n",
        b'{"type": "message"} {}\n',
        b'"\x00"\n',
        b'{"type": "a\x00b"}\n',
        b'{"type": "\xff\xfe"}\n',
        b"1" * 5000 + b"\n",
        _nested(10_000),
        _nested(500),
    ],
    ids=lambda value: value[:24],
)
def test_a_line_that_cannot_be_read_is_named_and_ends_the_import_there(tmp_path: Path, bad: bytes) -> None:
    path = tmp_path / "s.jsonl"
    path.write_bytes(b"".join(map(line, BEFORE)) + bad + line(user(3, "after")))
    report = imported(tmp_path, path)
    (run,) = report.runs
    assert [problem.line for problem in run.errors] == [4]
    assert "Line 4" in run.errors[0].message
    assert not report.complete
    assert (run.events, run.inferences) == (7, 1)
    assert "after" not in json.dumps(told_of(tmp_path, run.run_id))
    check_all(tmp_path / "ledger.db")


@pytest.mark.parametrize(
    "content",
    [
        '"lone \\ud800 surrogate"',
        '"nul \\u0000 in it"',
        "[NaN, Infinity, -Infinity]",
        "123456789012345678901234567890",
        "-0.0",
        '{"$": ["int", "5"]}',
        "[" * 150 + "]" * 150,
    ],
    ids=lambda value: value[:20],
)
def test_what_json_hardly_holds_is_kept_as_it_is(tmp_path: Path, content: str) -> None:
    odd = line(user(3, "MARK")).replace(b'[{"type": "text", "text": "MARK"}]', content.encode())
    path = tmp_path / "s.jsonl"
    path.write_bytes(b"".join(map(line, BEFORE)) + odd + line(answer(4, text("fine"))))
    (run,) = imported(tmp_path, path).runs
    assert (run.errors, run.inferences) == ([], 2)
    before = heads_of(tmp_path)
    assert imported(tmp_path, path).runs[0].added == 0
    assert heads_of(tmp_path) == before
    check_all(tmp_path / "ledger.db")


@pytest.mark.parametrize(
    "message",
    [
        {"role": "assistant"},
        {"role": "assistant", "content": 5, "usage": [], "model": None, "stopReason": 7, "timestamp": -1},
        {"role": "assistant", "content": [None, 3, {"type": "toolCall"}], "usage": {"input": "a", "cost": 3}},
        {"role": "assistant", "content": [{"type": "toolCall", "id": 9, "name": {}, "arguments": None}]},
        {"role": "toolResult"},
        {"role": "toolResult", "toolCallId": ["x"], "content": {"a": 1}},
        {"role": "bashExecution", "command": 1, "output": None},
        {"role": ["user"]},
        {"role": "user", "content": None},
        {},
    ],
    ids=str,
)
def test_a_message_of_the_wrong_shape_is_kept_and_not_guessed_at(tmp_path: Path, message: dict[str, Any]) -> None:
    odd = {"type": "message", "timestamp": 5, "message": message}
    (run,) = imported(tmp_path, write(tmp_path / "s.jsonl", [*BEFORE, odd, answer(4, text("fine"))])).runs
    assert run.errors == []
    check_all(tmp_path / "ledger.db")


@pytest.mark.parametrize(
    "data",
    [b"", b"\n\n", b'{"type": "message"}\n', b'{"type": "session"}\n', b'{"type": "ses'],
    ids=["empty", "blank", "no header", "no id", "cut header"],
)
def test_a_file_without_a_whole_header_writes_nothing(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "s.jsonl"
    path.write_bytes(data)
    (run,) = imported(tmp_path, path).runs
    assert (run.run_id, [problem.line for problem in run.errors]) == (None, [1])
    assert heads_of(tmp_path) == []


def test_a_missing_file_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    good = write(tmp_path / "s.jsonl", BEFORE)
    with pytest.raises(SourceUnreadable) as caught:
        imported(tmp_path, good, tmp_path / "none.jsonl")
    assert caught.value.exit_status == 2
    assert heads_of(tmp_path) == []


def test_an_unknown_format_is_refused_and_the_known_are_named(tmp_path: Path) -> None:
    with pytest.raises(UnknownFormat, match=r"chat.*pi"):
        imported(tmp_path, write(tmp_path / "s.jsonl", BEFORE), kind="nope")


def test_one_bad_file_does_not_keep_the_next_from_being_imported(tmp_path: Path) -> None:
    bad = tmp_path / "bad.jsonl"
    bad.write_bytes(line(HEADER) + b"{")
    good = write(tmp_path / "good.jsonl", [{**HEADER, "id": "other"}, *BEFORE[1:]])
    first, second = imported(tmp_path, bad, good).runs
    assert ([problem.line for problem in first.errors], second.errors, second.inferences) == ([2], [], 1)


def test_a_record_of_ten_megabytes_goes_in_whole(tmp_path: Path) -> None:
    words = "word " * 2_000_000
    (run,) = imported(tmp_path, write(tmp_path / "s.jsonl", [*BEFORE, user(3, words)])).runs
    assert run.errors == []
    (value,) = told_of(tmp_path, run.run_id)[-1][5][1]["value"]
    assert json.loads(value)["content"][0]["text"] == words


def test_a_secret_in_a_name_that_means_nothing_is_not_reported(tmp_path: Path) -> None:
    secret = "ghp_abcdefghijklmnopqrstuvwxyz0123456789"
    strange = {"type": f"note-{secret}", "id": "9", "parentId": "2"}
    report = imported(tmp_path, write(tmp_path / "s.jsonl", [*BEFORE, strange]))
    assert [each["name"] for each in report.unknown] == ["note-[redacted:github]"]
    assert secret not in json.dumps(report.as_dict())
