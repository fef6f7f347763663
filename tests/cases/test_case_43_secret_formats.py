"""Case 43: "task-", "risk-" and "desk-" were flagged as secrets, and real formats were missed. Here the known formats
are measured both ways, and what a scan finds at the write is in no view, on no screen and in no export.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from refold.events.redaction import Redactor
from refold.ledger.ledger import Ledger
from refold.replay.evidence import evidence
from tests.cases.support import add_step, begin, in_ledger, look
from tests.events.secret_corpus import NEGATIVES, POSITIVES

REDACTOR = Redactor()
FORMATS = [(label, value, secret) for label, value, secret in POSITIVES if label.endswith("(0)")]
FREE = (
    "task-01HZX3K7Q2M4N8P6R5T9V0WXYZ",
    "task-550e8400-e29b-41d4-a716-446655440000",
    "task-3f786850e387550fdab836ed7e6dc881de23001b",
    "risk-assessment-2024-q3-final-report-long",
    "risk-proj-0123456789abcdefghijklmnopqrstuv",
    "desk-booking-system-v2-production-eu-west-1",
    "desk-ant-api03-abcdefghijklmnopqrstuvwxyz",
    "flask-0123456789abcdefghijklmnopqrstuvwxyzABCD",
    "disk-0123456789abcdef0123456789abcdef",
)


def test_case_43_known_formats_are_found_and_nothing_else_is_measured_both_ways() -> None:
    missed = [label for label, value, secret in POSITIVES if secret in json.dumps(REDACTOR.redact(value)[0])]
    wrong = [value for value in (*NEGATIVES, *FREE) if REDACTOR.redact(value) != (value, 0)]
    caught = len(POSITIVES) - len(missed)
    recall, precision = caught / len(POSITIVES), caught / (caught + len(wrong))
    print(f"recall {recall:.3f} of {len(POSITIVES)}, precision {precision:.3f} with {len(NEGATIVES) + len(FREE)} free")
    assert (missed, wrong) == ([], [])
    assert len({label for label, _, _ in FORMATS}) >= 40


@pytest.mark.parametrize("word", FREE)
@pytest.mark.parametrize("around", ["{}", "see {} for more", 'id="{}"', "/runs/{}/steps", "the {}."])
def test_case_43_words_that_end_in_sk_are_free_wherever_they_stand(word: str, around: str) -> None:
    text = around.format(word)
    assert REDACTOR.redact({"note": text}) == ({"note": text}, 0)


@pytest.mark.parametrize("prefix", ["task", "risk", "desk"])
def test_case_43_a_real_key_after_such_a_word_is_still_found(prefix: str) -> None:
    key = next(secret for label, _, secret in FORMATS if label.startswith("anthropic (0)"))
    shown, count = REDACTOR.redact(f"{prefix}-01HZX3K7Q2M4N8P6R5T9V0WXYZ used {key}")
    assert count == 1
    assert key not in shown
    assert shown.startswith(f"{prefix}-01HZX3K7Q2M4N8P6R5T9V0WXYZ used ")


def test_case_43_what_is_found_at_the_write_is_in_no_view_and_is_counted(tmp_path: Path) -> None:
    async def work(ledger: Ledger) -> None:
        scope = ledger.scope()
        writer = await begin(scope, {"input": list(FREE)})
        for number, (_, value, _) in enumerate(FORMATS, 3):
            assert add_step(writer, number, value).facts.secrets >= 1, value
        assert add_step(writer, 999, list(FREE)).facts.secrets == 0
        await writer.close()
        bundle = await evidence(scope, writer.stream.run_id)
        shown = json.dumps(bundle, ensure_ascii=False)
        assert [secret for _, _, secret in FORMATS if secret in shown] == []
        # What is free is shown as it is: the summaries are cut, the content is not.
        assert bundle["events"][-1]["data"]["content"]["output"] == list(FREE)
        (item,) = [each for each in bundle["evidence_items"] if each["key"] == "secret_boundary"]
        assert item["status"] == "warning"
        assert len(item["references"]) == len(FORMATS)

    in_ledger(tmp_path, work)
    for table, columns in (("run_steps", "output_summary"), ("runs", "input_summary")):
        text = repr(look(tmp_path, f"SELECT {columns} FROM {table}"))
        assert [secret for _, _, secret in FORMATS if secret in text] == []
