"""The JSON that programs rely on, and the exit statuses, as one table."""

from __future__ import annotations

import json
import os
import sqlite3
from pathlib import Path

import pytest

from refold.ledger.ledger import Ledger
from refold.projections.rows import AuditRow
from tests.cli.conftest import Call, Sample
from tests.cli.support import HOSTILE, on_ledger, record_run

RUN = "RUN"  # Replaced by the sample's run.
RUN_KEYS = "run_id workflow status reason started_at head_seq source_run_id attempt_no charges"
EVENT_KEYS = {"seq", "type", "version", "recorded_at", "step_id", "data", "hash"}
CALL_KEYS = {"id", "run_id", "tool", "status", "attempts", "idempotency_key", "dispatched_at"}

READING = {
    "runs": (("runs",), "runs next"),
    "runs in doubt": (("runs", "--in-doubt"), "runs next"),
    "show": (("show", RUN), "run steps tool_calls artifacts costs approvals head_seq head_hash"),
    "show at a seq": (("show", RUN, "--at", "4"), "run steps tool_calls artifacts costs approvals head_seq head_hash"),
    "evidence": (
        ("evidence", RUN),
        "run steps artifacts costs approvals feedback trace_spec tool_calls events evidence_items head_seq head_hash",
    ),
    "tool-calls": (("tool-calls",), "tool_calls next"),
    "verify a run": (("verify", RUN), "ok streams events redacted first_bad"),
    "verify on two processes": (("verify", "--workers", "2"), "ok streams events redacted first_bad"),
    "verify": (("verify", "--all"), "ok streams events redacted first_bad"),
}


@pytest.mark.parametrize("where", ["before", "after"])
@pytest.mark.parametrize("name", list(READING))
def test_a_reading_command_answers_with_its_keys(sample: Sample, call: Call, name: str, where: str) -> None:
    args, keys = READING[name]
    args = tuple(sample.run_id if each == RUN else each for each in args)
    answer = call("--json", *args) if where == "before" else call(*args, "--json")
    assert (answer.status, answer.err) == (0, "")
    assert set(keys.split()) <= set(answer.json)


@pytest.mark.parametrize("name", list(READING))
def test_the_same_command_prints_lines_for_people(sample: Sample, call: Call, name: str) -> None:
    args = tuple(sample.run_id if each == RUN else each for each in READING[name][0])
    answer = call(*args)
    assert (answer.status, answer.err) == (0, "")
    assert answer.out


def test_runs_tell_status_charges_and_what_has_no_price(sample: Sample, call: Call) -> None:
    (run,) = call("runs", "--json").json["runs"]
    assert set(RUN_KEYS.split()) <= set(run)
    assert (run["run_id"], run["workflow"], run["status"], run["reason"]) == (
        sample.run_id,
        "support",
        "paused",
        "imported",
    )
    assert run["charges"] == {"USD": "0.100000000000000000055"}
    assert run["unpriced"] == 1
    assert run["head_seq"] == call("show", sample.run_id, "--json").json["head_seq"]
    assert "1 unpriced" in call("runs").out


def test_events_are_one_object_a_line_after_the_given_seq(sample: Sample, call: Call) -> None:
    everything = call("events", sample.run_id, "--json").lines
    assert [event["seq"] for event in everything] == list(range(1, len(everything) + 1))
    assert all(set(event) >= EVENT_KEYS for event in everything)
    assert call("events", sample.run_id, "--json", "--after", "4").lines == everything[4:]
    head = everything[-1]["seq"]
    assert call("events", sample.run_id, "--json", "--after", str(head)).out == ""


def test_the_state_at_a_seq_is_what_stood_there(sample: Sample, call: Call) -> None:
    then = call("show", sample.run_id, "--at", "4", "--json").json
    event = call("events", sample.run_id, "--json").lines[3]
    assert (then["head_seq"], then["head_hash"]) == (4, event["hash"])
    assert (then["run"]["status"], len(then["steps"]), then["tool_calls"]) == ("running", 1, [])
    assert "as it stood at seq 4" in call("show", sample.run_id, "--at", "4").out
    head = call("show", sample.run_id, "--json").json
    assert call("show", sample.run_id, "--at", str(head["head_seq"]), "--json").json == head
    beyond = call("show", sample.run_id, "--at", "1000", "--json")
    assert (beyond.status, beyond.error["code"]) == (2, "beyond_head")


def test_the_bundle_goes_into_a_file_and_is_the_same_twice(sample: Sample, call: Call) -> None:
    assert call("evidence", sample.run_id, "--out", "bundle.json").status == 0
    bundle = Path("bundle.json").read_text()
    assert call("evidence", sample.run_id, "--json").out == bundle
    items = json.loads(bundle)["evidence_items"]
    assert len(items) == 13
    assert all(item["key"] in call("evidence", sample.run_id).out for item in items[:2])


