"""Durable effects of many runs at once: in one process, where they share commits, and in four that take turns."""

from __future__ import annotations

import asyncio
import gc
import multiprocessing
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from threading import BrokenBarrierError
from typing import Any

import msgspec

from benchmarks.harness import Bar, Row, Sample, cpu, fresh_places, interleave, wall
from benchmarks.recording import Recording, Work, commit, new_ledger, open_raw, record
from benchmarks.runtime import FLOOR, own_sides, recorded
from benchmarks.runtime_app import app, call_runs
from benchmarks.runtime_work import tool_calls
from benchmarks.workload import Sizes
from refold.ledger.ledger import open_ledger
from refold.ledger.port import Outcome, StreamBatch
from refold.ledger.sqlite.lockfile import open_lock_file

PROCESSES, RUNS_EACH = 4, 4
_PATIENCE = 120.0
"""Seconds after which a process that never came is given up."""


class Share(msgspec.Struct):
    """What one of several processes measured: when it began and ended by the clock that all share, its CPU time, and
    the longest that one of its commits took, waiting for its turn included.
    """

    began: float = 0.0
    ended: float = 0.0
    cpu: float = 0.0
    longest: float = 0.0


def measure(folder: Path, sizes: Sizes) -> list[Row]:
    """One row of spec 9, in three."""
    return [_one_process(folder, sizes, 16, 18_000), _one_process(folder, sizes, 64, 30_000), _processes(folder, sizes)]


