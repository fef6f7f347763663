"""Reading what does not fit: a typed error, never a substitute, whatever the bytes."""

from __future__ import annotations

import dataclasses
import enum
import sys
from typing import Any, NamedTuple

import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold.errors import RefoldError
from refold.events.values import (
    Registry,
    ShapeChanged,
    UnknownType,
    ValueDamaged,
    canonical,
    decode,
    encode,
    scalars,
)
from refold.events.values.scalars import READERS
from tests.events.values_support import EXAMPLES, VALUES, registry

TYPES = registry()


def _dataclass(name: str, **fields: Any) -> type:
    return dataclasses.make_dataclass(name, list(fields.items()))


def _make(kind: str, *names: str) -> type:
    if kind == "dataclass":
        return dataclasses.make_dataclass("T", names)
    if kind == "namedtuple":
        return NamedTuple("T", [(name, int) for name in names])  # type: ignore[misc,return-value]
    if kind == "struct":
        return msgspec.defstruct("T", [(name, int, 0) for name in names])
    return pydantic.create_model("T", **dict.fromkeys(names, (int, 0)))  # type: ignore[call-overload,no-any-return]


@pytest.mark.parametrize("kind", ["dataclass", "namedtuple", "struct", "model"])
@pytest.mark.parametrize("today", [("a",), ("a", "b", "c"), ("a", "x"), ()], ids=str)
def test_a_class_with_other_fields_is_an_error_even_where_defaults_would_fill_in(
    kind: str, today: tuple[str, ...]
) -> None:
    then = Registry({"T": _make(kind, "a", "b")})
    cls: Any = then.class_of("T")
    data = encode([cls(a=1, b=2)], types=then)
    with pytest.raises(ShapeChanged) as caught:
        decode(data, types=Registry({"T": _make(kind, *today)}))
    assert caught.value.facts["type"] == "T"


def test_a_struct_that_no_longer_accepts_what_was_recorded_is_an_error() -> None:
    def refuse(self: Any) -> None:
        raise RuntimeError("not today")

    then = msgspec.defstruct("T", ["a"])
    today = msgspec.defstruct("T", ["a"], namespace={"__post_init__": refuse})
    with pytest.raises(ShapeChanged, match="RuntimeError"):
        decode(encode(then(1), hint=then), today)


def test_a_class_that_is_gone_is_an_error_and_is_not_imported() -> None:
    data = b'{"$":["object","antigravity",{}]}'
    for hint in (Any, dict, dict[str, Any], object, None):
        with pytest.raises(UnknownType, match="neither registered nor in the annotation"):
            decode(data, hint)
    assert "antigravity" not in sys.modules


def test_an_ambiguous_name_is_an_error() -> None:
    one, two = _make("dataclass", "a"), _make("dataclass", "a")
    data = encode(one(a=1), hint=one)  # type: ignore[call-arg]
    with pytest.raises(UnknownType, match="more than one class"):
        decode(data, one | two)
    with pytest.raises(UnknownType, match="more than one class"):
        decode(data, one, types=Registry({"T": two}))


def test_an_enum_member_that_is_gone_or_means_something_else_is_an_error() -> None:
    then = enum.Enum("E", {"A": 1, "B": [1, 2]})  # type: ignore[misc]
    data = {member.name: encode(member, hint=then) for member in then}
    for today, name in (
        ({"B": 1}, "A"),
        ({"A": 2}, "A"),
        ({"A": True}, "A"),
        ({"B": (1, 2)}, "B"),
        ({"B": len}, "B"),
    ):
        with pytest.raises(ShapeChanged):
            decode(data[name], enum.Enum("E", today))  # type: ignore[misc]
    assert decode(data["B"], enum.Enum("E", {"B": [1, 2]})).name == "B"  # type: ignore[misc]


def test_flags_that_are_gone_are_an_error() -> None:
    then = enum.Flag("F", {"A": 1, "B": 2})  # type: ignore[misc]
    data = encode(then(3), hint=then)
    for boundary in (enum.STRICT, enum.CONFORM, enum.EJECT):
        with pytest.raises(ShapeChanged):
            decode(data, enum.Flag("F", {"A": 1}, boundary=boundary))  # type: ignore[misc]
    with pytest.raises(ShapeChanged):
        decode(data, enum.Enum("F", {"A": 1}))  # type: ignore[misc]


