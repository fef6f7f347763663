"""Chat runs: their shapes, their identity, their end; and taking large files of JSON apart."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold.events.identity import Stream
from refold.interop.importers import ImportConflict
from refold.interop.importers.reading import Malformed
from refold.interop.importers.splitting import _Splitter
from refold.ledger.ledger import Ledger
from refold.projections.rows import CostRow, FeedbackRow, RunRow, ToolCallRow
from tests.interop.support import heads_of, imported, in_ledger, shared, told_of
from tests.interop.test_pi_mapping import rows
from tests.invariants.checks import check_all


def asked(identity: str, name: str, arguments: str) -> dict[str, Any]:
    return {"id": identity, "type": "function", "function": {"name": name, "arguments": arguments}}


def conversation(who: str = "ada") -> list[dict[str, Any]]:
    return [
        {"role": "system", "content": "be kind"},
        {"role": "user", "content": f"I am {who}"},
        {"role": "assistant", "content": None, "tool_calls": [asked("call_1", "find", f'{{"name": "{who}"}}')]},
        {"role": "tool", "tool_call_id": "call_1", "name": "find", "content": '{"orders": 2}'},
        {"role": "assistant", "content": "two orders"},
        {"role": "user", "content": "pay both"},
        {"role": "assistant", "content": None, "tool_calls": [asked("call_1", "pay", "not json")]},
    ]


def rated(number: int, reward: str = "1.0") -> str:
    run = {"task_id": number, "info": {"task": {"user": f"u{number}"}}, "traj": conversation(f"u{number}"), "trial": 0}
    return json.dumps(run)[:-1] + f', "reward": {reward}}}'


def put(folder: Path, content: str) -> Path:
    path = folder / "runs.json"
    path.write_text(content)
    return path


SHAPES = {
    "an array of runs": lambda: f"[{rated(1)}, {rated(2)}]",
    "an array over lines": lambda: f"[\n {rated(1)},\n {rated(2)}\n]\n",
    "runs a line": lambda: f"{rated(1)}\n{rated(2)}\n",
}


@pytest.mark.parametrize("shape", SHAPES)
def test_runs_come_in_arrays_and_in_lines(tmp_path: Path, shape: str) -> None:
    report = imported(tmp_path, put(tmp_path, SHAPES[shape]()), kind="chat")
    assert [(run.inferences, run.tool_calls, run.unanswered, run.errors) for run in report.runs] == [(3, 2, 1, [])] * 2
    assert [row.status for row in rows(tmp_path, RunRow, ("run_id",))] == ["succeeded"] * 2
    before = heads_of(tmp_path)
    assert [run.added for run in imported(tmp_path, put(tmp_path, SHAPES["runs a line"]()), kind="chat").runs] == [0, 0]
    assert heads_of(tmp_path) == before
    check_all(tmp_path / "ledger.db")


@pytest.mark.parametrize(
    "content",
    [
        json.dumps(conversation()),
        json.dumps({"messages": conversation()}),
        json.dumps([conversation()]),
        "\n".join(map(json.dumps, conversation())),
        json.dumps({"messages": conversation(), "reward": None}, indent=2),
    ],
    ids=["a list", "an object", "a list of lists", "a message a line", "an object over lines"],
)
def test_a_conversation_without_an_end_stays_open(tmp_path: Path, content: str) -> None:
    (run,) = imported(tmp_path, put(tmp_path, content), kind="chat").runs
    assert (run.inferences, run.tool_calls, run.unanswered, run.errors) == (3, 2, 1, [])
    (row,) = rows(tmp_path, RunRow, ("run_id",))
    assert (row.status, row.reason, row.workflow) == ("paused", "imported", "chat")
    calls = rows(tmp_path, ToolCallRow)
    assert [(each.tool, each.provider_call_id, each.status) for each in calls] == [
        ("find", "call_1", "succeeded"),
        ("pay", "call_1", "in_doubt"),
    ]
    assert rows(tmp_path, CostRow) == []
    check_all(tmp_path / "ledger.db")


def test_a_conversation_that_grows_goes_on_where_it_stood(tmp_path: Path) -> None:
    messages = conversation()
    direct = imported(tmp_path, put(tmp_path, json.dumps(messages)), kind="chat", scope="t/direct").runs[0]
    for count in range(2, len(messages) + 1):
        (run,) = imported(tmp_path, put(tmp_path, json.dumps(messages[:count])), kind="chat").runs
        assert run.created is (count == 2)
    assert told_of(tmp_path, run.run_id) == told_of(tmp_path, direct.run_id, "t/direct")


def test_the_reward_ends_the_run_and_is_its_score_to_the_digit(tmp_path: Path) -> None:
    path = put(tmp_path, rated(1, "0.10000000000000000001"))
    (run,) = imported(tmp_path, path, kind="chat").runs
    (score,) = rows(tmp_path, FeedbackRow)
    assert (score.score, score.source, score.stream) == ("0.10000000000000000001", "evaluator", "annex")
    (row,) = rows(tmp_path, RunRow, ("run_id",))
    assert (row.status, row.output_summary is not None) == ("succeeded", True)
    assert imported(tmp_path, path, kind="chat").runs[0].added == 0
    assert len(rows(tmp_path, FeedbackRow)) == 1
    assert told_of(tmp_path, run.run_id)[-1][1] == "run.succeeded"


def test_a_score_that_was_not_yet_written_when_the_process_died_is_added(tmp_path: Path) -> None:
    """The run is closed in one commit and scored in the next."""
    path = put(tmp_path, rated(1))
    with pytest.raises(InterruptedError):
        in_ledger(tmp_path, lambda ledger: _closed_only(ledger, path))
    assert [row.status for row in rows(tmp_path, RunRow, ("run_id",))] == ["succeeded"]
    assert rows(tmp_path, FeedbackRow) == []
    imported(tmp_path, path, kind="chat")
    assert [row.score for row in rows(tmp_path, FeedbackRow)] == ["1.0"]


async def _closed_only(ledger: Ledger, path: Path) -> None:
    from refold.interop.importers import import_paths

    scope = ledger.scope("t/w")
    writer = scope.writer

    async def no_annex(stream: Stream) -> Any:
        if stream.kind == "annex":
            raise InterruptedError
        return await writer(stream)

    scope.writer = no_annex  # type: ignore[method-assign]
    await import_paths(scope, "chat", [path])


def test_a_changed_message_of_a_known_run_is_a_conflict(tmp_path: Path) -> None:
    imported(tmp_path, put(tmp_path, f"[{rated(1)},\n{rated(2)}]"), kind="chat")
    before = heads_of(tmp_path)
    changed = rated(2).replace("two orders", "no orders")
    with pytest.raises(ImportConflict) as caught:
        imported(tmp_path, put(tmp_path, f"[{rated(1)},\n{changed}]"), kind="chat")
    assert (caught.value.facts["line"], caught.value.facts["record"]) == (2, 6)
    assert heads_of(tmp_path) == before


def test_a_changed_reward_is_a_conflict(tmp_path: Path) -> None:
    imported(tmp_path, put(tmp_path, rated(1, "0.0")), kind="chat")
    with pytest.raises(ImportConflict):
        imported(tmp_path, put(tmp_path, rated(1, "1.0")), kind="chat")


def test_runs_that_are_alike_in_one_file_are_told_apart_by_their_order(tmp_path: Path) -> None:
    one, other = conversation(), [*conversation()[:4], {"role": "assistant", "content": "three orders"}]
    path = put(tmp_path, json.dumps(one) + "\n" + json.dumps(other) + "\n" + json.dumps(one))
    runs = imported(tmp_path, path, kind="chat").runs
    assert len({run.run_id for run in runs}) == 3
    assert [run.added for run in imported(tmp_path, path, kind="chat").runs] == [0, 0, 0]


@pytest.mark.parametrize(
    ("cut", "line", "before"),
    [(1, 1, 0), (40, 1, 0), (len(rated(1)) + 100, 2, 1), (2 * len(rated(1)) + 50, 3, 2), (-2, 3, 3), (-1, 4, 3)],
)
def test_a_cut_array_keeps_the_runs_before_the_cut_and_is_completed(
    tmp_path: Path, cut: int, line: int, before: int
) -> None:
    whole = f"[{rated(1)},\n{rated(2)},\n{rated(3)}\n]"
    report = imported(tmp_path, put(tmp_path, whole[:cut]), kind="chat")
    assert not report.complete
    assert [problem.line for run in report.runs for problem in run.errors] == [line]
    done = [run.run_id for run in report.runs if run.run_id is not None]
    assert len(done) == before
    again = imported(tmp_path, put(tmp_path, whole), kind="chat").runs
    assert [run.errors for run in again] == [[], [], []]
    assert [run.run_id for run in again][:before] == done


def test_a_list_of_messages_that_is_cut_keeps_the_messages_before_the_cut(tmp_path: Path) -> None:
    whole = json.dumps(conversation())
    direct = imported(tmp_path, put(tmp_path, whole), kind="chat", scope="t/direct").runs[0]
    expected = told_of(tmp_path, direct.run_id, "t/direct")
    for place in range(10, len(whole) - 1, 61):
        scope = f"t/{place}"
        (run,) = imported(tmp_path, put(tmp_path, whole[:place]), kind="chat", scope=scope).runs
        assert [problem.line for problem in run.errors] == [1]
        if run.run_id is not None:
            assert told_of(tmp_path, run.run_id, scope) == expected[: run.events]
        (rest,) = imported(tmp_path, put(tmp_path, whole), kind="chat", scope=scope).runs
        assert told_of(tmp_path, rest.run_id, scope) == expected


@pytest.mark.parametrize("content", ["", "[]", "5", '{"a": 1}', '{"messages": 5}', "[[5", "]", ",", "[1]"])
def test_a_file_that_holds_no_run_says_so_and_writes_nothing(tmp_path: Path, content: str) -> None:
    report = imported(tmp_path, put(tmp_path, content), kind="chat")
    assert [problem.line for run in report.runs for problem in run.errors] == [1]
    assert heads_of(tmp_path) == []


def test_usage_of_openais_api_includes_cached_tokens_and_is_not_counted_twice(tmp_path: Path) -> None:
    """Case 37, the other side."""
    usage = {"prompt_tokens": 1000, "completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": 900}}
    messages = [*conversation()[:2], {"role": "assistant", "content": "hi", "usage": usage}]
    (run,) = imported(tmp_path, put(tmp_path, json.dumps(messages)), kind="chat").runs
    (cost,) = rows(tmp_path, CostRow)
    assert (cost.tokens_prompt, cost.tokens_cached, cost.tokens_total) == (1000, 900, 1005)
    assert (cost.amount, run.charges) == (None, {})


def test_messages_of_odd_shapes_are_kept(tmp_path: Path) -> None:
    odd: list[Any] = [
        5,
        None,
        {"role": "function", "content": "x"},
        {"role": "assistant", "tool_calls": [3, {}, {"function": {"name": 5, "arguments": 7}}]},
        {"role": "tool", "content": [{"type": "image"}]},
        {"role": "assistant", "content": [{"type": "text", "text": "hello"}], "tool_calls": "x"},
    ]
    report = imported(tmp_path, put(tmp_path, json.dumps({"messages": [*conversation()[:2], *odd]})), kind="chat")
    assert (report.runs[0].errors, report.runs[0].inferences) == ([], 2)
    assert {each["what"] for each in report.unknown} == {"message role"}
    check_all(tmp_path / "ledger.db")


def test_the_eighty_recorded_runs_come_in_and_stay_as_they_are(tmp_path: Path) -> None:
    path = shared("tau-bench/*.json")
    report = imported(tmp_path, path, kind="chat")
    assert len(report.runs) == 80
    assert len({run.run_id for run in report.runs}) == 80
    messages = [message for run in json.loads(path.read_text()) for message in run["traj"]]
    calls = sum(len(message.get("tool_calls") or ()) for message in messages)
    assert sum(run.inferences for run in report.runs) == sum(message["role"] == "assistant" for message in messages)
    assert (sum(run.tool_calls for run in report.runs), sum(run.unanswered for run in report.runs)) == (calls, 0)
    assert (report.complete, report.unknown, rows(tmp_path, CostRow)) == (True, [], [])
    scores = [row.score for row in rows(tmp_path, FeedbackRow)]
    assert (scores.count("1.0"), scores.count("0.0")) == (30, 50)
    before = heads_of(tmp_path)
    again = imported(tmp_path, path, kind="chat")
    assert sum(run.added for run in again.runs) == 0
    assert [run.run_id for run in again.runs] == [run.run_id for run in report.runs]
    assert heads_of(tmp_path) == before
    check_all(tmp_path / "ledger.db")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@given(
    values=st.lists(st.lists(JSON, max_size=4) | st.dictionaries(st.text(), JSON, max_size=3), max_size=4),
    indent=st.sampled_from([None, 1]),
    ascii_=st.booleans(),
    chunks=st.lists(st.integers(1, 40), min_size=1, max_size=60),
)
def test_a_file_is_taken_apart_alike_however_it_is_read(
    values: list[Any], indent: int | None, ascii_: bool, chunks: list[int]
) -> None:
    data = "\n".join(json.dumps(value, indent=indent, ensure_ascii=ascii_) for value in values).encode()
    splitter, found, at = _Splitter(), [], 0
    while at < len(data):
        size = chunks[at % len(chunks)]
        found += list(splitter.feed(data[at : at + size]))
        at += size
    splitter.finish()
    expected = [element for value in values for element in (value if isinstance(value, list) else [value])]
    assert [json.loads(element.data) for element in found] == expected
    assert all(data[: element.end].endswith((b"}", b"]", b",")) for element in found)
    begins = [data.rindex(element.data, 0, element.end) for element in found]
    assert begins == sorted(begins)
    assert [element.line for element in found] == [data[:begin].count(b"\n") + 1 for begin in begins]


@given(value=st.lists(JSON, min_size=1, max_size=4), at=st.integers(1))
def test_a_file_that_was_cut_is_never_taken_for_a_whole_one(value: list[Any], at: int) -> None:
    data = json.dumps(value).encode()
    splitter = _Splitter()
    list(splitter.feed(data[: at % (len(data) - 1) + 1]))
    with pytest.raises(Malformed):
        splitter.finish()
