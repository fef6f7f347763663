"""The thirteen items: what each of them says, and that none of them ever raises (case 42)."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw
import pytest

from refold.events.catalog.governance import ApprovalDecided, ApprovalRequested, PolicyDecided
from refold.events.catalog.inference import CostRecorded, InferenceCompleted, InferenceLost, InferenceRequested
from refold.events.catalog.run import RunCanceled, RunSucceeded
from refold.events.catalog.steps import StepCompleted
from refold.events.catalog.tool import ToolDoubted, ToolFailed, ToolRefused
from refold.ledger.ledger import Ledger
from refold.ledger.maintenance.erasure import erase_run
from refold.replay.evidence import evidence
from refold.replay.items import RULES, evidence_items
from tests.replay.support import SECRET, Teller, begin, doubtful, every_event, with_ledger

KEYS = [
    "actor_scope",
    "subject_version",
    "capability_binding",
    "permission_scope",
    "secret_boundary",
    "egress_policy",
    "audit_record",
    "cost_attribution",
    "trace_timeline",
    "tool_call",
    "knowledge_citation",
    "child_workflow",
    "replay_ready",
]


async def _items(ledger: Ledger, run_id: str) -> dict[str, dict[str, Any]]:
    async with ledger.scope().reader() as reader:
        items = await evidence_items(reader, run_id, ledger.files)
    assert [(item["key"], item["rule"]) for item in items] == list(zip(KEYS, range(1, 14), strict=True))
    assert all(item["status"] in ("pass", "warning", "fail", "not_applicable") and item["summary"] for item in items)
    return {item["key"]: item for item in items}


def test_there_are_thirteen_rules_in_their_order() -> None:
    assert [key for key, _ in RULES] == KEYS


def test_a_run_with_everything_is_ready_for_replay(tmp_path: Path) -> None:
    async def work(ledger: Ledger) -> None:
        teller = await every_event(ledger.scope())
        items = await _items(ledger, teller.run_id)
        statuses = {key: item["status"] for key, item in items.items()}
        warned = {"capability_binding", "secret_boundary", "cost_attribution"}
        assert statuses == dict.fromkeys(KEYS, "pass") | dict.fromkeys(warned, "warning") | {
            "child_workflow": "not_applicable"
        }
        kinds = items["replay_ready"]["kinds"]
        assert [kind["number"] for kind in kinds] == list(range(1, 10))
        assert [kind["number"] for kind in kinds if kind["supported"]] == [1, 2, 3, 5, 6, 7]
        assert all(kind["supported"] or kind["why"] for kind in kinds)

    with_ledger(tmp_path, work)


def test_an_imported_session_in_doubt_says_what_it_lacks(tmp_path: Path) -> None:
    async def work(ledger: Ledger) -> None:
        teller = await doubtful(ledger.scope())
        items = await _items(ledger, teller.run_id)
        assert {key: item["status"] for key, item in items.items()} == {
            "actor_scope": "fail",
            "subject_version": "not_applicable",
            "capability_binding": "fail",
            "permission_scope": "not_applicable",
            "secret_boundary": "pass",
            "egress_policy": "warning",
            "audit_record": "not_applicable",
            "cost_attribution": "pass",
            "trace_timeline": "pass",
            "tool_call": "fail",
            "knowledge_citation": "not_applicable",
            "child_workflow": "not_applicable",
            "replay_ready": "fail",
        }
        doubted = list(teller.ids)[-1]
        assert items["tool_call"]["missing"] == [f"outcome of {doubted}"]
        assert items["replay_ready"]["missing"] == [f"receipt of {doubted}", "pinned configuration", "end of the run"]
        assert [kind["number"] for kind in items["replay_ready"]["kinds"] if kind["supported"]] == [1, 2, 5]

    with_ledger(tmp_path, work)


def _nothing(_: Teller) -> None:
    pass


def _ask(t: Teller) -> str:
    step = t.new("st")
    t.tell(InferenceRequested(step_id=step, model="m", provider="p"), content={"messages": []})
    return step


def _unpaid(t: Teller) -> None:
    t.tell(InferenceCompleted(step_id=_ask(t), finish="stop"), content={"message": "x"})


def _lost(t: Teller) -> None:
    t.tell(InferenceLost(step_id=_ask(t)))


def _unpriced(t: Teller) -> None:
    t.tell(CostRecorded(cost_id=t.new("cost"), source_ref="r"))


def _ungoverned(t: Teller) -> None:
    t.answer(t.dispatch("pay", decided=False))


def _read_only(t: Teller) -> None:
    t.answer(t.dispatch("look", effect="read", decided=False))


def _pure(t: Teller) -> None:
    t.answer(t.dispatch("add", effect="pure", decided=False))


def _governed(t: Teller) -> None:
    t.answer(t.dispatch("pay"))


def _in_doubt(t: Teller) -> None:
    t.later(t.dispatch("pay"), ToolDoubted, why="timeout")


def _waiting(t: Teller) -> None:
    t.dispatch("pay")


def _failed_call(t: Teller) -> None:
    t.later(t.dispatch("pay"), ToolFailed, how="not_sent")


def _approved_only(t: Teller) -> None:
    call = t.dispatch("pay", decided=False)
    t.tell(ApprovalRequested(approval_id="apr_1", tool_call_id=call, step_id="st", tool="pay", digest="d"))
    t.tell(ApprovalDecided(approval_id="apr_1", decision="approved", digest="d"))
    t.answer(call)


def _refused(t: Teller) -> None:
    t.tell(ToolRefused(tool_call_id=t.new("tc"), step_id=t.new("st"), tool="rm", reason="policy"))


def _quota_of_the_run(t: Teller) -> None:
    t.tell(PolicyDecided(policy="q", kind="quota", decision="allow"))


def _secret(t: Teller) -> None:
    t.tell(StepCompleted(step_id=t.new("st"), name="n"), content={"output": {"api_key": SECRET}})


def _uncited(t: Teller) -> None:
    t.tell(StepCompleted(step_id=t.new("st"), name="n", type="retrieval"), content={"output": []})


def _cited(t: Teller) -> None:
    t.tell(StepCompleted(step_id=t.new("st"), name="n", type="retrieval"), content={"citations": ["a"]})


def _open_step_in_closed_run(t: Teller) -> None:
    _ask(t)
    t.tell(RunSucceeded())


def _canceled(t: Teller) -> None:
    t.tell(RunCanceled())


@pytest.mark.parametrize(
    ("key", "status", "story"),
    [
        ("subject_version", "pass", _nothing),
        ("capability_binding", "not_applicable", _nothing),
        ("capability_binding", "warning", _unpaid),
        ("permission_scope", "not_applicable", _read_only),
        ("permission_scope", "fail", _ungoverned),
        ("permission_scope", "fail", _approved_only),
        ("permission_scope", "pass", _governed),
        ("permission_scope", "pass", _refused),
        ("secret_boundary", "pass", _nothing),
        ("secret_boundary", "warning", _secret),
        ("egress_policy", "not_applicable", _pure),
        ("egress_policy", "fail", _read_only),
        ("egress_policy", "pass", _governed),
        ("audit_record", "not_applicable", _nothing),
        ("audit_record", "fail", _ungoverned),
        ("audit_record", "pass", _approved_only),
        ("audit_record", "pass", _quota_of_the_run),
        ("audit_record", "pass", _canceled),
        ("cost_attribution", "not_applicable", _nothing),
        ("cost_attribution", "fail", _unpaid),
        ("cost_attribution", "fail", _lost),
        ("cost_attribution", "warning", _unpriced),
        ("trace_timeline", "pass", _nothing),
        ("trace_timeline", "warning", _waiting),
        ("trace_timeline", "pass", _in_doubt),
        ("trace_timeline", "fail", _open_step_in_closed_run),
        ("tool_call", "not_applicable", _nothing),
        ("tool_call", "pass", _failed_call),
        ("tool_call", "warning", _waiting),
        ("tool_call", "fail", _in_doubt),
        ("knowledge_citation", "fail", _uncited),
        ("knowledge_citation", "pass", _cited),
        ("replay_ready", "fail", _nothing),
        ("replay_ready", "pass", _canceled),
        ("replay_ready", "fail", _open_step_in_closed_run),
    ],
    ids=lambda value: value.__name__ if callable(value) else value,
)
def test_an_item_says(tmp_path: Path, key: str, status: str, story: Callable[[Teller], None]) -> None:
    async def work(ledger: Ledger) -> None:
        teller = await begin(ledger.scope())
        story(teller)
        await teller.writer.barrier()
        item = (await _items(ledger, teller.run_id))[key]
        assert item["status"] == status, item
        assert (status in ("fail",) and bool(item["missing"])) or status != "fail"

    with_ledger(tmp_path, work)


@pytest.mark.parametrize(
    ("facts", "status"), [({"user_id": None}, "fail"), ({"user_id": None, "api_key_id": "key_1"}, "pass"), ({}, "pass")]
)
def test_the_actor_is_a_user_or_a_key(tmp_path: Path, facts: dict[str, Any], status: str) -> None:
    async def work(ledger: Ledger) -> None:
        teller = await begin(ledger.scope(), **facts)
        assert (await _items(ledger, teller.run_id))["actor_scope"]["status"] == status

    with_ledger(tmp_path, work)


DAMAGE = {
    "every second event is gone": ("DELETE FROM events WHERE seq % 2 = 0", ["trace_timeline", "replay_ready"]),
    "the first half is gone": ("DELETE FROM events WHERE seq < 30", ["trace_timeline", "replay_ready"]),
    "the last half is gone": ("DELETE FROM events WHERE seq > 30", ["trace_timeline", "replay_ready"]),
    "all events are gone": ("DELETE FROM events", ["trace_timeline", "replay_ready"]),
    "the run's row is gone": ("DELETE FROM runs", ["actor_scope", "subject_version", "replay_ready"]),
    "the calls are gone": ("DELETE FROM run_step_tool_calls", ["tool_call"]),
    "the steps are gone": ("DELETE FROM run_steps", ["tool_call"]),
    "a call's step is gone": (
        "DELETE FROM run_steps WHERE step_id = (SELECT min(step_id) FROM run_steps WHERE type = 'tool')",
        ["tool_call"],
    ),
    "the audit is gone": ("DELETE FROM audit", ["audit_record"]),
    "an event has an unknown type": (
        "UPDATE events SET type = 'moon.rose' WHERE seq = 9",
        ["permission_scope", "trace_timeline", "replay_ready"],
    ),
    "an event has a newer version": (
        "UPDATE events SET version = 99 WHERE seq = 9",
        ["cost_attribution", "replay_ready"],
    ),
    "facts are not JSON": ("UPDATE events SET facts = x'00ff' WHERE seq = 9", ["tool_call", "replay_ready"]),
    "a view is not JSON": ("UPDATE events SET view = zeroblob(40) WHERE view IS NOT NULL", ["replay_ready"]),
    "content is not JSON": (
        "UPDATE events SET content = zeroblob(40) WHERE content IS NOT NULL",
        ["knowledge_citation", "replay_ready"],
    ),
    "content is gone without a word": ("UPDATE events SET content = NULL, view = NULL", ["replay_ready"]),
    "a text is not UTF-8": ("UPDATE run_steps SET node = CAST(x'ff' AS TEXT)", ["trace_timeline", "tool_call"]),
    "the blobs are gone": ("DELETE FROM blobs", ["replay_ready"]),
    "a head is another's": ("UPDATE stream_heads SET hash = zeroblob(32)", ["trace_timeline", "replay_ready"]),
    "a number is a word": ("UPDATE run_cost_entries SET tokens_prompt = 'many'", ["cost_attribution"]),
}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    folder = tmp_path_factory.mktemp("whole")

    async def work(ledger: Ledger) -> str:
        return (await every_event(ledger.scope())).run_id

    return folder, with_ledger(folder, work)


@pytest.mark.parametrize("what", DAMAGE)
def test_case_42_missing_evidence_is_an_item_that_fails_and_never_an_error(
    whole: tuple[Path, str], tmp_path: Path, what: str
) -> None:
    folder, run_id = whole
    copy = shutil.copytree(folder, tmp_path / "copy")
    sql, failing = DAMAGE[what]
    connection = apsw.Connection(str(copy / "ledger.db"))
    connection.execute(sql)
    assert connection.changes() > 0
    connection.close()

    async def work(ledger: Ledger) -> None:
        items = await _items(ledger, run_id)
        for key in failing:
            assert items[key]["status"] == "fail", (key, items[key])
            assert items[key]["missing"]

    with_ledger(copy, work)


@pytest.mark.parametrize(
    "what", [what for what in DAMAGE if "row" not in what and "UTF-8" not in what and "word" not in what]
)
def test_case_42_the_bundle_of_a_run_with_missing_evidence_can_be_read(
    whole: tuple[Path, str], tmp_path: Path, what: str
) -> None:
    folder, run_id = whole
    copy = shutil.copytree(folder, tmp_path / "copy")
    connection = apsw.Connection(str(copy / "ledger.db"))
    connection.execute(DAMAGE[what][0])
    left = connection.execute("SELECT count(*) FROM events WHERE id >> 32 = 1").fetchall()[0][0]
    connection.close()

    async def work(ledger: Ledger) -> None:
        bundle = await evidence(ledger.scope(), run_id)
        assert len(bundle["events"]) == left  # What is there is shown, unreadable or not.
        assert len(bundle["evidence_items"]) == 13

    with_ledger(copy, work)


def test_an_artifact_file_that_was_changed_is_found(whole: tuple[Path, str], tmp_path: Path) -> None:
    folder, run_id = whole
    copy = shutil.copytree(folder, tmp_path / "copy")
    (file,) = (path for path in (copy / "ledger.db-artifacts").rglob("*") if path.is_file())
    file.write_bytes(file.read_bytes()[:-1])

    async def work(ledger: Ledger) -> None:
        item = (await _items(ledger, run_id))["replay_ready"]
        assert item["status"] == "fail"
        assert any(each.startswith(f"artifact {file.name}: ") for each in item["missing"]), item["missing"]

    with_ledger(copy, work)


def test_an_erased_run_keeps_its_proof_and_says_which_kinds_are_lost(tmp_path: Path) -> None:
    async def work(ledger: Ledger) -> None:
        scope = ledger.scope()
        teller = await every_event(scope)
        before = await _items(ledger, teller.run_id)
        await erase_run(scope, teller.run_id, "asked to", "ann")
        items = await _items(ledger, teller.run_id)
        changed = {key for key in KEYS if items[key]["status"] != before[key]["status"]}
        assert changed == {"knowledge_citation", "replay_ready"}
        ready = items["replay_ready"]
        assert f"content of {teller.writer.stream.event_id(1)}" in ready["missing"]
        assert not [each for each in ready["missing"] if each.startswith("intact chain")]
        assert [kind["number"] for kind in ready["kinds"] if kind["supported"]] == [1, 2, 5]
        bundle = await evidence(scope, teller.run_id)
        assert {event["data"].get("content") for event in bundle["events"]} <= {None, "erased"}
        assert bundle["annex"][-1]["type"] == "content.erased"

    with_ledger(tmp_path, work)


async def _parent(ledger: Ledger) -> tuple[str, str]:
    scope = ledger.scope()
    parent = await begin(scope)
    child = await begin(scope, parent_run_id=parent.run_id)
    await child.writer.barrier()
    await parent.writer.barrier()
    return parent.run_id, child.run_id


@pytest.mark.parametrize(("sql", "status"), [("SELECT 1", "pass"), ("DELETE FROM events WHERE id >> 32 = 2", "fail")])
def test_children_are_reachable_with_evidence_of_their_own(tmp_path: Path, sql: str, status: str) -> None:
    parent, child = with_ledger(tmp_path, _parent)
    connection = apsw.Connection(str(tmp_path / "ledger.db"))
    connection.execute(sql)
    connection.close()

    async def work(ledger: Ledger) -> None:
        item = (await _items(ledger, parent))["child_workflow"]
        assert (item["status"], item["references"]) == (status, [child])
        assert item["missing"] == ([child] if status == "fail" else [])

    with_ledger(tmp_path, work)
