"""The peer LangGraph with its SQLite saver: `python -m benchmarks.peer_langgraph WORK FOLDER COUNT [BYTES]`.

Settings are its own (WAL, synchronous=FULL) with `durability="sync"`. `nodes`: a graph whose one node follows itself,
one checkpoint a pass, written before the next. `tasks`, `wide`, `record`, `resume`: tasks of its functional API, whose
results it writes in the background: the next task runs before the last one's result is durable.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypedDict

from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.func import entrypoint, task
from langgraph.graph import END, START, StateGraph

from benchmarks.harness import Sample, timed
from benchmarks.peers import report, stay_here
from benchmarks.workload import words

_WARM = 20
"""Tasks before those that count: what is imported and prepared at first use is not theirs."""
_taken = Sample()


class Passes(TypedDict):
    """What the graph's node hands on: how often it ran, and its last result. A list of all would be stored whole each
    time.
    """

    number: int
    result: str


class Died(Exception):
    """The workflow fails after its last task, and can be resumed."""


@contextmanager
def _counted() -> Iterator[None]:
    global _taken
    with timed() as taken:
        yield
    _taken = taken


@task
def score(payload: str) -> str:
    """A task that returns what it gets."""
    return payload


def _thread(name: str) -> Any:
    return {"configurable": {"thread_id": name}, "recursion_limit": 1_000_000}


def nodes(saver: SqliteSaver, thread: str, count: int, size: int) -> None:
    """Passes of a graph's node, one after the other."""
    payloads = words(size)

    def node(state: Passes) -> Passes:
        return {"number": state["number"] + 1, "result": payloads[state["number"] % len(payloads)]}

    graph = StateGraph(Passes).add_node("score", node).add_edge(START, "score")
    graph.add_conditional_edges("score", lambda state: "score" if state["number"] < count else END)
    compiled = graph.compile(checkpointer=saver)
    with _counted():
        compiled.invoke({"number": 0, "result": ""}, _thread(thread), durability="sync")


def tasks(saver: SqliteSaver, thread: str, work: str, count: int, size: int) -> None:
    """Tasks one after the other, or all started at once (`wide`); `record` fails after the last, `resume` goes on."""

    @entrypoint(checkpointer=saver)
    def workflow(numbers: list[int]) -> int:
        payloads = words(numbers[1])
        wanted = (payloads[number % len(payloads)] for number in range(numbers[0]))
        if work == "resume":
            with _counted():
                return _one_by_one(wanted)
        if work == "wide":
            return sum(len(each.result()) for each in [score(payload) for payload in wanted])
        done = _one_by_one(wanted)
        if work == "record":
            raise Died
        return done

    if work == "resume":
        workflow.invoke(None, _thread(thread), durability="sync")
        return
    with _counted():
        try:
            workflow.invoke([count, size], _thread(thread), durability="sync")
        except Died:
            return


def _one_by_one(payloads: Iterator[str]) -> int:
    return sum(len(score(payload).result()) for payload in payloads)


def main() -> None:
    stay_here()
    work, file = sys.argv[1], Path(sys.argv[2]) / "langgraph.sqlite"
    count, size = map(int, sys.argv[3:])
    with SqliteSaver.from_conn_string(str(file)) as saver:
        if work == "nodes":
            nodes(saver, "warm", _WARM, 1)
            nodes(saver, "run", count, size)
        else:
            if work in ("tasks", "wide"):
                tasks(saver, "warm", work, _WARM, 1)
            tasks(saver, "run", work, count, size)
    report(_taken)


if __name__ == "__main__":
    main()
