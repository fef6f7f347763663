"""What the rows of the runtime do, as workflows of an App: the side that users of refold have."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from benchmarks.harness import Sample, timed
from benchmarks.recording import Measured
from benchmarks.runtime_work import RESULT
from benchmarks.workload import words
from refold import App, InferenceSkipping, Run
from refold.runtime.opened import Refold
from refold.runtime.workflow import Workflow

AppWork = Callable[[Refold, Measured], Awaitable[None]]
"""Something done with an open App."""

app = App("benchmark")
_texts = cache(words)
_LOOK = 0.001
"""Seconds between two looks at the loop."""


@app.tool(effect="unsafe")
async def search(arguments: str) -> str:
    """Answers with as many bytes as it was sent."""
    return _texts(len(arguments))[-1]


def score(number: int, size: int) -> str:
    """The result of a pure step."""
    texts = _texts(size)
    return texts[number % len(texts)]


@app.workflow()
async def calls_in_a_row(run: Run, given: tuple[int, int, bool]) -> None:
    """So many calls, of so many bytes each; then it ends, or waits."""
    count, size, waits = given
    texts = _texts(size)
    for number in range(count):
        await search(texts[number % len(texts)])
    if waits:
        await run.signal("go")


@app.workflow()
async def steps_in_a_row(run: Run, given: tuple[int, int, bool]) -> None:
    """So many pure steps, of so many bytes each."""
    count, size, waits = given
    for number in range(count):
        await run.step(score, number, size)
    if waits:
        await run.signal("go")


@app.workflow()
async def steps_at_once(run: Run, given: tuple[int, int, int, bool]) -> None:
    """So many times so many pure steps that are started together."""
    times, count, size, waits = given
    for _ in range(times):
        await asyncio.gather(*(run.step(score, number, size) for number in range(count)))
    if waits:
        await run.signal("go")


def call_runs(runs: int, warm: int, calls: int, first: int = 0, size: int = RESULT) -> AppWork:
    """`runs` runs at once, each of `calls` tool calls, after as many others that do `warm` calls each."""

    async def all_of_them(rf: Refold, count: int, name: str) -> None:
        keys = [f"{name} {first + place}" for place in range(runs)]
        started = await asyncio.gather(
            *(rf.start(calls_in_a_row, (count, size, False), key=key) for key in keys),
        )
        await asyncio.gather(*(run.result() for run in started))

    async def work(rf: Refold, measured: Measured) -> None:
        await all_of_them(rf, warm, "warm")
        with measured():
            await all_of_them(rf, calls, "run")

    return work


def step_run(count: int, size: int) -> AppWork:
    """A run of pure steps one after the other, from its start to its result, which is durable."""

    async def work(rf: Refold, measured: Measured) -> None:
        with measured():
            await (await rf.start(steps_in_a_row, (count, size, False))).result()

    return work


def wide_run(count: int, size: int) -> AppWork:
    """A run of pure steps that are started together."""

    async def work(rf: Refold, measured: Measured) -> None:
        with measured():
            await (await rf.start(steps_at_once, (1, count, size, False))).result()

    return work


async def through_app(path: Path, work: AppWork) -> Sample:
    """Does a work with the App opened on a ledger; what its part that counts took."""
    taken = Sample()

    @contextmanager
    def measured() -> Iterator[Sample]:
        nonlocal taken
        with timed() as taken:
            yield taken

    async with app.open(str(path)) as rf:
        await work(rf, measured)
    return taken


async def longest_stall(path: Path, work: AppWork) -> float:
    """The seconds for which a work, done once, kept the event loop from everybody else at its worst."""
    worst = 0.0

    async def look() -> None:
        nonlocal worst
        clock = asyncio.get_running_loop().time
        while True:
            before = clock()
            await asyncio.sleep(_LOOK)
            worst = max(worst, clock() - before - _LOOK)

    @contextmanager
    def measured() -> Iterator[Sample]:
        looking = asyncio.ensure_future(look())
        yield Sample()
        looking.cancel()

    async with app.open(str(path)) as rf:
        await work(rf, measured)
    return worst


async def left_waiting(path: Path, workflow: Workflow, given: tuple[int | bool, ...]) -> str:
    """Makes a run that does what it is given and then waits for a signal, and lets it go; returns its id."""
    async with app.open(str(path)) as rf:
        rests = resting(rf)
        run = await rf.start(workflow, given)
        await rests(run.id)
        return run.id


async def gone_on(path: Path, run_id: str) -> Sample:
    """Opens such a run again: until its code waits where it waited."""
    async with app.open(str(path), recover=False) as rf:
        rests = resting(rf)
        with timed() as taken:
            await rf.resume(run_id)
            await rests(run_id)
    return taken


async def skipped_through(path: Path, run_id: str) -> Sample:
    """Replays such a run through its code, inferences skipped."""
    async with app.open(str(path), recover=False) as rf:
        with timed() as taken:
            replayed = await rf.replay(run_id, InferenceSkipping())
    assert replayed.equal, replayed.divergences
    return taken


def resting(rf: Refold) -> Callable[[str], Awaitable[None]]:
    """What returns when nothing but a signal can move a run; to be made before the run is."""
    looked = asyncio.Event()
    rf.rested = looked.set

    async def rests(run_id: str) -> None:
        while (running := rf.running(run_id)) is None or running.live is None or not running.live.rests:
            looked.clear()
            await looked.wait()

    return rests
