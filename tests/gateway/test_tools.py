"""The contract of a tool: what a declaration refuses, how arguments are bound, encoded, described and read."""

from __future__ import annotations

import asyncio
import dataclasses
import enum
from decimal import Decimal
from typing import Any, Literal

import msgspec
import pydantic
import pytest

from refold.events.values import NotRecordable
from refold.gateway.errors import BadArguments, BadKey, BadTool
from refold.gateway.identity import derived_key, downstream_key, fingerprint, given_key
from refold.gateway.retry import Retry
from refold.gateway.tools import Tool, gateway_call


@dataclasses.dataclass
class Line:
    item: str
    price: Decimal


class Mood(enum.Enum):
    CALM = "calm"


class Order(pydantic.BaseModel):
    id: int
    note: str = ""


def refund(order: str, amount: Decimal = Decimal("1.50"), *, lines: list[Line] | None = None) -> Line:
    """Pays back."""
    return Line(order, amount)


@pytest.mark.parametrize(
    ("contract", "why"),
    [
        ({"key": "refund:{ordr}"}, "'ordr'"),
        ({"key": "refund"}, "no parameter"),
        ({"key": "refund:{order"}, "no template"),
        ({"effect": "harmless"}, "effect"),
        ({"timeout": 0}, "timeout"),
        ({"timeout": float("nan")}, "timeout"),
        ({"retry": Retry(attempts=0)}, "attempts"),
        ({"name": "~" + "0" * 32}, "name"),
        ({"on_cancel": "forget"}, "on_cancel"),
    ],
)
def test_a_declaration_that_cannot_hold_is_refused(contract: Any, why: str) -> None:
    with pytest.raises(BadTool, match=why):
        Tool(refund, **contract)


def test_what_is_not_said_is_careful() -> None:
    tool = Tool(refund, timeout=7)
    assert (tool.effect, tool.version, tool.settle, tool.on_cancel, tool.name) == ("unsafe", 1, 7, "drain", "refund")


def test_outside_of_a_run_a_tool_is_its_function_and_inside_it_is_the_gateway() -> None:
    tool = Tool(refund)
    assert tool("a") == tool.with_key("k")("a") == Line("a", Decimal("1.50"))
    asked: list[Any] = []
    token = gateway_call.set(lambda *call: asked.append(call))
    try:
        tool("a")
        tool.with_key("k")("b", amount=Decimal(2))
    finally:
        gateway_call.reset(token)
    assert asked == [
        (tool, {"order": "a", "amount": Decimal("1.50"), "lines": None}, None),
        (tool, {"order": "b", "amount": Decimal(2), "lines": None}, "k"),
    ]


@pytest.mark.parametrize("key", ["", "x" * 256, None, 7])
def test_a_callers_key_has_1_to_255_characters(key: Any) -> None:
    with pytest.raises(BadKey):
        Tool(refund).with_key(key)


@pytest.mark.parametrize("order", ["", None])
def test_a_key_made_from_nothing_is_refused(order: Any) -> None:
    tool = Tool(refund, key="refund:{order}")
    with pytest.raises(BadKey):
        tool.business_key(tool.bind(order))
    assert tool.business_key(tool.bind("a")) == "refund:a"


def test_a_key_can_name_a_part_of_an_argument() -> None:
    tool = Tool(lambda line: 1, name="t", key="{line.item}:{line.price}")
    assert tool.business_key({"line": Line("a", Decimal("1.50"))}) == "a:1.50"
    with pytest.raises(BadKey):
        tool.business_key({"line": 1})


def test_arguments_come_back_as_they_were_and_share_nothing() -> None:
    tool = Tool(refund)
    arguments = tool.bind("a", lines=[Line("b", Decimal("0.10"))])
    again = tool.decode_arguments(tool.encode_arguments(arguments))
    assert again == arguments
    assert again["lines"] is not arguments["lines"]
    assert tool.parameters.spread(again) == (("a", Decimal("1.50")), {"lines": arguments["lines"]})


def test_arguments_that_would_not_come_back_are_refused_with_their_path() -> None:
    tool = Tool(lambda order: 1, name="t")
    with pytest.raises(NotRecordable) as raised:
        tool.encode_arguments(tool.bind({"a": [object()]}))
    assert raised.value.facts["path"] == "$.order.a[0]"


