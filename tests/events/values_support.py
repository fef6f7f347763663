"""What the tests of values share: sameness in the strict sense, classes of every kind, and strategies."""

from __future__ import annotations

import dataclasses
import enum
import math
from collections import namedtuple
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any, Generic, NamedTuple, TypedDict, TypeVar
from uuid import UUID
from zoneinfo import ZoneInfo

import msgspec
import pydantic
from hypothesis import strategies as st

from refold.events.values import Registry

T = TypeVar("T")


class Color(enum.Enum):
    RED = "red"
    BLUE = (1, 2)
    CRIMSON = "red"  # noqa: PIE796 - an alias


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Kind(enum.StrEnum):
    A = "a"


class Access(enum.Flag):
    READ = 1
    WRITE = 2


class Line(NamedTuple):
    sku: str
    count: int = 1


Pair = namedtuple("Pair", ["left", "right"])


@dataclasses.dataclass
class Order:
    id: int
    lines: list[Line]
    price: Decimal = Decimal(0)
    total: int = dataclasses.field(init=False, default=0)

    def __post_init__(self) -> None:
        self.total = len(self.lines) + 100


@dataclasses.dataclass(frozen=True, slots=True)
class Point:
    x: float
    y: float


@dataclasses.dataclass
class Box(Generic[T]):
    item: T


class Note(msgspec.Struct, frozen=True):
    text: str
    seen: int | msgspec.UnsetType = msgspec.UNSET


class Counter(msgspec.Struct):
    n: int

    def __post_init__(self) -> None:
        self.n += 1


class Address(pydantic.BaseModel):
    street: str
    zip: str = "0"


class Person(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="allow")
    name: str
    homes: list[Address] = []
    joined: datetime | None = None
    _secret: int = pydantic.PrivateAttr(default=7)


class Movie(TypedDict):
    title: str
    place: Point


CLASSES = (
    Color,
    Level,
    Kind,
    Access,
    Line,
    Pair,
    Order,
    Point,
    Box,
    Note,
    Counter,
    Address,
    Person,
)


def registry() -> Registry:
    return Registry({cls.__name__.lower(): cls for cls in CLASSES})


def same(a: Any, b: Any) -> bool:
    """Equal and of the same type all the way down; NaN is itself, 0.0 is not -0.0, dicts keep their order."""
    if type(a) is not type(b):
        return False
    if isinstance(a, enum.Enum):
        return a is b
    if type(a) is float:
        return (math.isnan(a) and math.isnan(b)) or (a == b and math.copysign(1, a) == math.copysign(1, b))
    if type(a) is Decimal:
        return a.as_tuple() == b.as_tuple()
    if isinstance(a, dict):
        pairs = zip(a.items(), b.items(), strict=False)
        return len(a) == len(b) and all(same(k, m) and same(v, w) for (k, v), (m, w) in pairs)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, (set, frozenset)):
        rest = list(b)
        for item in a:
            match = next((n for n, other in enumerate(rest) if same(item, other)), None)
            if match is None:
                return False
            del rest[match]
        return not rest
    if isinstance(a, (datetime, time)):
        zones = repr(a.tzinfo) == repr(b.tzinfo) and type(a.tzinfo) is type(b.tzinfo)
        return a == b and a.fold == b.fold and zones and a.replace(tzinfo=None) == b.replace(tzinfo=None)
    if dataclasses.is_dataclass(a):
        return all(same(getattr(a, f.name), getattr(b, f.name)) for f in dataclasses.fields(a))
    if isinstance(a, msgspec.Struct):
        return all(same(getattr(a, name), getattr(b, name)) for name in a.__struct_fields__)
    if isinstance(a, pydantic.BaseModel):
        return same(a.__getstate__(), b.__getstate__())
    return bool(a == b)


def _brief(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """The same strategy under a short name: hypothesis warns when it has to print 33 kB of nested parts."""

    @st.composite
    def part(draw: st.DrawFn) -> Any:
        return draw(strategy)

    return part()


OFFSETS = st.timedeltas(min_value=timedelta(hours=-23), max_value=timedelta(hours=23))
ZONES = st.one_of(
    st.none(),
    st.just(UTC),
    OFFSETS.map(timezone),
    st.builds(timezone, OFFSETS, st.text(max_size=5)),
    st.sampled_from(["UTC", "Europe/Berlin", "America/St_Johns", "Australia/Lord_Howe"]).map(ZoneInfo),
)
TEXT = st.text(st.characters(exclude_categories=()), max_size=12)
DATETIMES = st.builds(
    lambda moment, zone, fold: moment.replace(tzinfo=zone, fold=fold),
    st.datetimes(min_value=datetime(2, 1, 1), max_value=datetime(9998, 1, 1)),
    ZONES,
    st.integers(0, 1),
)
TIMES = st.builds(lambda t, zone, fold: t.replace(tzinfo=zone, fold=fold), st.times(), ZONES, st.integers(0, 1))

JSON_LEAVES = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), TEXT)
HASHABLE_LEAVES = st.one_of(
    JSON_LEAVES,
    st.sampled_from([0, 0.0, -0.0, False, 1, 1.0, True, "", "$", 2**53, -(2**53), 10**2000]),
    st.integers(min_value=-(2**80), max_value=2**80),
    st.binary(max_size=20),
    DATETIMES,
    st.dates(),
    TIMES,
    st.timedeltas(),
    st.decimals().filter(lambda d: not d.is_snan()),
    st.uuids(),
    st.sampled_from([*Color, *Level, *Kind, Access.READ, Access.READ | Access.WRITE, Access(0)]),
)


