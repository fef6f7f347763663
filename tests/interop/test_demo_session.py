"""The session that the project wrote itself has in it what the walk through refold shows."""

from __future__ import annotations

from pathlib import Path

from tools.write_demo_session import FAKE_KEY, story

import refold.interop
from refold.projections.rows import ArtifactRow, StepRow, ToolCallRow
from tests.interop.support import imported, told_of
from tests.interop.test_pi_mapping import rows
from tests.invariants.checks import check_all

SAMPLE = Path(refold.interop.__file__).parent / "samples" / "demo-session.jsonl"


def test_the_demo_session_is_what_its_generator_writes() -> None:
    assert SAMPLE.read_text(encoding="utf-8") == "\n".join(story()) + "\n"


def test_the_demo_session_has_a_doubt_an_error_an_abort_a_large_log_and_a_key_that_no_view_shows(
    tmp_path: Path,
) -> None:
    (run,) = imported(tmp_path, SAMPLE).runs
    assert (run.errors, run.inferences, run.tool_calls, run.unanswered) == ([], 7, 6, 1)
    assert run.charges == {"USD": "0.04346227000000000103090"}
    calls = {call.tool: call.status for call in rows(tmp_path, ToolCallRow)}
    assert (calls["refund"], calls["read_policy"], calls["find_order"]) == ("in_doubt", "failed", "succeeded")
    assert [step.error_code for step in rows(tmp_path, StepRow) if step.type == "llm" and step.error_code] == [
        "aborted"
    ]
    assert [artifact.size_bytes > 8192 for artifact in rows(tmp_path, ArtifactRow)] == [True]
    told = told_of(tmp_path, run.run_id)
    assert FAKE_KEY not in str([event[6] for event in told])
    assert FAKE_KEY in str([event[5] for event in told])
    assert "redacted" in str([event[6] for event in told])
    check_all(tmp_path / "ledger.db")
