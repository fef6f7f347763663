"""What a pure step costs: in a row, and many started together."""

from __future__ import annotations

import asyncio
from pathlib import Path
from statistics import median

from benchmarks import peers
from benchmarks.harness import Bar, Row, fresh_places, interleave
from benchmarks.peers import DBOS, LANGGRAPH, Peer
from benchmarks.runtime import FLOOR, each_takes, own_sides, recorded
from benchmarks.runtime_app import longest_stall, step_run, wide_run
from benchmarks.runtime_work import AT_ONCE, STEP, pure_steps
from benchmarks.workload import Sizes


def measure(folder: Path, sizes: Sizes) -> list[Row]:
    """Two rows of spec 9."""
    return [_steps(folder, sizes), _wide(folder, sizes)]


def _steps(folder: Path, sizes: Sizes) -> Row:
    runtime = sizes.runtime
    work, in_app = pure_steps(runtime.steps, STEP), step_run(runtime.steps, STEP)
    fresh = fresh_places(folder / "steps")
    recording = recorded(fresh, work)
    wanted = {
        "DBOS": Peer(DBOS, "calls", (runtime.peer_steps, STEP)),
        "LangGraph, nodes": Peer(LANGGRAPH, "nodes", (runtime.peer_steps, STEP)),
        "LangGraph, tasks": Peer(LANGGRAPH, "tasks", (runtime.peer_steps, STEP)),
    }
    samples = interleave(runtime.rounds, own_sides(fresh, work, recording, in_app) | peers.sides(wanted, fresh))
    stalls = [1000 * asyncio.run(longest_stall(fresh("stall") / "ledger.db", in_app)) for _ in range(runtime.rounds)]
    return Row(
        "pure steps",
        f"{runtime.steps:,} pure steps of {STEP:,} B one after the other, the last one's commit included",
        [
            *each_takes(samples, runtime.steps, dict.fromkeys(wanted, runtime.peer_steps), {"refold": 0.03}),
            Bar("longest stall of the loop, refold", median(stalls), "ms", "<=", 10.0),
        ],
        samples,
        {
            "commits, floor": len(recording.counted),
            "steps of peers": runtime.peer_steps,
            "longest stalls of each pass, ms": stalls,
        },
        floor=f"{FLOOR}; at most {AT_ONCE} steps to a commit",
        peer="DBOS and LangGraph, nodes: each step is durable before the next",
        notes=peers.missing(),
    )


def _wide(folder: Path, sizes: Sizes) -> Row:
    runtime = sizes.runtime
    work, in_app = pure_steps(runtime.wide, STEP, runtime.wide), wide_run(runtime.wide, STEP)
    fresh = fresh_places(folder / "wide")
    recording = recorded(fresh, work)
    wanted = {
        "DBOS": Peer(DBOS, "wide", (runtime.wide, STEP)),
        "LangGraph, tasks": Peer(LANGGRAPH, "wide", (runtime.wide, STEP)),
    }
    samples = interleave(runtime.rounds, own_sides(fresh, work, recording, in_app) | peers.sides(wanted, fresh))
    return Row(
        "pure steps, wide",
        f"{runtime.wide:,} pure steps of {STEP:,} B started together",
        each_takes(samples, runtime.wide, {}, {"refold": 0.05}),
        samples,
        {"commits, floor": len(recording.counted)},
        floor=f"{FLOOR}; all of them in one commit",
        peer="DBOS: `gather` of asynchronous steps. LangGraph: tasks whose futures are awaited after all have started",
        notes=peers.missing(),
    )
