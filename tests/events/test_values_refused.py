"""What would not come back the same is refused before it is stored, by the path of the part."""

from __future__ import annotations

import dataclasses
import enum
import functools
import io
import zoneinfo
from collections import Counter, OrderedDict, defaultdict, deque
from datetime import datetime, timedelta, tzinfo
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal, NamedTuple
from uuid import UUID

import msgspec
import pytest

from refold.events.values import NotRecordable, Registry, TypeNameTaken, decode, encode
from tests.events.values_support import Color, Line, Order, Person, Point, registry, same

TYPES = registry()


class Text(str):
    pass


class Moment(datetime):
    pass


class Odd(tzinfo):
    def utcoffset(self, moment: datetime | None) -> timedelta:
        return timedelta(hours=1)

    def dst(self, moment: datetime | None) -> None:
        return None

    def tzname(self, moment: datetime | None) -> str:
        return "odd"


@dataclasses.dataclass
class Failure(Exception):
    reason: str


@dataclasses.dataclass
class Cached:
    n: int

    @functools.cached_property
    def double(self) -> int:
        return 2 * self.n


SILENTLY_LOST: list[Any] = [
    OrderedDict(a=1),
    defaultdict(int, a=1),
    Counter("a"),
    deque([1]),
    Text("x"),
    type("Int", (int,), {})(3),
    type("Float", (float,), {})(3),
    type("Bytes", (bytes,), {})(b""),
    type("List", (list,), {})([1]),
    type("Money", (Decimal,), {})("1"),
    type("Id", (UUID,), {})(int=1),
    Moment(2025, 1, 1),
    datetime(2025, 1, 1, tzinfo=Odd()),
    bytearray(b"x"),
    memoryview(b"x"),
    1j,
    range(3),
    ...,
    object(),
    len,
    int,
    io.BytesIO(),
    Path("x"),
    Failure("x"),
]


@pytest.mark.parametrize("value", SILENTLY_LOST, ids=lambda value: type(value).__name__)
@pytest.mark.parametrize(
    "wrap", [lambda v: v, lambda v: {"a": [1, v]}, lambda v: {1: (v,)}], ids=["alone", "nested", "tuple"]
)
def test_a_type_that_would_be_lost_is_refused(value: Any, wrap: Any) -> None:
    with pytest.raises(NotRecordable) as caught:
        encode(wrap(value), types=TYPES)
    assert caught.value.facts["type"] == type(value).__qualname__


@pytest.mark.parametrize(
    ("value", "path"),
    [
        (object(), "$"),
        ({"orders": [0, 1, 2, {"file": object()}]}, "$.orders[3].file"),
        ({"a b": (object(),)}, "$['a b'][0]"),
        ({"\x1b[2J\ud800": object()}, r"$['\x1b[2J\ud800']"),
        ({7: object()}, "$[7]"),
        ({(1, object()): 1}, "${key tuple}[1]"),
        ({Color.RED: object()}, "$[Color]"),
        ({"s": {("x", len)}}, "$.s{tuple}[1]"),
        (Order(1, [], object()), "$.price"),  # type: ignore[arg-type]
        ([Line("a", object())], "$[0].count"),  # type: ignore[arg-type]
        (Person(name="a", extra=len), "$.extra"),
    ],
)
def test_the_error_names_the_path(value: Any, path: str) -> None:
    with pytest.raises(NotRecordable) as caught:
        encode(value, types=TYPES)
    assert caught.value.facts["path"] == path
    assert f"at {path} " in caught.value.message
    assert (caught.value.code, caught.value.exit_status) == ("not_recordable", 2)


def test_a_cycle_is_refused_and_a_shared_part_is_not() -> None:
    loop: dict[str, Any] = {"a": [1]}
    loop["a"].append(loop)
    with pytest.raises(NotRecordable, match="contains itself") as caught:
        encode({"top": loop})
    assert caught.value.facts["path"] == "$.top.a[1]"
    shared = [1]
    assert decode(encode([shared, shared])) == [[1], [1]]


