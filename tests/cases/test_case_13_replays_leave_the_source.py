"""Case 13: every replay that failed appended to the history of its source, without end. Here a replay writes nothing,
whatever comes of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import pytest

from refold import App, InferenceSkipping, Partial, Run, RunEnded
from refold.runtime.errors import CodeUnavailable


def double(number: int) -> int:
    return 2 * number


def triple(number: int) -> int:
    return 3 * number


def code(function: Callable[[int], int], version: int = 1) -> App:
    app = App("t")

    @app.workflow(version=version)
    async def work(run: Run) -> None:
        await run.step(function, 1)
        raise LookupError("nothing there")

    return app


def test_a_hundred_replays_that_fail_leave_head_and_file_as_they_were(tmp_path: Path) -> None:
    place = str(tmp_path / "l.db")

    def digest() -> str:
        found = sorted(path for path in tmp_path.iterdir() if not path.name.endswith("-shm"))
        return sha256(b"".join(path.read_bytes() for path in found)).hexdigest()

    async def first() -> str:
        async with code(double).open(place) as rf:
            run = await rf.start("work")
            with pytest.raises(RunEnded):
                await run.result()
            return run.id

    async def again(run_id: str) -> None:
        async with code(triple).open(place) as rf:
            head, before = await rf.scope.run_head(run_id), digest()
            for number in range(100):
                kind = InferenceSkipping() if number % 2 else Partial(until=3)
                replayed = await rf.replay(run_id, kind)
                assert not replayed.equal
                assert replayed.head_before == replayed.head_after == head
            assert digest() == before
        async with code(double, version=2).open(place) as rf:
            with pytest.raises(CodeUnavailable):
                await rf.replay(run_id, InferenceSkipping())
            assert await rf.scope.run_head(run_id) == head

    asyncio.run(again(asyncio.run(first())))
