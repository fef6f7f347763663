"""Case 12: a failed child came back as succeeded in a replay, because a projection lacked two columns. Here an outcome
is read from its event: ok, error, canceled and None come back as what they were, resumed and replayed.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from refold import App, ChildFailed, InferenceSkipping, Run, Stream, ToolFailed
from refold.runtime.opened import Refold

app = App("outcomes")
ran: list[str] = []


def noted(what: str) -> str:
    ran.append(what)
    return what


def nothing(what: str) -> None:
    ran.append(what)


def too_little(what: str) -> None:
    ran.append(what)
    raise ValueError(f"{what} is too little")


@app.tool(effect="unsafe")
def give(what: str) -> str | None:
    ran.append(what)
    if what == "tool no":
        raise ToolFailed("they said no")
    return None if what == "tool none" else what


@app.workflow()
async def child(run: Run, how: str) -> str | None:
    if how == "canceled":
        await run.signal("never", str)
    if how == "failed":
        raise LookupError("nothing there")
    return None if how == "none" else await run.step(noted, "child ok")


async def told(awaitable: Any) -> list[Any]:
    try:
        return ["ok", await awaitable]
    except ChildFailed as error:
        return [error.facts["status"], error.facts["error_code"]]
    except (ToolFailed, ValueError) as error:
        return [type(error).__name__, str(error)]


@app.workflow()
async def parent(run: Run) -> list[Any]:
    found = [await told(run.child(child, how)) for how in ("ok", "failed", "canceled", "none")]
    found += [await told(give(what)) for what in ("tool ok", "tool no", "tool none")]
    found += [await told(run.step(*each)) for each in ((noted, "step ok"), (too_little, "step no"), (nothing, "none"))]
    return [*found, await run.signal("go", str)]


OUTCOMES = [
    ["ok", "child ok"],
    ["failed", "exception"],
    ["canceled", None],
    ["ok", None],
    ["ok", "tool ok"],
    ["ToolFailed", "they said no"],
    ["ok", None],
    ["ok", "step ok"],
    ["ValueError", "step no is too little"],
    ["ok", None],
]


async def up_to_the_signal(rf: Refold) -> str:
    run = await rf.start(parent)
    async for event in rf.scope.follow(Stream.run(run.id)):
        if event.type == "child.started" and len(children := await _started(rf, run.id)) == 3:
            while not await rf.exists(children[2]):
                await rf.ledger.store.changed()
            await rf.cancel(children[2], basis="not wanted")
        if event.type == "step.completed" and event.facts.name == "nothing":
            break
    return run.id


async def _started(rf: Refold, run_id: str) -> list[str]:
    events = [event async for event in rf.scope.read(Stream.run(run_id)) if event.type == "child.started"]
    return [event.facts.child_run_id for event in events]


def test_every_outcome_comes_back_as_it_was(tmp_path: Path) -> None:
    async def first() -> str:
        async with app.open(str(tmp_path / "l.db")) as rf:
            return await up_to_the_signal(rf)

    async def then(run_id: str) -> None:
        async with app.open(str(tmp_path / "l.db")) as rf:
            await rf.signal(run_id, "go", "on")
            assert await (await rf.get(run_id)).result() == [*OUTCOMES, "on"]
            replayed = await rf.replay(run_id, InferenceSkipping())
            assert replayed.equal
            assert replayed.state["output"] == [*OUTCOMES, "on"]

    run_id = asyncio.run(first())
    before = list(ran)
    asyncio.run(then(run_id))
    assert ran == before
    assert len(ran) == len(set(ran))
