"""Summaries that are cut from JSON which is at hand say what those say that are put together."""

from __future__ import annotations

import json
from datetime import date
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from refold.events.catalog.steps import StepCompleted
from refold.events.content import Encoded
from refold.events.redaction import Redactor, summary, summary_of_json
from refold.events.values import encode
from refold.events.values.tags import dump_json
from refold.ledger.drafts import SUMMARY_BYTES, Draft, seal_draft
from refold.testing.simulated import SimulatedClock, SimulatedIds

_NUMBERS = st.integers(-(2**53) + 1, 2**53 - 1) | st.floats(allow_nan=False, allow_infinity=False)
_FAR_NUMBERS = st.floats(1e-9, 1e-3) | st.floats(1e14, 1e30)
_TEXTS = st.text(st.characters(exclude_categories=["Cs"])) | st.sampled_from(["\x1b[0m", "\u202e", "a3e5", ":-1e5"])
_JSON = st.recursive(
    st.none() | st.booleans() | _NUMBERS | _FAR_NUMBERS | _TEXTS,
    lambda inner: st.lists(inner, max_size=6) | st.dictionaries(_TEXTS, inner, max_size=6),
    max_leaves=20,
)


@settings(max_examples=400, deadline=None, derandomize=True)
@given(st.lists(_JSON) | st.dictionaries(_TEXTS, _JSON), st.sampled_from([0, 3, 4, 20, 160, 4096]))
def test_a_summary_cut_from_json_is_the_one_put_together(value: Any, limit: int) -> None:
    assert summary_of_json(dump_json(value), limit) in (None, summary(value, limit))


@pytest.mark.parametrize(
    "value",
    [
        {"price": Decimal("1.50"), "on": date(2025, 3, 30)},
        (1, 2),
        [{1, 2}],
        {"$": 1},
        {1: "a", None: "b"},
        [2**70, float("nan")],
        {"text": "\ud800"},
        {"long": ["x" * 10] * 5000},
        {"small": 1e-05, "large": 1e22},
    ],
    ids=repr,
)
def test_whatever_is_recorded_the_view_shows_its_summary(value: Any) -> None:
    draft = Draft(StepCompleted("st_1", "score"), content={"output": value}, output=value)
    sealed = seal_draft(draft, Redactor(), SimulatedIds(SimulatedClock(), 1))
    assert sealed.view.output == summary(value, SUMMARY_BYTES)


@pytest.mark.parametrize(
    "value", [{"n": 1}, [1, {"a": "b" * 300}], "text", 1.5, None, [1e-05, 1e22], Decimal("1.50")], ids=repr
)
def test_a_value_that_was_encoded_before_shows_the_same_summary(value: Any) -> None:
    encoded = Encoded(encode(value))
    draft = Draft(StepCompleted("st_1", "score"), content={"output": encoded}, output=encoded)
    sealed = seal_draft(draft, Redactor(), SimulatedIds(SimulatedClock(), 1))
    assert sealed.view.output == summary(json.loads(encoded.data), SUMMARY_BYTES)