@pytest.mark.parametrize("cls", [_make("dataclass", "a"), enum.Enum("T", {"a": 1})], ids=["fields", "enum"])
def test_a_name_that_became_another_kind_of_class_is_an_error(cls: Any) -> None:
    data = b'{"$":["object","T",{"a":1}]}' if issubclass(cls, enum.Enum) else b'{"$":["enum","T","a",1]}'
    with pytest.raises(ShapeChanged):
        decode(data, cls)


DAMAGED = [
    "",
    "x",
    "[1",
    '"\\ud800"',
    "NaN",
    "1e400",
    "[]]",
    '{"$":1}',
    '{"$":[]}',
    '{"$":[1]}',
    '{"$":{"a":1}}',
    '{ "$" : null }',
    '{"\\u0024":null}',
    '{"$":["int","5"]}',
    '{"$":["int","09007199254740993"]}',
    '{"$":["int"," 9007199254740993"]}',
    '{"$":["int","0x20000000000001"]}',
    '{"$":["int",9007199254740993]}',
    '{"$":["int","' + "9" * 9999 + '"]}',
    '{"$":["float","NaN"]}',
    '{"$":["float","7ff0000000000000"]}',
    '{"$":["float","3FE0000000000000"]}',
    '{"$":["float",1.5]}',
    '{"$":["str","ab"]}',
    '{"$":["str",55296,""]}',
    '{"$":["str",65]}',
    '{"$":["str",1e99]}',
    '{"$":["bytes","AAE"]}',
    '{"$":["bytes","AA F="]}',
    '{"$":["bytes","AB=="]}',
    '{"$":["bytes","é==="]}',
    '{"$":["decimal","1_0"]}',
    '{"$":["decimal"," 1"]}',
    '{"$":["decimal","one"]}',
    '{"$":["decimal",1]}',
    '{"$":["uuid","{6BA7B810-9DAD-11D1-80B4-00C04FD430C8}"]}',
    '{"$":["uuid","x"]}',
    '{"$":["date","20250101"]}',
    '{"$":["date","2025-13-01"]}',
    '{"$":["time","25:00"]}',
    '{"$":["time","01:00"]}',
    '{"$":["datetime","2025-01-01"]}',
    '{"$":["datetime","2025-01-01T00:00:00Z"]}',
    '{"$":["datetime","2025-01-01T00:00:00",{}]}',
    '{"$":["datetime","2025-01-01T00:00:00",{"fold":2}]}',
    '{"$":["datetime","2025-01-01T00:00:00",{"fold":true}]}',
    '{"$":["datetime","2025-01-01T00:00:00",{"x":1}]}',
    '{"$":["datetime","2025-01-01T00:00:00",{"name":"x"}]}',
    '{"$":["datetime","2025-01-01T00:00:00",[1]]}',
    '{"$":["datetime","2025-01-01T00:00:00",{"zone":"../../etc/passwd"}]}',
    '{"$":["datetime","2025-01-01T00:00:00",{"zone":"Europe"}]}',
    '{"$":["datetime","2025-01-01T00:00:00",{"zone":"os.path"}]}',
    '{"$":["datetime","2025-01-01T00:00:00",{"zone":"' + "a" * 9999 + '"}]}',
    '{"$":["datetime","2025-01-01T00:00:00",{"zone":"Nowhere/Land"}]}',
    '{"$":["datetime","2025-01-01T00:00:00",{"zone":5}]}',
    '{"$":["timedelta",1.0,0,0]}',
    '{"$":["timedelta",0,86400,0]}',
    '{"$":["timedelta",1]}',
    '{"$":["timedelta",99999999999,0,0]}',
    '{"$":["unset",1]}',
    '{"$":["set",[1]]}',
    '{"$":["set",1,1]}',
    '{"$":["set",1,true]}',
    '{"$":["set",1,1.0]}',
    '{"$":["map",1]}',
    '{"$":["map",[1]]}',
    '{"$":["map",[[],1]]}',
    '{"$":["map",[1,1],[1,2]]}',
    '{"$":["enum","color"]}',
    '{"$":["enum",1,"RED"]}',
    '{"$":["enum","color",1]}',
    '{"$":["enum","access",null]}',
    '{"$":["enum","access",null,true]}',
    '{"$":["enum","access",null,[]]}',
    '{"$":["object"]}',
    '{"$":["object","point"]}',
    '{"$":["object","point",[]]}',
    '{"$":["object",{},{}]}',
    '{"$":["object","point",{"x":1,"y":2},{"set":[]}]}',
    '{"$":["object","person",{"name":1,"homes":1,"joined":1},{"z":1}]}',
    '{"$":["object","person",{"name":1,"homes":1,"joined":1},{"set":[[]]}]}',
]


