"""What goes in comes back equal and of the same type."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from decimal import Decimal, InvalidOperation, localcontext
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given

from refold.events.values import MAX_DEPTH, NotRecordable, ValueDamaged, decode, encode
from tests.events import values_support as support
from tests.events.values_support import EXAMPLES, VALUES, Counter, Movie, Order, Person, Point, same

TYPES = support.registry()


@pytest.mark.parametrize("value", EXAMPLES.values(), ids=EXAMPLES.keys())
def test_every_kind_of_value_comes_back_the_same(value: Any) -> None:
    assert same(decode(encode(value, types=TYPES), types=TYPES), value)


@given(VALUES)
@example([{"$": {"$": 1}}])
def test_any_nesting_of_them_comes_back_the_same(value: Any) -> None:
    assert same(decode(encode(value, types=TYPES), types=TYPES), value)


@given(VALUES)
def test_encoding_twice_gives_the_same_bytes(value: Any) -> None:
    data = encode(value, types=TYPES)
    assert encode(decode(data, types=TYPES), types=TYPES) == data


def test_plain_values_are_stored_as_plain_json_in_the_writers_order() -> None:
    value = {"z": [1, 0.5, True, None, "é\n"], "a": {"$ref": "#/x", "$": 1}, "$schema": {}, "n": -(2**53) + 1}
    assert encode(value) == json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


@pytest.mark.parametrize(
    ("value", "stored"),
    [
        ((1, 2**53), '{"$":["tuple",1,{"$":["int","9007199254740992"]}]}'),
        ("caf\ud83d!", '{"$":["str","caf",55357,"!"]}'),
        ({"$": 1}, '{"$":["map",["$",1]]}'),
        ({2: "b", 1: "a"}, '{"$":["map",[2,"b"],[1,"a"]]}'),
        (EXAMPLES["fold"], '{"$":["datetime","2025-10-26T02:30:00",{"fold":1,"zone":"Europe/Berlin"}]}'),
        (EXAMPLES["utc"], '{"$":["datetime","2025-03-30T00:00:00+00:00"]}'),
        (support.Color.RED, '{"$":["enum","color","RED","red"]}'),
        (support.Access(3), '{"$":["enum","access",null,3]}'),
        (Point(1.0, 2), '{"$":["object","point",{"x":1.0,"y":2}]}'),
        (
            Person(name="a", x=1),
            '{"$":["object","person",{"name":"a","homes":[],"joined":null},'
            '{"set":["name","x"],"extra":{"x":1},"private":{"_secret":7}}]}',
        ),
        (2**4096, '{"$":["int","0x1' + "0" * 1024 + '"]}'),
    ],
)
def test_the_published_form_never_changes(value: Any, stored: str) -> None:
    assert encode(value, types=TYPES).decode() == stored


def test_the_bytes_of_a_set_do_not_depend_on_the_process() -> None:
    program = "from refold.events.values import encode; print(encode(set('abcdefgh') | {1, (2,)}))"
    outputs = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": str(seed), "PYTHONPATH": os.pathsep.join(sys.path)},
            capture_output=True,
            check=True,
        ).stdout
        for seed in (1, 2, 3)
    }
    assert len(outputs) == 1


def test_the_callers_decimal_context_changes_nothing() -> None:
    value = Decimal("1.23456E+50")
    data = encode(value)
    with localcontext() as context:
        context.capitals, context.prec, context.traps[InvalidOperation] = 0, 2, False
        assert encode(value) == data
        assert same(decode(data), value)
        with pytest.raises(ValueDamaged):
            decode(b'{"$":["decimal","one"]}')


def test_restoring_an_object_runs_none_of_its_code(monkeypatch: pytest.MonkeyPatch) -> None:
    order = Order(id=1, lines=[])
    order.total = 5
    data = encode(order, types=TYPES)
    monkeypatch.setattr(Order, "__post_init__", lambda self: pytest.fail("ran __post_init__"))
    assert decode(data, types=TYPES).total == 5


def test_a_struct_that_changes_itself_when_made_comes_back_as_it_was() -> None:
    assert decode(encode(Counter(1), types=TYPES), types=TYPES).n == 2


def test_a_model_that_would_not_validate_comes_back_as_it_was() -> None:
    invalid = Person.model_construct(name=5)
    assert same(decode(encode(invalid, types=TYPES), types=TYPES), invalid)


def test_classes_are_found_through_the_annotation() -> None:
    movie: Movie = {"title": "t", "place": Point(1.0, 2.0)}
    hint = dict[str, list[Movie] | None]
    data = encode({"x": [movie]}, hint=hint)
    assert same(decode(data, hint), {"x": [movie]})
    order = Order(1, [support.Line("a")])
    assert same(decode(encode(order, hint=Order), Order), order)
    person = Person(name="x", homes=[support.Address(street="s")])
    assert same(decode(encode([person], hint=list[Person]), list[Person]), [person])


def test_a_large_value_of_each_kind_comes_back() -> None:
    for value in ("é" * 5_000_000, b"\0" * 10_000_001, list(range(100_000)), 1 << 10_000_000):
        assert decode(encode(value)) == value


def _nest(depth: int, wrap: Any) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = wrap(value)
    return value


WRAPS: dict[str, Any] = {
    "list": lambda v: [v],
    "dict": lambda v: {"k": v},
    "tuple": lambda v: (v,),
    "frozenset": lambda v: frozenset({v}),
    "map": lambda v: {1: v},
    "object": lambda v: Point(v, 0),
    "namedtuple": lambda v: support.Pair(v, 0),
    "model": lambda v: support.Address.model_construct(street=v),
    "struct": lambda v: support.Note(v),
}


@pytest.mark.parametrize("wrap", WRAPS.values(), ids=WRAPS.keys())
def test_the_documented_depth_comes_back_and_one_more_is_refused(wrap: Any) -> None:
    value = _nest(MAX_DEPTH, wrap)
    again = decode(encode(value, types=TYPES), types=TYPES)
    assert encode(again, types=TYPES) == encode(value, types=TYPES)
    with pytest.raises(NotRecordable, match="nests deeper than 200"):
        encode(wrap(value), types=TYPES)


def test_what_is_left_of_the_callers_stack_does_not_matter() -> None:
    value = _nest(MAX_DEPTH, WRAPS["object"])

    def deep(levels: int) -> bytes:
        return deep(levels - 1) if levels else encode(decode(encode(value, types=TYPES), types=TYPES), types=TYPES)

    frames = sys.getrecursionlimit() - len(_frames()) - 60
    assert deep(frames) == encode(value, types=TYPES)


def _frames() -> list[Any]:
    frame: Any = sys._getframe()
    found = []
    while frame is not None:
        found.append(frame)
        frame = frame.f_back
    return found


def test_recorded_sessions_come_back_the_same() -> None:
    shared = Path(os.environ.get("REFOLD_SHARED", Path(__file__).resolve().parents[3] / "shared"))
    sessions = sorted((shared / "data" / "pi-sessions").glob("*.jsonl"))
    if not sessions:
        pytest.skip(f"no recorded sessions under {shared}: set REFOLD_SHARED")
    for line in sessions[0].read_bytes().splitlines():
        value = json.loads(line)
        assert same(decode(encode(value)), value)


def test_nothing_like_pydantic_is_imported_for_plain_values() -> None:
    program = (
        "import sys; from refold.events.values import decode, encode; "
        "decode(encode({'a': (1,)})); print('pydantic' in sys.modules)"
    )
    run = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        check=True,
    )
    assert run.stdout.strip() == b"False"