def test_any_shape_of_parameters_is_bound_and_spread_again() -> None:
    def odd(a: int, /, b: int, *rest: int, c: int = 3, **more: int) -> tuple[Any, ...]:
        return a, b, rest, c, more

    tool = Tool(odd)
    arguments = tool.decode_arguments(tool.encode_arguments(tool.bind(1, 2, 3, 4, c=5, d=6)))
    args, kwargs = tool.parameters.spread(arguments)
    assert odd(*args, **kwargs) == (1, 2, (3, 4), 5, {"d": 6})
    with pytest.raises(BadTool):
        tool.schema()
    with pytest.raises(BadArguments):
        tool.bind()


def test_the_schema_is_one_object_with_what_is_required() -> None:
    schema = Tool(refund).schema()
    assert schema["type"] == "object"
    assert schema["required"] == ["order"]
    assert set(schema["properties"]) == {"order", "amount", "lines"}
    assert schema["additionalProperties"] is False
    assert list(schema["$defs"]) == ["Line"]


def test_a_models_arguments_become_typed_ones() -> None:
    def order(kind: Literal["a", "b"], mood: Mood, n: int, lines: list[Line], extra: Any = None) -> None: ...

    text = '{"kind":"a","mood":"calm","n":"3","lines":[{"item":"x","price":"1.20"}]}'
    expected = {"kind": "a", "mood": Mood.CALM, "n": 3, "lines": [Line("x", Decimal("1.20"))], "extra": None}
    assert Tool(order).from_json(text) == expected
    assert Tool(order).from_json(msgspec.json.decode(text)) == expected


@pytest.mark.parametrize("given", ["{}", "[]", "{", '{"order":1}', '{"order":"a","lines":[{}]}', '{"order":"a","x":1}'])
def test_a_models_arguments_that_do_not_fit_are_refused(given: str) -> None:
    with pytest.raises(BadArguments):
        Tool(refund).from_json(given)


def test_pydantic_models_are_read_by_pydantic() -> None:
    def send(order: Order, times: int = 2) -> Order:
        return order

    tool = Tool(send)
    assert tool.schema()["required"] == ["order"]
    assert tool.from_json('{"order":{"id":"7"}}') == {"order": Order(id=7), "times": 2}
    assert tool.decode_result(tool.encode_result(Order(id=7))) == Order(id=7)
    secret = "hunter2"
    with pytest.raises(BadArguments) as raised:
        tool.from_json({"order": {"id": secret}})
    assert secret not in str(raised.value)
    assert "$.order.id" in str(raised.value)


def test_pauses_grow_to_their_limit() -> None:
    retry = Retry(attempts=9, first=1, factor=2, limit=5)
    assert [retry.delay(attempt) for attempt in (1, 2, 3, 4, 100_000)] == [1, 2, 4, 5, 5]


def test_digests_of_different_things_differ() -> None:
    secret = b"s" * 32
    digests = [
        fingerprint(secret, "t", 1, b'{"a":1}'),
        fingerprint(secret, "t", 2, b'{"a":1}'),
        fingerprint(secret, "t", 1, b'{"a":1.0}'),
        fingerprint(secret, "u", 1, b'{"a":1}'),
        fingerprint(b"z" * 32, "t", 1, b'{"a":1}'),
        derived_key(secret, "d", "1//t#1"),
        derived_key(secret, "e", "1//t#1"),
        given_key(secret, "t", "1//t#1"),
        given_key(secret, "u", "1//t#1"),
        downstream_key(secret, "int_1", 0),
        downstream_key(secret, "int_1", 1),
    ]
    assert len(set(digests)) == len(digests)
    assert all(len(digest) == 32 for digest in digests)
    assert fingerprint(secret, "t", 1, b'{"a":1,"b":2}') == fingerprint(secret, "t", 1, b'{"b":2,"a":1}')


def test_plain_and_coroutine_functions_are_told_apart() -> None:
    async def one() -> int:
        return 1

    assert Tool(one).is_async
    assert asyncio.run(Tool(one)()) == 1
    assert not Tool(refund).is_async