def _hashable(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    inner = _brief(strategy)
    return st.one_of(
        st.lists(inner, max_size=3).map(tuple),
        st.frozensets(inner, max_size=3),
        st.builds(Point, inner, inner),
        st.builds(Line, inner, inner),
        st.builds(Pair, inner, inner),
    )


HASHABLE = _brief(st.recursive(HASHABLE_LEAVES, _hashable, max_leaves=6))


def _nested(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    inner = _brief(strategy)
    return st.one_of(
        st.lists(inner, max_size=4),
        st.lists(inner, max_size=3).map(tuple),
        st.sets(HASHABLE, max_size=4),
        st.dictionaries(TEXT, inner, max_size=4),
        st.dictionaries(st.sampled_from(["$", "a", "$x"]), inner, max_size=2),
        st.dictionaries(HASHABLE, inner, max_size=3),
        st.builds(Order, inner, st.lists(inner, max_size=2), inner),
        st.builds(Box, inner),
        st.builds(Note, inner, inner | st.just(msgspec.UNSET)),
        st.builds(Counter, st.integers()),
        st.builds(lambda name, more: Person.model_construct(name=name, **more), inner, st.just({"extra": 1})),
        st.builds(lambda street, n: Person(name=street, homes=[Address(street=street)] * n), TEXT, st.integers(0, 2)),
    )


VALUES = _brief(st.recursive(HASHABLE_LEAVES, _nested, max_leaves=15))

EXAMPLES: dict[str, Any] = {
    "none": None,
    "true": True,
    "text": "plain",
    "NUL": "a\0b",
    "astral text": "😀\uffee\u2028",
    "lone surrogate": "a\ud800\udc00b",
    "surrogate key": {"\udfff": 1},
    "negative zero": -0.0,
    "zero": 0,
    "float zero": 0.0,
    "whole float": 1e22,
    "smallest float": 5e-324,
    "nan": math.nan,
    "infinities": [math.inf, -math.inf],
    "2^53": [2**53 - 1, 2**53, -(2**53), 2**63, 2**64, 10**30],
    "huge int": -(10**9000),
    "bytes": [b"", b"\0", b"ab", b"abc", bytes(range(256))],
    "naive datetime": datetime(2025, 3, 30, 2, 30, 0, 1),
    "utc": datetime(2025, 3, 30, tzinfo=UTC),
    "odd offset": datetime(1, 1, 1, tzinfo=timezone(-timedelta(hours=5, minutes=7, seconds=3, microseconds=9))),
    "offset below a second": [
        datetime(2000, 1, 1, tzinfo=timezone(timedelta(microseconds=1))),
        time(0, tzinfo=timezone(-timedelta(microseconds=1))),
    ],
    "named offset": datetime(2025, 1, 1, tzinfo=timezone(timedelta(0), "Zulu \ud800")),
    "fold": datetime(2025, 10, 26, 2, 30, fold=1, tzinfo=ZoneInfo("Europe/Berlin")),
    "gap": datetime(2025, 3, 30, 2, 30, tzinfo=ZoneInfo("Europe/Berlin")),
    "zone named UTC": datetime(2025, 3, 30, tzinfo=ZoneInfo("UTC")),
    "date": date(1, 1, 1),
    "time": [
        time(23, 59, 59, 999999),
        time(1, tzinfo=UTC),
        time(1, tzinfo=ZoneInfo("Europe/Berlin"), fold=1),
    ],
    "timedelta": [timedelta.min, timedelta.max, timedelta(-1, 1, 1)],
    "decimal": [Decimal(t) for t in ("1.50", "-0", "1E+999999", "NaN123", "-sNaN", "-Infinity", "0E-10")],
    "uuid": UUID(int=5),
    "enums": [Color.RED, Color.BLUE, Level.HIGH, Kind.A, Access.READ | Access.WRITE, Access(0)],
    "tuple": ((), (1, [2, (3,)])),
    "sets": [set(), {1, "1", (1,)}, frozenset({frozenset({1}), 2})],
    "two nans": {float("nan"), float("nan")},
    "odd keys": {1: "a", "1": "b", None: 0, (1, 2): [], 1.5: b"x", Color.RED: 1, frozenset({1}): 2},
    "reserved key": {"$": ["tuple", 1]},
    "reserved key inside": [{"$": 1}, {"$": 1, "b": 2}, {"$ref": "#/x"}, {"b": {"$": {}}}],
    "dataclass": Order(id=2**60, lines=[Line("a", 2)], price=Decimal("1.0")),
    "frozen dataclass": Point(-0.0, math.inf),
    "generic dataclass": Box[int](item=5),
    "namedtuple": [Line("a"), Pair([1], {2})],
    "struct": [Note("x"), Note("x", 5)],
    "model": Person(name="a", joined=datetime(2025, 1, 1, tzinfo=UTC), homes=[Address(street="s")], pet="cat"),
    "model with everything set": Address(street="s", zip="1"),
}