@pytest.mark.parametrize("wrap", [lambda v: [v], lambda v: {"a": v}, lambda v: (v,), lambda v: Point(v, 0)])
def test_ten_thousand_levels_are_refused(wrap: Any) -> None:
    value: Any = 1
    for _ in range(10_000):
        value = wrap(value)
    with pytest.raises(NotRecordable, match="nests deeper than 200 levels") as caught:
        encode(value, types=TYPES)
    assert len(caught.value.message) < 300
    while not isinstance(value, int):  # taken apart by hand: a dataclass's own deallocation nests too
        value = value.x if isinstance(value, Point) else next(iter(value.values() if type(value) is dict else value))


def test_a_class_that_recurses_without_end_is_refused() -> None:
    endless = dataclasses.make_dataclass("Endless", ["x"])
    endless.x = property(lambda self: self.x)  # type: ignore[attr-defined]
    with pytest.raises(NotRecordable, match="recurses without end"):
        encode(object.__new__(endless), hint=endless)


def test_state_beside_the_fields_is_refused_unless_it_can_be_computed() -> None:
    types = Registry({"Cached": Cached})
    value = Cached(2)
    assert value.double == 4
    assert decode(encode(value, types=types), types=types) == Cached(2)
    value.__dict__["hidden"] = 1
    with pytest.raises(NotRecordable, match="attribute hidden is not a field"):
        encode(value, types=types)


def test_a_field_that_was_never_set_is_refused() -> None:
    with pytest.raises(NotRecordable, match="field x was never set"):
        encode(object.__new__(Point), types=TYPES)


def test_a_class_that_nothing_names_is_refused() -> None:
    with pytest.raises(NotRecordable, match="neither registered with the App nor in the annotation"):
        encode([Point(1, 2)], hint=list[Line])


def test_two_classes_of_one_name_are_refused_until_registered() -> None:
    def make() -> type:
        @dataclasses.dataclass
        class Twin:
            n: int

        return Twin

    one, two = make(), make()
    hint = tuple[one, two]  # type: ignore[valid-type]
    with pytest.raises(NotRecordable, match="another class is called Twin too"):
        encode((one(1), two(1)), hint=hint)
    types = Registry({"one": one, "two": two})
    assert same(decode(encode((one(1), two(1)), types=types), types=types), (one(1), two(1)))


def test_an_annotation_that_only_the_type_checker_can_read_says_so() -> None:
    class Holder(NamedTuple):
        inner: Hidden  # type: ignore[name-defined] # noqa: F821

    with pytest.raises(NotRecordable, match="Point is neither"):
        encode(Holder(Point(1, 2)), hint=Holder)


def test_annotations_are_searched_through_every_construction() -> None:
    assert decode(encode(Color.RED, hint=Literal[Color.RED]), Literal[Color.RED]) is Color.RED


def test_a_zone_that_would_not_be_found_again_is_refused() -> None:
    with (Path(zoneinfo.TZPATH[0]) / "Europe/Berlin").open("rb") as file:
        nameless = zoneinfo.ZoneInfo.from_file(file)
    with pytest.raises(NotRecordable, match="no key"):
        encode(datetime(2025, 1, 1, tzinfo=nameless))
    uncached = zoneinfo.ZoneInfo.no_cache("Europe/Berlin")
    with pytest.raises(NotRecordable, match="not equal"):
        encode(datetime(2025, 10, 26, 2, 30, fold=1, tzinfo=uncached))


def test_names_in_the_registry_are_given_once() -> None:
    types = Registry()
    assert types.register(Point, name="p") is Point
    types.register(Point, name="p")
    for cls, name in ((Line, "p"), (Point, "q")):
        with pytest.raises(TypeNameTaken):
            types.register(cls, name=name)
    with pytest.raises(NotRecordable):
        types.register(Failure)


def test_an_enum_whose_value_cannot_be_recorded_comes_back_by_name() -> None:
    class Action(enum.Enum):
        RUN = (len,)

    assert decode(encode(Action.RUN, hint=Action), Action) is Action.RUN


def test_unset_is_a_value_of_its_own() -> None:
    assert decode(encode([msgspec.UNSET]))[0] is msgspec.UNSET
