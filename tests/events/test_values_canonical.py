"""One canonical form for one value, made from stored bytes alone."""

from __future__ import annotations

import hashlib
import hmac
import json
import random
from itertools import combinations
from typing import Any

import pytest
import rfc8785
from hypothesis import given
from hypothesis import strategies as st

from refold.events.values import DIGEST_SIZE, canonical, decode, encode, keyed_digest
from tests.events.values_support import EXAMPLES, TEXT, VALUES, Point, registry, same

TYPES = registry()


def _canonical(value: Any) -> bytes:
    return canonical(encode(value, types=TYPES))


LOOKALIKES: list[Any] = [
    0,
    0.0,
    -0.0,
    False,
    None,
    {},
    [],
    "",
    1,
    1.0,
    True,
    "0",
    "null",
    (),
    set(),
    frozenset(),
    b"",
    [None],
    [[]],
    ["", ""],
    {"": None},
    {1: "a"},
    {1.0: "a"},
    {True: "a"},
    {"1": "a"},
    {1},
    {1.0},
    {True},
    {"1"},
    (1,),
    [1],
    [1.0],
    {(1,)},
    2**53,
    float(2**53),
    str(2**53),
    float("nan"),
    float("inf"),
    float("-inf"),
    "nan",
    {"$": 1},
    {"$": ["int", "1"]},
    [2**53],
    {"$": ["int", str(2**53)]},
    {"a": 1},
    {"a": 1.0},
    ["a", 1],
    Point(0, 1),
    Point(0.0, 1),
    {"x": 0, "y": 1},
    5e-324,
    1e-323,
]


def test_values_that_look_alike_have_different_forms() -> None:
    for a, b in combinations(LOOKALIKES, 2):
        assert _canonical(a) != _canonical(b), (a, b)


@given(VALUES, VALUES)
def test_forms_are_equal_exactly_when_values_are(a: Any, b: Any) -> None:
    assert (_canonical(a) == _canonical(b)) == same(_sorted(a), _sorted(b))


@given(
    st.lists(st.sampled_from(LOOKALIKES[:17]), max_size=3),
    st.lists(st.sampled_from(LOOKALIKES[:17]), max_size=3),
)
def test_short_lists_are_equal_exactly_when_their_items_are(a: list[Any], b: list[Any]) -> None:
    assert (_canonical(a) == _canonical(b)) == same(a, b)


def _sorted(value: Any) -> Any:
    """The value with plain dicts in one order, because their order is no part of the canonical form."""
    if type(value) is dict:
        return {key: _sorted(value[key]) for key in sorted(value, key=repr)}
    if type(value) in (list, tuple):
        return type(value)(_sorted(item) for item in value)
    return value


@given(VALUES)
def test_the_canonical_form_reads_as_the_same_value_and_is_its_own_form(value: Any) -> None:
    form = _canonical(value)
    assert canonical(form) == form
    assert _canonical(decode(form, types=TYPES)) == form


@given(VALUES)
def test_rfc_8785_of_the_form_is_the_form(value: Any) -> None:
    form = _canonical(value)
    assert rfc8785.dumps(json.loads(form)) == form


JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-(2**53) + 1, 2**53 - 1), st.text()),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=5),
)


@given(JSON)
def test_json_without_floats_has_the_form_of_rfc_8785(value: Any) -> None:
    if '{"$": [' not in json.dumps(value) and not _has_reserved(value):
        assert _canonical(value) == rfc8785.dumps(value)


def _has_reserved(value: Any) -> bool:
    if isinstance(value, dict):
        return list(value) == ["$"] or any(map(_has_reserved, value.values()))
    return isinstance(value, list) and any(map(_has_reserved, value))


def test_keys_sort_by_utf_16_code_units() -> None:
    keys = ["\U0001f600", "\uffee", "\ue000", "a", "\U00010000", "é", "z", ""]
    value = {key: dict.fromkeys(keys, 1) for key in keys}
    assert _canonical(value) == rfc8785.dumps(value)


@given(st.dictionaries(TEXT, VALUES, min_size=2, max_size=6), st.randoms(use_true_random=False))
def test_the_order_of_dicts_changes_the_stored_bytes_and_not_the_form(
    value: dict[str, Any], rng: random.Random
) -> None:
    keys = list(value)
    rng.shuffle(keys)
    shuffled = {key: value[key] for key in keys}
    assert (encode(shuffled, types=TYPES) == encode(value, types=TYPES)) == (keys == list(value))
    assert _canonical(shuffled) == _canonical(value)


@given(st.lists(st.integers() | TEXT | st.floats(allow_nan=False), unique=True, max_size=8))
def test_the_order_of_sets_and_maps_does_not_change_the_form(members: list[Any]) -> None:
    members = list(set(members))
    assert _canonical({*members}) == _canonical({*reversed(members)})
    as_keys = {(key,): key for key in members}
    assert _canonical(as_keys) == _canonical(dict(reversed(as_keys.items())))


@pytest.mark.parametrize(
    ("value", "form"),
    [
        (0.5, b'{"$":["float","3fe0000000000000"]}'),
        (-0.0, b'{"$":["float","8000000000000000"]}'),
        (2**53, b'{"$":["int","9007199254740992"]}'),
        ({"b": {2, 10, "a"}, "a": 1}, b'{"a":1,"b":{"$":["set","a",10,2]}}'),
        ({2: 0.5, 1: 0}, b'{"$":["map",[1,0],[2,{"$":["float","3fe0000000000000"]}]]}'),
        (Point(y=1.0, x=2), b'{"$":["object","point",{"x":2,"y":{"$":["float","3ff0000000000000"]}}]}'),
    ],
)
def test_the_published_form_never_changes(value: Any, form: bytes) -> None:
    assert _canonical(value) == form


def test_the_keyed_digest_is_hmac_sha_256_of_the_form_cut_to_16_bytes() -> None:
    data = encode({"b": 1, "a": 0.5})
    whole = hmac.new(b"secret", canonical(data), hashlib.sha256).digest()
    assert keyed_digest(b"secret", data) == whole[:DIGEST_SIZE]
    assert keyed_digest(b"secret", encode({"a": 0.5, "b": 1})) == whole[:16]
    assert keyed_digest(b"other", data) != whole[:16]


@pytest.mark.parametrize("value", EXAMPLES.values(), ids=EXAMPLES.keys())
def test_every_kind_of_value_has_a_form_that_reads_back(value: Any) -> None:
    assert _canonical(decode(_canonical(value), types=TYPES)) == _canonical(value)