def test_a_doubt_is_listed_and_said_in_words(sample: Sample, call: Call) -> None:
    (doubt,) = call("tool-calls", "--status", "in_doubt", "--json").json["tool_calls"]
    assert set(doubt) >= CALL_KEYS
    assert doubt["run_id"] == sample.run_id
    for args in (("tool-calls",), ("show", sample.run_id)):
        assert "we do not know whether it happened" in call(*args).out
    assert call("tool-calls", "--status", "failed", "--json").json["tool_calls"] == []


def test_an_export_wraps_every_event_of_run_and_annex(sample: Sample, call: Call) -> None:
    lines = call("export", sample.run_id).lines
    events = call("events", sample.run_id, "--json").lines
    assert {(line["schema_version"], line["record_type"]) for line in lines} == {(1, "event")}
    assert [line["record"]["hash"] for line in lines] == [event["hash"] for event in events]
    assert call("export", "--all").lines == lines
    assert call("export").status == 2


def test_an_export_is_on_record_before_it_leaves(sample: Sample, call: Call) -> None:
    async def audited(ledger: Ledger) -> list[AuditRow]:
        async with ledger.scope().reader() as reader:
            return await reader.rows(AuditRow, {"event": "access.exported"})

    assert on_ledger(sample.path, audited) == []
    call("export", sample.run_id)
    call("export", "--all", "--scope", "other/default")
    (row,) = on_ledger(sample.path, audited)
    assert (row.stream, row.run_id or row.subject, row.outcome, row.actor) == ("scope", sample.run_id, "events", "cli")
    assert call("verify").status == 0


def test_an_artifact_comes_back_byte_for_byte(sample: Sample, call: Call) -> None:
    (artifact,) = call("show", sample.run_id, "--json").json["artifacts"]
    answer = call("artifact", sample.run_id, artifact["artifact_id"])
    assert answer.status == 0
    assert answer.out.encode("utf-8").replace(b"\r", b"") == (HOSTILE * 10).encode().replace(b"\r", b"")
    assert call("artifact", sample.run_id, "art_nothing").status == 2


def test_cancel_closes_an_imported_run_once(sample: Sample, call: Call) -> None:
    answer = call("cancel", sample.run_id, "--basis", "test over", "--json")
    assert (answer.status, answer.json["status"]) == (0, "canceled")
    assert call("runs", "--json").json["runs"][0]["status"] == "canceled"
    again = call("cancel", sample.run_id, "--basis", "test over", "--json")
    assert (again.status, again.error["code"]) == (6, "stream_closed")
    assert call("cancel", sample.run_id).status == 2
    assert call("verify").status == 0


def test_erase_takes_a_closed_runs_words_and_leaves_the_proof(sample: Sample, call: Call) -> None:
    early = call("erase", sample.run_id, "--basis", "GDPR request 7", "--json")
    assert (early.status, early.error["code"]) == (6, "not_closed")
    call("cancel", sample.run_id, "--basis", "over")
    erased = call("erase", sample.run_id, "--basis", "GDPR request 7", "--json")
    assert erased.status == 0
    assert set(erased.json) == {"run_id", "events", "blobs", "files", "already", "pending"}
    assert (erased.json["already"], erased.json["pending"]) == (False, None)
    proof = call("verify", "--json")
    assert (proof.status, proof.json["redacted"] > 0) == (0, True)
    assert "(erased)" in call("events", sample.run_id).out
    assert "erased on request" in call("show", sample.run_id).out
    assert "GDPR request 7" in call("events", sample.run_id, "--annex").out
    assert "had been erased before" in call("erase", sample.run_id, "--basis", "again").out
    for args in (("show", sample.run_id), ("evidence", sample.run_id), ("tool-calls",), ("runs",)):
        assert call(*args).status == 0


def test_a_backup_restores_to_a_ledger_that_verifies(sample: Sample, call: Call) -> None:
    made = call("backup", "copies/today", "--json")
    assert (made.status, made.json["streams"], made.json["unsound"]) == (0, 1, [])
    assert call("backup", "copies/today", "--json").error["code"] == "target_exists"
    restored = call("restore", "copies/today", "--ledger", "new.db", "--json")
    assert (restored.status, restored.json["streams"]) == (0, 1)
    assert restored.json["ledger_id"] != made.json["ledger_id"] == restored.json["original_id"]
    assert call("verify", "--ledger", "new.db").status == 0
    assert call("events", sample.run_id, "--ledger", "new.db").out == call("events", sample.run_id).out
    taken = call("restore", "copies/today", "--json")
    assert taken.error["code"] == "target_exists"
    assert call("restore", "copies", "--ledger", "x.db", "--json").error["code"] == "not_a_backup"
    for args in (("backup", "copies/again"), ("restore", "copies/again", "--ledger", "third.db")):
        assert "1 stream" in call(*args).out


