"""A parent says what its child waits for."""

from __future__ import annotations

from pathlib import Path

import pytest

from refold import App, Happened, Run, RunPaused


async def test_a_parent_whose_child_is_in_doubt_says_so_and_goes_on_with_it(tmp_path: Path) -> None:
    app = App("t")

    @app.tool(effect="unsafe")
    def pay(amount: int) -> str:
        raise ConnectionResetError

    @app.workflow()
    async def child(run: Run) -> str:
        return await pay(7)

    @app.workflow()
    async def parent(run: Run) -> list[str]:
        return [await run.child(child)]

    async with app.open(str(tmp_path / "l.db")) as rf:
        run = await rf.start(parent)
        with pytest.raises(RunPaused) as paused:
            await run.result()
        assert paused.value.reason == "in_doubt"
        assert paused.value.facts["run_id"] == run.id
        (call,) = paused.value.facts["doubts"]
        await rf.resolve(call, Happened("receipt"), basis="the bank's log", by="ada")
        assert await run.result() == ["receipt"]
