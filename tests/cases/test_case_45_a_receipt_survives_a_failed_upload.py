"""Case 45: a received success was lost because the upload of its large body failed. Here the receipt survives, the call
is not run again, and the code is told what could not be kept.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from refold import App, Run, Stream, seam
from refold.gateway.errors import ResultNotRecordable


def no_room(point: str) -> None:
    if point == "artifact.write":
        raise OSError(28, "No space left on device")


async def test_case_45_a_large_answer_that_cannot_be_stored_is_not_asked_for_again(tmp_path: Path) -> None:
    app, paid = App("t"), list[int]()

    @app.tool(effect="unsafe")
    async def pay(amount: int) -> str:
        paid.append(amount)
        return "x" * 5_000_000

    @app.workflow()
    async def work(run: Run) -> Any:
        try:
            found = await pay(7)
        except ResultNotRecordable as error:
            await run.signal("go", str)
            return error.code
        return len(found)

    with seam.installed(no_room):
        async with app.open(str(tmp_path / "l.db")) as rf:
            run = await rf.start("work")
            async for event in rf.scope.follow(Stream.run(run.id)):
                if event.type == "tool.answered":
                    break
    async with app.open(str(tmp_path / "l.db")) as rf:
        await rf.signal(run.id, "go", "!")
        assert await (await rf.get(run.id)).result() == ResultNotRecordable.code
        assert await (await rf.start("work")).result() == 5_000_000
    assert paid == [7, 7]
