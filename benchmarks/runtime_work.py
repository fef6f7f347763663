"""What the rows of the runtime do, through the ledger's writer alone: what a run costs before any code runs in it.

Its commits are the floor's as well (`recording.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from benchmarks.harness import Sample, timed
from benchmarks.recording import Measured, Work
from benchmarks.workload import answer, begin, dispatch, step, words
from refold.ledger.ledger import Ledger, open_ledger
from refold.ledger.writer import StreamWriter

ARGUMENTS = RESULT = 500
"""Bytes of a tool call's arguments, and of its result."""
STEP = 1000
"""Bytes of a step's result."""
AT_ONCE = 500
"""Steps in one commit, where nothing waits for any of them."""
_OWN = 1_000_000
"""Numbers that each run has for its calls."""


def tool_calls(
    runs: int, warm: int, calls: int, first: int = 0, latency: list[float] | None = None, size: int = RESULT
) -> Work:
    """In each of `runs` runs at once, `calls` unsafe tool calls one after the other, each durable before it leaves and
    again with its answer; arguments and result of `size` bytes. `first` counts the runs that others make in the same
    ledger; `latency` gets the seconds of each wait for a commit.
    """
    texts = words(size)

    async def one(ledger: Ledger, writer: StreamWriter, start: int, count: int) -> None:
        clock = asyncio.get_running_loop().time
        for number in range(start, start + count):
            site = f"0/main/search#{number}"
            intent, call = dispatch(writer, ledger.ids.new, number, texts[number % len(texts)], site)
            asked = clock()
            await writer.barrier()
            between = clock()
            answer(writer, intent, call, texts[-1 - number % len(texts)], site)
            answered = clock()
            await writer.barrier()
            if latency is not None:
                latency.extend((between - asked, clock() - answered))

    async def all_of_them(ledger: Ledger, writers: Sequence[StreamWriter], start: int, count: int) -> None:
        each = (one(ledger, writer, (first + place) * _OWN + start, count) for place, writer in enumerate(writers))
        await asyncio.gather(*each)

    async def work(ledger: Ledger, measured: Measured) -> None:
        writers = [await begin(ledger.scope(), f"run {first + place}") for place in range(runs)]
        await all_of_them(ledger, writers, 0, warm)
        with measured():
            if latency is not None:
                latency.clear()
            await all_of_them(ledger, writers, warm, calls)
        for writer in writers:
            await writer.close()

    return work


def pure_steps(count: int, size: int, at_once: int = AT_ONCE) -> Work:
    """Steps of `size` bytes, one after the other, `at_once` to a commit and the last one's awaited."""
    texts = words(size)

    async def work(ledger: Ledger, measured: Measured) -> None:
        writer = await begin(ledger.scope(), "k")
        await writer.barrier()
        with measured():
            for number in range(count):
                step(writer, ledger.ids.new("st"), texts[number % len(texts)], f"0/main/score#{number}")
                if number % at_once == at_once - 1:
                    await writer.barrier()
            await writer.barrier()
        await writer.close()

    return work


async def through_writer(path: Path, work: Work) -> Sample:
    """Does a work on a ledger, new or there already; what its part that counts took."""
    taken = Sample()

    @contextmanager
    def measured() -> Iterator[Sample]:
        nonlocal taken
        with timed() as taken:
            yield taken

    async with await open_ledger(path) as ledger:
        await work(ledger, measured)
    return taken
