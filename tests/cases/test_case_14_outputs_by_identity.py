"""Case 14: recorded outputs were matched to steps by position, after the list of steps had changed. Here an output
belongs to a site and to what was asked there; a mismatch is refused.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from refold import App, InferenceSkipping, Run, RunPaused, Stream
from refold.runtime.opened import Refold

RAN: list[str] = []


def handle(item: str) -> str:
    RAN.append(item)
    return item.upper()


def in_order(items: list[str]) -> App:
    app = App("t")

    @app.workflow()
    async def work(run: Run) -> list[str]:
        return [*[await run.step(handle, item) for item in items], await run.signal("go", str)]

    return app


def side_by_side(items: list[str]) -> App:
    """Each item in a scope of its own name."""
    app = App("t")

    async def one(run: Run, item: str) -> str:
        async with run.scope(item):
            return str(await run.step(handle, item))

    @app.workflow()
    async def work(run: Run) -> list[str]:
        tasks = [asyncio.create_task(one(run, item), name=item) for item in items]
        return [*await asyncio.gather(*tasks), await run.signal("go", str)]

    return app


async def handled(rf: Refold, run_id: str, count: int) -> None:
    async for event in rf.scope.follow(Stream.run(run_id)):
        count -= event.type == "step.completed"
        if not count:
            return


def first_life(app: App, place: str) -> str:
    async def start() -> str:
        async with app.open(place) as rf:
            run = await rf.start("work")
            await handled(rf, run.id, 3)
            return run.id

    RAN.clear()
    return asyncio.run(start())


@pytest.mark.parametrize(
    ("items", "says"),
    [
        (["b", "c"], '$[0] was "a" and is "b"'),
        (["a", "c", "b"], '$[0] was "b" and is "c"'),
        (["new", "a", "b", "c"], '$[0] was "a" and is "new"'),
        (["a", "b"], "the record has a step here, and the code asks for a signal"),
    ],
    ids=["one removed", "two swapped", "one inserted", "the last removed"],
)
def test_a_changed_list_of_steps_is_refused(tmp_path: Path, items: list[str], says: str) -> None:
    place = str(tmp_path / "l.db")
    run_id = first_life(in_order(["a", "b", "c"]), place)

    async def second() -> None:
        async with in_order(items).open(place) as rf:
            with pytest.raises(RunPaused) as paused:
                await (await rf.get(run_id)).result()
            (report,) = paused.value.facts["divergences"]
            assert says in report["first_difference"]
            assert not (await rf.replay(run_id, InferenceSkipping())).equal

    asyncio.run(second())
    assert RAN == ["a", "b", "c"]


def test_items_with_names_of_their_own_keep_their_outputs_whatever_their_order(tmp_path: Path) -> None:
    place = str(tmp_path / "l.db")
    run_id = first_life(side_by_side(["a", "b", "c"]), place)

    async def second() -> Any:
        async with side_by_side(["new", "c", "a", "b"]).open(place) as rf:
            await rf.signal(run_id, "go", "on")
            return await (await rf.get(run_id)).result()

    assert asyncio.run(second()) == ["NEW", "C", "A", "B", "on"]
    assert RAN == ["a", "b", "c", "new"]


def test_another_result_of_the_same_answers_is_told(tmp_path: Path) -> None:
    def app(add: int) -> App:
        made = App("t")

        @made.workflow()
        async def work(run: Run) -> int:
            return len(await run.step(handle, "a")) + add

        return made

    async def ask() -> Any:
        async with app(0).open(str(tmp_path / "l.db")) as rf:
            run = await rf.start("work")
            assert await run.result() == 1
        async with app(1).open(str(tmp_path / "l.db")) as rf:
            return await rf.replay(run.id, InferenceSkipping())

    (divergence,) = asyncio.run(ask()).divergences
    assert (divergence.kind, divergence.first_difference) == ("output", "$.output was 1 and is 2")
