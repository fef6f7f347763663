"""What people see of rows and events: no secrets, no exact content where there was one, and text that cannot hurt."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold.events.catalog import CATALOG
from refold.events.catalog.run import RunSucceeded
from refold.events.catalog.steps import StepCompleted
from refold.events.content import seal
from refold.events.envelope import NO_VIEW, Event, EventRow
from refold.events.identity import Stream
from refold.ledger.ledger import Ledger
from refold.replay.evidence import evidence
from refold.replay.kinds import KINDS
from refold.replay.present import DAMAGED, ERASED, cut, event_json, iso, to_json
from tests.replay.support import SECRET, begin, every_event, with_ledger

RUN = Stream.run("run_01M8KV02H539003DS37MZWWKF5")


def _event(secrets: int = 0, **stored: Any) -> Event:
    content, digest = seal(b'{"values":{"output":1}}', bytes(16))
    columns = {"content_digest": digest, "content": content, "view_digest": None, "view": None, **stored}
    facts = StepCompleted(step_id="st_1", name="n", secrets=secrets)
    row = EventRow(
        seq=1,
        format=1,
        type="step.completed",
        version=1,
        epoch=1,
        recorded_at=0,
        occurred_at=None,
        actor="",
        site="",
        cause=None,
        facts=b"{}",
        hash=bytes(32),
        **columns,
    )
    return Event(1, "step.completed", 0, None, "", "", facts, NO_VIEW, row)


def _content(event: Event) -> Any:
    return event_json(event, RUN)["data"].get("content")


def test_content_without_secrets_is_shown_as_it_is() -> None:
    assert _content(_event()) == {"output": 1}


def test_an_event_without_content_shows_none() -> None:
    assert _content(_event(content=None, content_digest=None)) is None


def test_erased_content_says_so() -> None:
    shown = event_json(_event(content=None, view_digest=bytes(32)), RUN)["data"]
    assert (shown["content"], shown["view"]) == (ERASED, ERASED)


def test_content_that_held_a_secret_is_not_shown_once_its_view_is_gone() -> None:
    assert _content(_event(secrets=1, view_digest=bytes(32))) == ERASED


@pytest.mark.parametrize("stored", [bytes(16) + b"\x07xx", bytes(16) + b"\x00{", bytes(16) + b"\x01junk", b""])
def test_content_that_cannot_be_read_says_so(stored: bytes) -> None:
    assert _content(_event(content=stored)) == DAMAGED


def test_no_secret_leaves_through_a_bundle(tmp_path: Path) -> None:
    async def work(ledger: Ledger) -> None:
        scope = ledger.scope()
        teller = await begin(scope, workflow=f"{SECRET}")
        long = f"{'x' * 300} api_key={SECRET}"
        teller.tell(
            StepCompleted(step_id="st_1", name="n"), content={"output": long}, output=long, name=SECRET, ref=SECRET
        )
        await teller.writer.barrier()
        bundle = await evidence(scope, teller.run_id)
        steps = [event for event in bundle["events"] if event["type"] == "step.completed"]
        assert SECRET not in json.dumps(steps)
        assert steps[0]["data"]["content"]["output"].startswith("xxx")
        assert steps[0]["data"]["view"]["ref"] == "[redacted:openai]"

    with_ledger(tmp_path, work)


def test_part_lists_are_shown_as_ranges(tmp_path: Path) -> None:
    async def work(ledger: Ledger) -> None:
        scope = ledger.scope()
        bundle = await evidence(scope, (await every_event(scope)).run_id)
        asked = next(event for event in bundle["events"] if event["type"] == "inference.requested")
        parts = asked["data"]["content"]["messages"]
        assert parts["parts"] == [[1, 2]]
        assert len(parts["digest"]) == 64
        assert asked["data"]["content"]["settings"] == {"t": 0.5}

    with_ledger(tmp_path, work)


def test_a_cut_summary_of_the_run_is_shown_up_to_8192_bytes(tmp_path: Path) -> None:
    async def work(ledger: Ledger) -> None:
        scope = ledger.scope()
        teller = await begin(scope)
        text = "中" * 5000
        teller.tell(RunSucceeded(), content={"output": text}, output=text)
        await teller.writer.barrier()
        shown = (await evidence(scope, teller.run_id))["run"]["output_summary"]
        assert shown == "中" * 2729 + "…"
        assert len(shown.encode()) <= 8192

    with_ledger(tmp_path, work)


def test_no_fact_is_called_like_what_stands_beside_the_facts() -> None:
    names = {name for each in CATALOG for name in each.facts.__struct_fields__}
    assert names.isdisjoint({"content", "view"})


@given(st.text(), st.integers(4, 40))
def test_a_cut_text_fits_ends_on_a_character_and_is_marked(text: str, limit: int) -> None:
    text = text.encode("utf-8", "replace").decode()
    short = cut(text, limit)
    assert len(short.encode()) <= max(limit, 0)
    assert short == text or (short.endswith("…") and text.startswith(short[:-1]))


ANY_TEXT = st.text(st.characters())  # Lone surrogates too.
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | ANY_TEXT,
    lambda inner: st.lists(inner) | st.dictionaries(ANY_TEXT, inner),
    max_leaves=20,
)


@given(JSON)
def test_json_for_people_is_utf_8_without_a_character_that_acts_on_a_terminal(value: Any) -> None:
    text = to_json(value).decode("utf-8")
    assert all(ord(c) >= 0x20 and not 0x7F <= ord(c) < 0xA0 and c not in "\u202e\u2028\u2066\ufeff" for c in text)
    assert json.loads(text) == json.loads(
        json.dumps(value).encode("utf-16", "surrogatepass").decode("utf-16"), object_pairs_hook=dict
    ) or any(0xD800 <= ord(c) < 0xE000 for c in json.dumps(value, ensure_ascii=False))


@pytest.mark.parametrize(
    ("at", "text"),
    [
        (0, "1970-01-01T00:00:00.000000Z"),
        (1_764_425_467_123_456, "2025-11-29T14:11:07.123456Z"),
        (-1, "1969-12-31T23:59:59.999999Z"),
        (2**62, "4611686018427387904us"),
        (-(2**62), "-4611686018427387904us"),
    ],
)
def test_times_are_iso_8601_with_microseconds_and_z(at: int, text: str) -> None:
    assert iso(at) == text


def test_the_table_of_nine_has_the_kinds_that_execute_nothing_cost_nothing_outside() -> None:
    assert [kind.number for kind in KINDS] == list(range(1, 10))
    assert [kind.number for kind in KINDS if kind.offline] == [1, 2, 3, 5, 6, 7, 9]
    assert [kind.number for kind in KINDS if "tools" in kind.executes] == [4]
