"""What an unsafe tool costs: back to back, and beside a thread that computes.

Sides: `floor`, the same commits with nothing but apsw; `writer`, refold's ledger fed with the same events and no code
run; `refold`, a workflow through the runtime; and the peers. Bars are held against `refold` alone.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks import peers
from benchmarks.harness import Bar, Row, Sample, Side, fresh_places, interleave, times, wall
from benchmarks.peers import DBOS, LANGGRAPH, Peer
from benchmarks.recording import Recording, Work, made_again, record
from benchmarks.runtime_app import AppWork, call_runs, through_app
from benchmarks.runtime_work import ARGUMENTS, RESULT, through_writer, tool_calls
from benchmarks.workload import Sizes

FLOOR = (
    "the same stored bytes in as many commits with synchronous=FULL, by apsw, every value ready beforehand; of a row "
    "that is there, only the columns that change. Without tables: heads and events alone"
)
_LOW_SWITCH = 1e-4
"""Seconds after which a thread that computes lets another go on; Python's own is fifty times as long."""


def measure(folder: Path, sizes: Sizes) -> list[Row]:
    """One row of spec 9, in two."""
    return [_tool(folder, sizes), _tool_beside(folder, sizes)]


def _tool(folder: Path, sizes: Sizes) -> Row:
    runtime = sizes.runtime
    work, in_app = tool_calls(1, runtime.warm, runtime.calls), call_runs(1, runtime.warm, runtime.calls)
    fresh = fresh_places(folder / "tool")
    recording = recorded(fresh, work)
    step = (runtime.peer_calls, RESULT)
    wanted = {
        "DBOS": Peer(DBOS, "calls", step),
        "DBOS in WAL mode": Peer(DBOS, "calls-wal", step),
        "LangGraph, nodes": Peer(LANGGRAPH, "nodes", step),
        "LangGraph, tasks": Peer(LANGGRAPH, "tasks", step),
    }
    samples = interleave(runtime.rounds, own_sides(fresh, work, recording, in_app) | peers.sides(wanted, fresh))
    return Row(
        "unsafe tool",
        f"unsafe tool, two commits, back to back: {ARGUMENTS} B of arguments, {RESULT} B as result",
        [
            *times(samples, "floor", 1.3),
            *times(samples, "floor", side="writer"),
            *each_takes(samples, runtime.calls, dict.fromkeys(wanted, runtime.peer_calls)),
        ],
        samples,
        {"commits a call, floor": len(recording.counted) / runtime.calls, "calls before": runtime.warm},
        floor=FLOOR,
        peer="DBOS and LangGraph write a step's outcome once, after it ran, and know nothing of one that was killed "
        "while it ran. LangGraph writes a task's outcome in the background, so the next one runs before it is durable",
        notes=peers.missing(),
    )


def _tool_beside(folder: Path, sizes: Sizes) -> Row:
    runtime = sizes.runtime
    work, in_app = tool_calls(1, 2, runtime.busy_calls), call_runs(1, 2, runtime.busy_calls)
    fresh = fresh_places(folder / "busy")
    recording = recorded(fresh, work)
    sides: dict[str, Side] = {}
    own = own_sides(fresh, work, recording, in_app)
    for name in ("floor", "writer", "refold"):
        side = own[name]
        sides[name] = _beside_a_thread(side, sys.getswitchinterval())
        sides[f"{name}, switch interval {1e6 * _LOW_SWITCH:.0f} us"] = _beside_a_thread(side, _LOW_SWITCH)
    samples = interleave(runtime.rounds, sides)
    return Row(
        "unsafe tool beside a thread",
        "the same beside one thread that computes",
        each_takes(samples, runtime.busy_calls, {}, {"refold": 5.0}),
        samples,
        {"switch interval, us": 1e6 * sys.getswitchinterval()},
        floor=f"{FLOOR}; whoever lets go of the interpreter for a commit gets it back after the switch interval",
    )


def _beside_a_thread(side: Side, interval: float) -> Side:
    def beside() -> Sample:
        usual = sys.getswitchinterval()
        sys.setswitchinterval(interval)
        try:
            with _computing():
                return side()
        finally:
            sys.setswitchinterval(usual)

    return beside


@contextmanager
def _computing() -> Iterator[None]:
    over = threading.Event()

    def compute() -> None:
        while not over.is_set():
            sum(number * number for number in range(10_000))

    thread = threading.Thread(target=compute)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def own_sides(fresh: Callable[[str], Path], work: Work, recording: Recording, in_app: AppWork) -> dict[str, Side]:
    """The floor of a work, with and without the tables that are folds; the ledger's writer alone; and an App."""
    bare = recording.without_tables()
    return {
        "floor": lambda: made_again(fresh("floor") / "ledger.db", recording),
        "floor without tables": lambda: made_again(fresh("bare") / "ledger.db", bare),
        "writer": lambda: asyncio.run(through_writer(fresh("writer") / "ledger.db", work)),
        "refold": lambda: asyncio.run(through_app(fresh("refold") / "ledger.db", in_app)),
    }


def recorded(fresh: Callable[[str], Path], work: Work) -> Recording:
    """A work's commits."""
    return asyncio.run(record(fresh("recorded") / "ledger.db", work))


def each_takes(
    samples: dict[str, list[Sample]], count: int, others: dict[str, int], limits: dict[str, float] | None = None
) -> list[Bar]:
    """Milliseconds an operation on each side; `others` says where a side did another number than `count`."""
    bars = []
    for name, taken in samples.items():
        limit = (limits or {}).get(name)
        value = 1000 * wall(taken) / others.get(name, count)
        bars.append(Bar(f"each, {name}", value, "ms", "<=" if limit else None, limit))
    return bars
