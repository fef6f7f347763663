"""What a tool returns: given to the code as it was, kept whole, or completed as what could not be kept."""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from refold.errors import RefoldError
from refold.events.values import Registry
from refold.gateway.errors import ResultNotRecordable, ToolFailed
from refold.gateway.tools import Tool
from refold.ledger.artifacts import INLINE, ArtifactFiles
from refold.ledger.errors import LedgerFull
from refold.projections.rows import ArtifactRow, ToolCallRow
from tests.gateway.support import ONCE, ledger_at, start


@dataclasses.dataclass
class Receipt:
    order: str
    amount: Decimal


@dataclasses.dataclass
class Hidden:
    n: int


AWKWARD = [
    "x" * 5_000_000,
    "nul \0 and ü 漢 🎈",
    "\ud800 alone",
    float("inf"),
    b"\x00\xff",
    datetime.datetime(2026, 11, 29, 12, tzinfo=datetime.UTC),
    Decimal("1.50"),
    2**70,
    {1: "a", (2, 3): "b"},
    (1, (2, 3)),
    {1, 2},
    -0.0,
    None,
    [[]],
    {"$": ["int", "5"]},
]


@pytest.mark.parametrize("value", AWKWARD, ids=lambda value: f"{type(value).__name__} {str(value)[:12]!a}")
async def test_awkward_results_are_what_they_were_for_the_code_and_for_whoever_replays(
    tmp_path: Path, value: Any
) -> None:
    async with ledger_at(tmp_path) as scope:
        run, second = await start(scope), await start(scope, "elsewhere")
        tool = Tool(lambda order: value, name="act", key="{order}")
        for each in (run, second):
            result = await each.make(tool, "a")
            assert type(result) is type(value)
            assert repr(result) == repr(value)


async def test_a_class_is_found_by_annotation_or_registry(tmp_path: Path) -> None:
    def annotated(order: Receipt) -> Receipt:
        return dataclasses.replace(order, order="b")

    def registered() -> Any:
        return [Hidden(1)]

    async with ledger_at(tmp_path) as scope:
        run = await start(scope, types=Registry({"Hidden": Hidden}))
        assert await run.make(Tool(annotated), Receipt("a", Decimal(1))) == Receipt("b", Decimal(1))
        assert await run.make(Tool(registered)) == [Hidden(1)]


async def test_a_large_result_is_an_artifact_byte_for_byte_also_where_it_is_replayed(tmp_path: Path) -> None:
    tool = Tool(lambda order: "x" * INLINE, name="act", key="{order}")
    async with ledger_at(tmp_path) as scope:
        for domain in ("domain", "elsewhere"):
            run = await start(scope, domain)
            assert await run.make(tool, "a") == "x" * INLINE
            async with scope.reader() as reader:
                (row,) = await reader.rows(ArtifactRow, {"run_id": run.id})
                (call,) = await reader.rows(ToolCallRow, {"run_id": run.id})
            assert (row.kind, row.size_bytes) == ("tool_result", INLINE + 2)
            assert call.result_artifact_id == row.artifact_id


def generator() -> Iterator[int]:
    yield 1


class Hostile:
    """Raises whatever is asked of it."""

    def __getattribute__(self, name: str) -> Any:
        if name.startswith("__") and name in ("__class__", "__dict__", "__reduce_ex__"):
            raise RuntimeError(name)
        return object.__getattribute__(self, name)


@pytest.mark.parametrize(
    ("value", "path", "kept"),
    [
        (
            {"ok": 1, "bad": object(), "list": [1, Hidden(1)]},
            "$.bad",
            {"ok": 1, "bad": "<object>", "list": [1, "<Hidden>"]},
        ),
        (generator(), "$", "<generator>"),
        (Hidden(1), "$", "<Hidden>"),
        (Hostile(), "$", "<Hostile>"),
    ],
    ids=["a part", "a generator", "an unknown class", "a hostile object"],
)
async def test_a_result_that_cannot_be_recorded_is_neither_a_doubt_nor_repeated(
    tmp_path: Path, value: Any, path: str, kept: Any
) -> None:
    calls: list[int] = []

    def act(order: str) -> Any:
        calls.append(1)
        return value

    async with ledger_at(tmp_path) as scope:
        tool = Tool(act, key="{order}")
        for run in (await start(scope), await start(scope, "elsewhere")):
            with pytest.raises(ResultNotRecordable) as raised:
                await run.make(tool, "a")
            assert raised.value.facts["path"] == path
            assert raised.value.kept == kept
        assert len(calls) == 1
        assert (await run.intent("act")).status == "succeeded"


async def test_a_result_that_the_disk_has_no_room_for_is_not_asked_for_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[int] = []

    def act() -> str:
        calls.append(1)
        return "x" * 2_000_000

    def full(self: ArtifactFiles, key: str, data: bytes) -> None:
        raise LedgerFull("no room", artifact=key)

    monkeypatch.setattr(ArtifactFiles, "write", full)
    async with ledger_at(tmp_path) as scope:
        run = await start(scope)
        with pytest.raises(ResultNotRecordable) as raised:
            await run.make(Tool(act))
        assert "ledger_full" in raised.value.facts["reason"]
        assert len(calls) == 1


async def test_a_result_is_a_copy_of_its_time(tmp_path: Path) -> None:
    given = [1]

    async def act(items: list[int]) -> list[int]:
        items.append(2)
        return items

    async with ledger_at(tmp_path) as scope:
        run = await start(scope)
        result = await run.make(Tool(act), given)
        assert (given, result) == ([1], [1, 2])


async def test_secrets_in_arguments_and_results_are_not_in_views(tmp_path: Path) -> None:
    secret = "sk-" + "a1B2" * 12
    tool = Tool(lambda token: {"password": "hunter2", "echo": token}, name="act")
    async with ledger_at(tmp_path) as scope:
        run = await start(scope)
        assert (await run.make(tool, secret))["echo"] == secret
        async with scope.reader() as reader:
            (row,) = await reader.rows(ToolCallRow, {"run_id": run.id})
        assert "hunter2" not in str(row)
        assert secret not in str(row)


async def test_an_error_of_a_tool_is_the_same_for_the_code_and_in_the_replay(tmp_path: Path) -> None:
    def act() -> None:
        raise ToolFailed("no \ud800 way", retryable=True)

    async with ledger_at(tmp_path) as scope:
        run = await start(scope)
        with pytest.raises(ToolFailed) as raised:
            await run.make(Tool(act, retry=ONCE))
        assert str(raised.value) == "no \ud800 way"
        assert raised.value.retryable
        assert isinstance(raised.value, RefoldError)
