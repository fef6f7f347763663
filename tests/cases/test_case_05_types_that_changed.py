"""Case 5: a class had moved since it was stored, and reading gave None, later a plain dict with a warning. Here what
cannot be read as what it was is a typed failure that names stream, seq, type and version, on every road that reads;
or an upcaster makes today's form of it. Nothing stands in for it.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal

import msgspec
import pytest

from refold.events.catalog import CATALOG, Catalog, Facts
from refold.events.catalog.base import UnknownEvent
from refold.events.identity import Stream
from refold.events.values import Registry, ShapeChanged, UnknownType, decode, encode
from refold.ledger.drafts import Draft
from refold.ledger.ledger import Ledger, ScopedLedger
from refold.ledger.maintenance.migration import migrate
from refold.ledger.maintenance.rebuild import rebuild
from refold.replay.evidence import evidence
from refold.replay.projection_only import replay_projections
from refold.replay.state import state_at
from tests.cases.support import LEDGER, add_step, begin, edit, in_ledger, look
from tests.ledger.maintenance_support import stored_rows

NAME = "test.shipped"
Road = Callable[[ScopedLedger, Stream], Awaitable[Any]]


def _catalog(version: int, *steps: int) -> Catalog:
    """The catalogue of code that knows one more type, in one of its three versions, and these upcasters."""
    catalog = Catalog()
    for known in CATALOG:
        catalog.register(known.name, known.version)(known.facts)

    class Shipped1(Facts, frozen=True):
        parcel: str

    class Shipped2(Facts, frozen=True):
        parcels: list[str]

    class Shipped3(Facts, frozen=True):
        parcels: list[str]
        speed: Literal["slow", "fast"]

    catalog.register(NAME, version)((Shipped1, Shipped2, Shipped3)[version - 1])
    if 1 in steps:
        catalog.upcast(NAME, 1)(lambda old: {"parcels": [old.pop("parcel")], **old})
    if 2 in steps:
        catalog.upcast(NAME, 2)(lambda old: {**old, "speed": "slow"})
    return catalog


def _written(folder: Path, version: int, **facts: Any) -> Stream:
    """A run whose third event is of the type that will change."""
    catalog = _catalog(version)

    async def work(ledger: Ledger) -> Stream:
        writer = await begin(ledger.scope())
        writer.append(Draft(catalog[NAME].facts(**facts), content={"note": "kept"}))
        add_step(writer, 4)
        await writer.close()
        return writer.stream

    return in_ledger(folder, work, catalog=catalog)


async def _read(scope: ScopedLedger, stream: Stream) -> Any:
    return [event async for event in scope.read(stream)]


async def _follow(scope: ScopedLedger, stream: Stream) -> Any:
    return [event async for event in scope.follow(stream)]


async def _page(scope: ScopedLedger, stream: Stream) -> Any:
    async with scope.reader() as reader:
        return await reader.folding(stream)


async def _write(scope: ScopedLedger, stream: Stream) -> Any:
    return await scope.writer(stream)


async def _state(scope: ScopedLedger, stream: Stream) -> Any:
    return await state_at(scope, stream.run_id, 4)


async def _replay(scope: ScopedLedger, stream: Stream) -> Any:
    return await replay_projections(scope, stream.run_id)


async def _rebuild(scope: ScopedLedger, _: Stream) -> Any:
    return await rebuild(scope.ledger.path, catalog=scope.ledger.store.catalog)


ROADS: list[Road] = [_read, _follow, _page, _write, _state, _replay, _rebuild]


def _refused(folder: Path, stream: Stream, catalog: Catalog, type_: str, version: int) -> None:
    async def work(ledger: Ledger) -> None:
        for road in ROADS:
            with pytest.raises(UnknownEvent) as caught:
                await asyncio.wait_for(road(ledger.scope(), stream), 30)
            assert caught.value.facts == {"stream": str(stream), "seq": 3, "type": type_, "version": version}, road
            for fact in (str(stream), "3", type_, str(version)):
                assert fact in caught.value.message

    in_ledger(folder, work, catalog=catalog)


def test_case_05_a_type_that_is_gone_is_named_on_every_road(tmp_path: Path) -> None:
    stream = _written(tmp_path, 1, parcel="a")
    _refused(tmp_path, stream, CATALOG, NAME, 1)


def test_case_05_a_version_from_the_future_is_named_on_every_road(tmp_path: Path) -> None:
    stream = _written(tmp_path, 3, parcels=["a"], speed="fast")
    _refused(tmp_path, stream, _catalog(2, 1), NAME, 3)


@pytest.mark.parametrize("steps", [(), (1,), (2,)], ids=str)
def test_case_05_an_old_version_without_all_its_upcasters_is_named_and_not_guessed_at(
    tmp_path: Path, steps: tuple[int, ...]
) -> None:
    stream = _written(tmp_path, 1, parcel="a")
    _refused(tmp_path, stream, _catalog(3, *steps), NAME, 1)


@pytest.mark.parametrize(
    "facts",
    [b'{"parcels":["a"],"speed":"warp"}', b'{"parcels":["a"]}', b'{"parcels":"a","speed":"slow"}', b"null", b"\xff{"],
    ids=["a value that is no more", "a field that is new", "another type of field", "no object", "no JSON"],
)
def test_case_05_facts_that_do_not_fit_their_type_any_more_are_named(tmp_path: Path, facts: bytes) -> None:
    stream = _written(tmp_path, 3, parcels=["a"], speed="fast")
    assert edit(tmp_path, "UPDATE events SET facts = ? WHERE type = ?", facts, NAME) == 1
    _refused(tmp_path, stream, _catalog(3), NAME, 3)


def test_case_05_upcasters_make_todays_form_of_every_older_version(tmp_path: Path) -> None:
    old = {1: {"parcel": "a"}, 2: {"parcels": ["a"]}, 3: {"parcels": ["a"], "speed": "slow"}}
    for version, facts in old.items():
        folder = tmp_path / str(version)
        folder.mkdir()
        stream = _written(folder, version, **facts)
        catalog = _catalog(3, 1, 2)

        async def work(ledger: Ledger, stream: Stream = stream, version: int = version) -> None:
            scope = ledger.scope()
            (_, _, third, _) = [event async for event in scope.read(stream)]
            assert msgspec.to_builtins(third.facts) == {"parcels": ["a"], "speed": "slow"}
            assert third.stored.version == version, "what is stored stays as it was hashed"
            assert (await replay_projections(scope, stream.run_id)).equal
            async with await scope.writer(stream) as writer:
                add_step(writer, 5)

        in_ledger(folder, work, catalog=catalog)


def test_case_05_the_bundle_shows_the_event_that_cannot_be_read_in_its_place(tmp_path: Path) -> None:
    stream = _written(tmp_path, 1, parcel="a")

    async def work(ledger: Ledger) -> None:
        bundle = await evidence(ledger.scope(), stream.run_id)
        assert [event["seq"] for event in bundle["events"]] == [1, 2, 3, 4]
        shown = bundle["events"][2]
        assert set(shown) == {"id", "seq", "unreadable"}
        assert shown["unreadable"]["code"] == "unknown_event"

    in_ledger(tmp_path, work)


def test_case_05_a_migration_stops_at_what_it_cannot_read_and_leaves_the_tables_as_they_were(tmp_path: Path) -> None:
    stream = _written(tmp_path, 1, parcel="a")
    edit(tmp_path, "UPDATE ledger SET projections = 'other code'")
    before = stored_rows(tmp_path / LEDGER), look(tmp_path, "SELECT * FROM events")
    with pytest.raises(UnknownEvent) as caught:
        asyncio.run(migrate(tmp_path / LEDGER))
    assert caught.value.facts == {"stream": str(stream), "seq": 3, "type": NAME, "version": 1}
    after = stored_rows(tmp_path / LEDGER), look(tmp_path, "SELECT * FROM events")
    assert after == before
    assert look(tmp_path, "SELECT projections FROM ledger") == [("other code",)]


@dataclasses.dataclass
class _Order:
    number: int
    total: Decimal


def _order_class(module: str, *fields: str) -> type:
    made = dataclasses.make_dataclass("_Order", fields)
    made.__module__ = module
    return made


def test_case_05_a_value_class_that_moved_is_found_by_its_registered_name_and_one_that_changed_is_refused() -> None:
    stored = encode({"order": _Order(7, Decimal("1.50"))}, types=Registry({"order": _Order}))
    moved: Any = _order_class("shop.orders.v2", "number", "total")
    found = decode(stored, types=Registry({"order": moved}))["order"]
    assert (type(found), found) == (moved, moved(7, Decimal("1.50")))
    for gone in (None, Registry(), Registry({"orders": moved})):
        with pytest.raises(UnknownType) as unknown:
            decode(stored, types=gone)
        assert unknown.value.facts["type"] == "order"
    for fields in (("number",), ("number", "total", "currency"), ("number", "sum")):
        with pytest.raises(ShapeChanged) as changed:
            decode(stored, types=Registry({"order": _order_class("shop", *fields)}))
        assert changed.value.facts["type"] == "order"
