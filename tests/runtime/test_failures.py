"""Exceptions of steps reach the code as what they were, with what they said and carried."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from refold import App, Happened, InferenceSkipping, Run, RunEnded, RunPaused, StepFailed
from refold.projections.rows import StepRow, ToolCallRow
from refold.runtime.errors import NotDeterministic


class OutOfStock(Exception):
    """One that keeps more than it tells its base class."""

    def __init__(self, article: str, *, left: int = 0) -> None:
        super().__init__(f"no {article}")
        self.article = article
        self.left = left


def undecodable() -> None:
    b"\xff".decode()


def missing_file() -> None:
    Path("/there/is/no/such/file").read_bytes()


def several() -> None:
    raise ExceptionGroup("two", [ValueError("one"), ExceptionGroup("more", [KeyError("other")])])


def out_of_stock() -> None:
    raise OutOfStock("bolt", left=3)


async def caught(path: Path, step: Callable[[], None], seen: list[Any]) -> None:
    """Runs a step in a workflow that catches what it raises, and replays it."""
    app = App("t")
    app.register(OutOfStock)

    @app.workflow()
    async def work(run: Run) -> str:
        try:
            await run.step(step)
        except Exception as error:  # noqa: BLE001 - the test looks at it
            seen.append(error)
            return f"{type(error).__name__}: {error}"
        return "nothing was raised"

    async with app.open(str(path / "l.db")) as rf:
        run = await rf.start(work)
        await run.result()
        assert (await rf.replay(run.id, InferenceSkipping())).equal


async def test_exceptions_of_python_say_and_hold_what_they_did(tmp_path: Path) -> None:
    seen: list[Any] = []
    await caught(tmp_path, undecodable, seen)
    await caught(tmp_path, missing_file, seen)
    for error in seen[:2]:
        assert isinstance(error, UnicodeDecodeError)
        assert str(error) == "'utf-8' codec can't decode byte 0xff in position 0: invalid start byte"
        assert error.start == 0
    for error in seen[2:]:
        assert isinstance(error, FileNotFoundError)
        assert error.errno == 2
    assert len(seen) == 4


async def test_a_registered_exception_has_its_attributes(tmp_path: Path) -> None:
    seen: list[Any] = []
    await caught(tmp_path, out_of_stock, seen)
    assert [(str(each), each.article, each.left) for each in seen] == [("no bolt", "bolt", 3)] * 2


async def test_a_group_of_exceptions_comes_as_one_failure_that_says_what_is_in_it(tmp_path: Path) -> None:
    seen: list[Any] = []
    await caught(tmp_path, several, seen)
    for error in seen:
        assert isinstance(error, StepFailed)
        assert error.message.endswith(
            "two (2 sub-exceptions): ValueError: one; ExceptionGroup: more (1 sub-exception): KeyError: 'other'"
        )


async def test_a_run_that_failed_tells_why_and_has_the_failure_as_its_cause(tmp_path: Path) -> None:
    app = App("t")

    @app.workflow()
    async def work(run: Run) -> None:
        raise LookupError("There is no such order.")

    async with app.open(str(tmp_path / "l.db")) as rf:
        run = await rf.start(work)
        with pytest.raises(RunEnded) as ended:
            await run.result()
    assert ended.value.message == f"Run {run.id} failed: There is no such order."
    assert isinstance(ended.value.__cause__, LookupError)


async def test_a_run_ended_by_what_it_may_not_do_names_the_way_out(tmp_path: Path) -> None:
    app = App("t")

    @app.workflow()
    async def work(run: Run) -> None:
        await asyncio.to_thread(len, "")

    async with app.open(str(tmp_path / "l.db")) as rf:
        with pytest.raises(RunEnded) as ended:
            await (await rf.start(work)).result()
    assert ended.value.remedy == NotDeterministic.remedy


async def test_a_doubt_tells_what_the_attempt_raised(tmp_path: Path) -> None:
    app = App("t")

    @app.tool(effect="unsafe")
    def pay(amount: int) -> str:
        return "EUR " + amount  # type: ignore[operator]

    @app.workflow()
    async def work(run: Run) -> str:
        return await pay(7)  # type: ignore[misc]

    async with app.open(str(tmp_path / "l.db")) as rf:
        run = await rf.start(work)
        with pytest.raises(RunPaused) as paused:
            await run.result()
        async with rf.scope.reader() as reader:
            (call,) = await reader.rows(ToolCallRow, {"run_id": run.id})
            (step,) = await reader.rows(StepRow, {"run_id": run.id})
        said = 'TypeError: can only concatenate str (not "int") to str'
        assert (call.status, call.error_code, call.error_message) == ("in_doubt", "exception", said)
        assert step.error_message == said
        await rf.resolve(paused.value.facts["doubts"][0], Happened("EUR 7"), basis="the bank's log", by="ada")
        assert await run.result() == "EUR 7"
        async with rf.scope.reader() as reader:
            (call,) = await reader.rows(ToolCallRow, {"run_id": run.id})
        assert (call.status, call.error_message) == ("succeeded", None)


async def test_a_run_that_was_stopped_says_by_what(tmp_path: Path) -> None:
    app = App("t")

    @app.workflow()
    async def work(run: Run) -> None:
        await run.signal("never")

    async with app.open(str(tmp_path / "l.db")) as rf:
        stopped, late = await rf.start(work), await rf.start(work, deadline=0.01)
        await rf.cancel(stopped.id, basis="not needed")
        with pytest.raises(RunEnded, match="canceled: somebody told it to stop"):
            await stopped.result()
        with pytest.raises(RunEnded, match="expired: its deadline passed"):
            await late.result()
