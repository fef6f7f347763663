"""What a run is given must be the App's own, and what refold hands out can be recorded without a word."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from refold import App, InferenceSkipping, ModelCall, Run, RunEnded, Scripted, Winner
from refold.runtime.errors import NotRegistered
from refold.runtime.inputs import BadInput


def told(answer):  # type: ignore[no-untyped-def] # as people write steps
    return answer.text, answer.calls


async def test_what_models_and_races_give_can_go_into_steps_states_and_results(tmp_path: Path) -> None:
    app = App("t", models={"main": Scripted([[ModelCall("c1", "look", {"a": 1})]])})

    @app.workflow()
    async def work(run: Run) -> Any:
        if run.state is None:
            await run.checkpoint(await found(run))
        return run.state

    async def found(run: Run) -> list[Any]:
        answer = await run.infer("main", messages=[{"role": "user", "content": "?"}])
        first = await run.race(told=run.step(told, answer), late=run.sleep(hours=1))
        return [answer, first]

    async with app.open(str(tmp_path / "l.db")) as rf:
        run = await rf.start(work)
        answer, first = await run.result()
        assert answer.calls == [ModelCall("c1", "look", {"a": 1})]
        assert first == Winner("told", ("", answer.calls))
        assert (await rf.replay(run.id, InferenceSkipping())).equal


async def test_what_cannot_be_started_is_refused_before_anything_is_recorded(
    tmp_path: Path,
) -> None:
    app, other = App("t"), App("other")

    async def plain(run: Run) -> None: ...

    @app.workflow()
    async def bare(run: Run) -> None: ...

    @other.workflow()
    async def elsewhere(run: Run) -> None: ...

    async with app.open(str(tmp_path / "l.db")) as rf:
        with pytest.raises(NotRegistered, match=r"plain is a plain function; `@app\.workflow\(\)`"):
            await rf.start(plain)  # type: ignore[arg-type]
        with pytest.raises(NotRegistered, match="'elsewhere' is not one of App 't'"):
            await rf.start(elsewhere)
        with pytest.raises(BadInput, match="takes no input"):
            await rf.start(bare, 5)
        assert not [row async for row in _runs(rf)]


async def test_a_plain_function_as_a_child_is_named(tmp_path: Path) -> None:
    app = App("t")

    async def plain(run: Run) -> None: ...

    @app.workflow()
    async def work(run: Run) -> None:
        await asyncio.gather(run.child(plain))  # type: ignore[arg-type]

    async with app.open(str(tmp_path / "l.db")) as rf:
        with pytest.raises(RunEnded, match="plain is a plain function"):
            await (await rf.start(work)).result()


async def _runs(rf: Any) -> Any:
    from refold.projections.rows import RunRow

    async with rf.scope.reader() as reader:
        async for row in reader.each(RunRow, {}):
            yield row