def test_the_doctor_names_settings_and_findings_with_a_remedy(sample: Sample, call: Call) -> None:
    healthy = call("doctor", "--json")
    assert (healthy.status, healthy.json["ok"]) == (0, True)
    assert all(set(check) == {"name", "ok", "facts", "remedy"} for check in healthy.json["checks"])
    settings = healthy.json["checks"][0]["facts"]
    assert settings["ledger"] == {"value": str(sample.path), "source": "environment REFOLD_LEDGER"}
    assert settings["scope"]["source"] == "default"
    orphan = sample.path.with_name("l.db-artifacts") / "default" / "default" / sample.run_id / "art_lost"
    orphan.parent.mkdir(parents=True)
    orphan.write_bytes(b"x")
    os.utime(orphan, (0, 0))
    found = call("doctor", "--json")
    assert (found.status, found.json["ok"]) == (1, False)
    (finding,) = [check for check in found.json["checks"] if not check["ok"]]
    assert (finding["name"], finding["facts"]["orphans"]) == ("artifacts", 1)
    assert finding["remedy"] in call("doctor").out
    collected = call("doctor", "--collect-orphans", "--json")
    assert (collected.status, len(collected.json["removed"]), orphan.exists()) == (0, 1, False)
    missing = call("doctor", "--ledger", "nothing.db", "--json")
    assert (missing.status, missing.json["ok"]) == (1, False)


def test_a_ledger_folded_by_other_code_is_read_and_migrated_before_it_is_written(sample: Sample, call: Call) -> None:
    assert call("migrate", "--json").json["refolded"] == 0
    assert "Nothing to do" in call("migrate").out
    shown = call("show", sample.run_id, "--json").out
    connection = sqlite3.connect(sample.path)
    connection.execute("UPDATE ledger SET projections = 'other'")
    connection.commit()
    connection.close()
    assert call("show", sample.run_id, "--json").out == shown
    refused = call("cancel", sample.run_id, "--basis", "over", "--json")
    assert (refused.status, refused.error["code"]) == (6, "schema_outdated")
    events = len(call("events", sample.run_id).out.splitlines())
    migrated = call("migrate", "--json")
    assert (migrated.status, migrated.json["applied"], migrated.json["refolded"]) == (0, [], events)
    assert call("show", sample.run_id, "--json").out == shown
    assert call("runs", "--in-doubt", "--json").json["runs"]
    assert call("cancel", sample.run_id, "--basis", "over").status == 0
    assert call("migrate", "--ledger", "nothing.db", "--json").error["code"] == "ledger_missing"


def test_verify_ends_with_7_and_the_first_bad_place(sample: Sample, call: Call) -> None:
    data = bytearray(sample.path.read_bytes())
    place = data.index(b'"tidy"')
    data[place + 1] ^= 1
    sample.path.write_bytes(data)
    answer = call("verify", "--json")
    assert answer.status == 7
    assert answer.json["ok"] is False
    assert set(answer.json["first_bad"]) == {"stream", "seq", "what"}
    assert answer.json["first_bad"]["stream"] == sample.run_id
    assert call("verify", sample.run_id).out.startswith("Broken at seq")


def test_pages_show_every_run_once_newest_first(sample: Sample, call: Call) -> None:
    async def fill(ledger: object) -> list[str]:
        return [await record_run(ledger, key=f"more {n}") for n in range(6)]  # type: ignore[arg-type]

    made = [sample.run_id, *on_ledger(sample.path, fill)]
    seen, token = [], None
    while True:
        page = call("runs", "--json", "--limit", "3", *(("--next", token) if token else ())).json
        seen += [run["run_id"] for run in page["runs"]]
        token = page["next"]
        if token is None:
            break
    assert seen == sorted(made, reverse=True)
    calls: list[str] = []
    while True:
        page = call("tool-calls", "--json", "--limit", "4", *(("--next", token) if token else ())).json
        calls += [each["id"] for each in page["tool_calls"]]
        token = page["next"]
        if token is None:
            break
    assert calls == sorted(set(calls))
    assert len(calls) == 2 * len(made)
    wrong = call("runs", "--next", "MTIz", "--json")
    assert (wrong.status, wrong.error["code"]) == (2, "bad_token")


def test_filters_narrow_the_list(sample: Sample, call: Call) -> None:
    def found(*filters: str) -> int:
        return len(call("runs", "--json", *filters).json["runs"])

    assert (found("--status", "paused"), found("--status", "failed")) == (1, 0)
    assert (found("--workflow", "support"), found("--workflow", "other")) == (1, 0)
    assert found("--in-doubt") == 1


def test_json_never_carries_a_control_character(sample: Sample, call: Call) -> None:
    for args in (("runs",), ("show", sample.run_id), ("events", sample.run_id), ("tool-calls",)):
        for line in call(*args, "--json").out.splitlines():
            json.loads(line)
            assert line.isprintable()
