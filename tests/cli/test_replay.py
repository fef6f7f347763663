"""`refold replay`: projection-only compares and writes nothing; the kinds without an engine are refused by name."""

from __future__ import annotations

import sqlite3

import pytest

from tests.cli.conftest import Call, Sample

KEYS = {
    "mode",
    "run_id",
    "source_head_before",
    "source_head_after",
    "result",
    "divergences",
    "state_digest",
    "new_run_id",
    "plan",
}


def _edit(sample: Sample, sql: str) -> None:
    connection = sqlite3.connect(sample.path)
    changed = connection.execute(sql).rowcount
    connection.commit()
    connection.close()
    assert changed == 1


def test_equal_tables_say_so_and_twice_the_same(sample: Sample, call: Call) -> None:
    before = call("show", sample.run_id, "--json").out
    first = call("replay", sample.run_id, "--mode", "projection-only", "--json")
    assert first.status == 0
    assert set(first.json) >= KEYS
    assert (first.json["result"], first.json["divergences"], first.json["new_run_id"]) == ("equal", [], None)
    assert first.json["source_head_before"] == first.json["source_head_after"]
    assert first.json["plan"]["executes"] == []
    assert call("runs", "replay", sample.run_id, "--mode", "projection-only", "--json").out == first.out
    assert call("show", sample.run_id, "--json").out == before
    assert "executes nothing" in call("replay", sample.run_id, "--mode", "projection-only").out


@pytest.mark.parametrize(
    ("sql", "kind", "difference"),
    [
        ("UPDATE run_cost_entries SET amount = '0.2' WHERE amount IS NOT NULL", "run_cost_entries", "amount"),
        ("UPDATE runs SET status = 'succeeded'", "runs", "status"),
        ("DELETE FROM run_steps WHERE node = 'tidy'", "run_steps", "the row is not stored"),
        ("UPDATE tool_intents SET tool = 'rm' WHERE status = 'in_doubt'", "tool_intents", "tool"),
        (
            "INSERT INTO feedback SELECT tenant_id, workspace_id, 'fb_1', run_id, 'run', 9, 'person', '1', 'x', 1, NULL"
            " FROM runs",
            "feedback",
            "the row is stored, and no event makes it",
        ),
    ],
)
def test_an_edited_table_is_found_row_and_column(
    sample: Sample, call: Call, sql: str, kind: str, difference: str
) -> None:
    _edit(sample, sql)
    answer = call("replay", sample.run_id, "--mode", "projection-only", "--json")
    assert answer.status == 5
    assert answer.json["result"] == "diverged"
    (divergence,) = answer.json["divergences"]
    assert set(divergence) == {"seq", "step", "kind", "recorded", "attempted", "first_difference"}
    assert (divergence["kind"], divergence["first_difference"]) == (kind, difference)
    assert "Diverged" in call("replay", sample.run_id, "--mode", "projection-only").out


def test_a_dry_run_says_what_it_would_do_and_does_not(sample: Sample, call: Call) -> None:
    answer = call("replay", sample.run_id, "--mode", "projection-only", "--dry-run", "--json")
    assert answer.status == 0
    assert set(answer.json) >= KEYS
    assert (answer.json["result"], answer.json["plan"]["kind"]) == (None, "projection-only")


@pytest.mark.parametrize("mode", ["idempotent-reply", "re-execution", "full", "simulation"])
def test_a_kind_without_an_engine_is_refused(sample: Sample, call: Call, mode: str) -> None:
    answer = call("replay", sample.run_id, "--mode", mode, "--json")
    assert (answer.status, answer.out, answer.error["code"]) == (6, "", "replay_kind_unavailable")
    assert answer.error["facts"]["available"] == [
        "evidence",
        "catch-up",
        "projection-only",
        "inference-skipping",
        "partial",
    ]


@pytest.mark.parametrize(("mode", "instead"), [("evidence", "refold evidence"), ("catch-up", "refold events")])
def test_a_kind_that_is_another_command_names_it(sample: Sample, call: Call, mode: str, instead: str) -> None:
    answer = call("replay", sample.run_id, "--mode", mode, "--json")
    assert (answer.status, answer.error["code"]) == (2, "bad_usage")
    assert instead in answer.error["message"]


def test_an_unknown_mode_is_bad_usage(sample: Sample, call: Call) -> None:
    assert call("replay", sample.run_id, "--mode", "again").status == 2
    assert call("replay", sample.run_id).status == 2


def test_tables_are_not_made_anew_from_events_that_were_changed(sample: Sample, call: Call) -> None:
    _edit(
        sample,
        "UPDATE events SET facts = replace(CAST(facts AS TEXT), '\"0.1', '\"9.1') "
        "WHERE type = 'cost.recorded' AND CAST(facts AS TEXT) LIKE '%\"0.1%'",
    )
    before = call("show", sample.run_id, "--json").json["costs"]
    refused = call("rebuild", "--swap", "--json")
    assert (refused.status, refused.error["code"]) == (7, "proof_broken")
    assert call("show", sample.run_id, "--json").json["costs"] == before