def _one_process(folder: Path, sizes: Sizes, runs: int, limit: float) -> Row:
    runtime = sizes.runtime
    latency: list[float] = []
    work = tool_calls(runs, runtime.warm // runs + 1, runtime.many_calls // runs, latency=latency)
    in_app = call_runs(runs, runtime.warm // runs + 1, runtime.many_calls // runs)
    fresh = fresh_places(folder / f"runs-{runs}")
    recording = recorded(fresh, work)
    samples = interleave(runtime.rounds, own_sides(fresh, work, recording, in_app))
    return Row(
        f"{runs} runs",
        f"{runs} runs of unsafe tools at once, {recording.events:,} events",
        rates(samples, recording.events, limit),
        samples,
        {
            "events a commit, floor": recording.events / len(recording.counted),
            "p99 ms of a wait for a commit, writer": 1000 * sorted(latency)[len(latency) * 99 // 100],
        },
        floor=f"{FLOOR}; commits are shared as refold's writer shares them",
    )


def _processes(folder: Path, sizes: Sizes) -> Row:
    runtime = sizes.runtime
    calls = runtime.many_calls // (PROCESSES * RUNS_EACH)
    fresh = fresh_places(folder / "processes")
    events = 2 * calls * PROCESSES * RUNS_EACH
    longest: dict[str, list[float]] = {"floor": [], "writer": [], "refold": []}
    _record_shares(folder, runtime.warm // PROCESSES, calls)
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(PROCESSES)
    with ProcessPoolExecutor(PROCESSES, context, initializer=_meet_at, initargs=(barrier,)) as pool:

        def together(name: str, share: Callable[..., Share], *arguments: Any) -> Sample:
            path = fresh(name) / "ledger.db"
            asyncio.run(new_ledger(path))
            asked = [pool.submit(share, path, place, *arguments) for place in range(PROCESSES)]
            shares = [each.result() for each in asked]
            longest[name].append(1000 * max(each.longest for each in shares))
            began, ended = min(each.began for each in shares), max(each.ended for each in shares)
            return Sample(ended - began, sum(each.cpu for each in shares))

        samples = interleave(
            runtime.rounds,
            {
                "floor": lambda: together("floor", _raw_share, folder),
                "writer": lambda: together("writer", _writer_share, runtime.warm // PROCESSES, calls),
                "refold": lambda: together("refold", _app_share, runtime.warm // PROCESSES, calls),
            },
        )
    return Row(
        "four processes",
        f"{PROCESSES} processes of {RUNS_EACH} runs of unsafe tools on one ledger, {events:,} events",
        [
            *rates(samples, events, 7_000),
            *(
                Bar(f"longest wait for a commit, {name}", max(waits), "ms", *_HELD.get(name, ()))
                for name, waits in longest.items()
            ),
        ],
        samples,
        {f"longest waits of each pass, ms, {name}": waits for name, waits in longest.items()},
        floor=f"{FLOOR}; a process's runs share commits, and processes take turns at two locks, as refold's do",
    )


_HELD: dict[str, Any] = {"refold": ("<=", 100.0)}


def rates(samples: dict[str, list[Sample]], events: int, limit: float) -> list[Bar]:
    """Events a second on each side, by the clock and by CPU time; the limit is for a workflow through the runtime."""
    bars = []
    for name, taken in samples.items():
        held = name == "refold"
        bars.append(
            Bar(f"events/s, {name}", events / wall(taken), "/s", ">=" if held else None, limit if held else None)
        )
        bars.append(Bar(f"events/s of CPU time, {name}", events / cpu(taken), "/s"))
    return bars


# What runs in the processes.

_barrier: Any = None


def _meet_at(barrier: Any) -> None:
    global _barrier
    _barrier = barrier


def _meet() -> None:
    """Returns when all are here, so that what each measures overlaps with the others."""
    try:
        _barrier.wait(_PATIENCE)
    except BrokenBarrierError as error:
        raise RuntimeError("another process of the benchmark did not come") from error


@contextmanager
def _measured_together(share: Share) -> Iterator[Sample]:
    gc.collect()
    _meet()
    share.began, cpu = time.perf_counter(), time.process_time()
    yield Sample()
    share.ended, share.cpu = time.perf_counter(), time.process_time() - cpu


def _raw_share(path: Path, place: int, recorded_in: Path) -> Share:
    recording = msgspec.msgpack.decode((recorded_in / f"share-{place}").read_bytes(), type=Recording)
    connection, lock, share = open_raw(path), open_lock_file(str(path)), Share()
    for each in recording.before:
        with lock.turn():
            commit(connection, each)
    with _measured_together(share):
        for each in recording.counted:
            asked = time.perf_counter()
            with lock.turn():
                commit(connection, each)
            share.longest = max(share.longest, time.perf_counter() - asked)
    connection.close()
    lock.close()
    return share


def _writer_share(path: Path, place: int, warm: int, calls: int) -> Share:
    latency: list[float] = []
    share = Share()

    async def work() -> None:
        async with await open_ledger(path, create=False) as ledger:
            await _share_of(place, warm, calls, latency)(ledger, lambda: _measured_together(share))

    asyncio.run(work())
    share.longest = max(latency)
    return share


def _app_share(path: Path, place: int, warm: int, calls: int) -> Share:
    share = Share()

    async def work() -> None:
        async with app.open(str(path), recover=False) as rf:
            commit = rf.ledger.store.commit

            async def timed_commit(batches: Sequence[StreamBatch]) -> list[Outcome]:
                asked = time.perf_counter()
                outcomes = await commit(batches)
                share.longest = max(share.longest, time.perf_counter() - asked)
                return outcomes

            rf.ledger.store.commit = timed_commit  # type: ignore[method-assign]
            await call_runs(RUNS_EACH, warm, calls, first=place * RUNS_EACH)(rf, lambda: _measured_together(share))

    asyncio.run(work())
    return share


def _share_of(place: int, warm: int, calls: int, latency: list[float] | None = None) -> Work:
    return tool_calls(RUNS_EACH, warm, calls, first=place * RUNS_EACH, latency=latency)


def _record_shares(folder: Path, warm: int, calls: int) -> None:
    """Each process's commits in a file of its own; all in one ledger, so that no two have the same stream."""
    for place in range(PROCESSES):
        recording = asyncio.run(record(folder / "recorded.db", _share_of(place, warm, calls)))
        (folder / f"share-{place}").write_bytes(msgspec.msgpack.encode(recording))