@pytest.mark.parametrize("data", DAMAGED, ids=lambda data: ascii(data)[:60])
def test_what_the_codec_did_not_write_is_damaged(data: str) -> None:
    with pytest.raises(ValueDamaged):
        decode(data.encode(), types=TYPES)


@pytest.mark.parametrize("key", ["../../etc/passwd", "/etc/passwd", "os.path/join", "Europe//Berlin", "a\0b", ""])
def test_what_is_no_key_of_a_time_zone_is_not_looked_up(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scalars, "ZoneInfo", lambda key: pytest.fail(f"looked up {key!r}"))
    data = msgspec.json.encode({"$": ["datetime", "2025-01-01T00:00:00", {"zone": key}]})
    with pytest.raises(ValueDamaged):
        decode(data)


def test_a_tag_from_the_future_is_unknown_also_for_the_canonical_form() -> None:
    for read in (decode, canonical):
        with pytest.raises(UnknownType, match="'hologram'"):
            read(b'[{"$":["hologram",1]}]')


DEEP = [
    ("[", "]"),
    ('{"a":', "}"),
    ('{"$":["tuple",', "]}"),
    ('{"$":["frozenset",', "]}"),
    ('{"$":["map",[1,', "]]}"),
    ('{"$":["object","point",{"y":1,"x":', "}]}"),
    ('{"$":["enum","color","RED",', "]}"),
    ('{"$":["str",', "]}"),
    ('{"$":["datetime","2025-01-01T00:00:00+01:00",{"name":', "}]}"),
]


@pytest.mark.parametrize(("opening", "closing"), DEEP, ids=[opening for opening, _ in DEEP])
@pytest.mark.parametrize("levels", [201, 300, 10_000, 200_000])
def test_deep_nesting_is_damage_and_never_a_crash(opening: str, closing: str, levels: int) -> None:
    data = (opening * levels + "1" + closing * levels).encode()
    for read in (lambda d: decode(d, types=TYPES), canonical):
        with pytest.raises(RefoldError):
            read(data)


WRITTEN = [encode(value, types=TYPES) for value in EXAMPLES.values()]
TAGS = st.sampled_from([*READERS, "tuple", "set", "frozenset", "map", "enum", "object", "x"])
NAMES = st.sampled_from(["color", "access", "point", "person", "order", "note", "line", "nan", "RED", "set", ""])
TREES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(max_size=5), NAMES),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.sampled_from(["$", "x", "y", "name", "zone", "fold"]), inner, max_size=3),
        st.builds(lambda tag, rest: {"$": [tag, *rest]}, TAGS, st.lists(inner, max_size=4)),
        st.builds(lambda name, more: {"$": ["object", name, {"x": more, "y": 1}]}, NAMES, inner),
    ),
    max_leaves=12,
)


def _read_only_typed_errors(data: bytes) -> None:
    for read in (lambda d: decode(d, types=TYPES), canonical):
        try:
            read(data)
        except RefoldError:
            continue


@given(TREES)
def test_hostile_trees_end_in_a_value_or_a_typed_error(tree: Any) -> None:
    _read_only_typed_errors(msgspec.json.encode(tree))


@given(st.sampled_from(WRITTEN), st.data())
def test_mutated_bytes_end_in_a_value_or_a_typed_error(data: bytes, draw: st.DataObject) -> None:
    damaged = bytearray(data[:2000])
    for _ in range(draw.draw(st.integers(1, 3))):
        position = draw.draw(st.integers(0, len(damaged) - 1))
        damaged[position : position + draw.draw(st.integers(0, 2))] = draw.draw(
            st.sampled_from([b"", b'"', b"$", b"[", b"}", b"0", b"\xff", b"\\", b"null", b"-"])
        )
        damaged += b" "
    _read_only_typed_errors(bytes(damaged))


@given(st.binary(max_size=40))
def test_random_bytes_end_in_a_value_or_a_typed_error(data: bytes) -> None:
    _read_only_typed_errors(data)


@given(VALUES)
def test_white_space_and_escapes_of_another_writer_do_not_hide_a_tag(value: Any) -> None:
    data = encode(value, types=TYPES)
    spaced = msgspec.json.format(data, indent=2)
    if b"'" not in data and b"\\" not in data:
        escaped = spaced.replace(b'"$"', b'"\\u0024"')
        assert encode(decode(escaped, types=TYPES), types=TYPES) == data
    assert encode(decode(spaced, types=TYPES), types=TYPES) == data
