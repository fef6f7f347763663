"""The peer DBOS on its SQLite system database: `python -m benchmarks.peer_dbos WORK FOLDER COUNT [BYTES]`.

A tool call is a step, since it knows no difference: its outcome is written once, after it ran, and nothing before.
Settings are its own (rollback journal, synchronous=FULL, pickled values); `calls-wal` has the file in WAL mode
beforehand. Tracing, logs and its console stay off; what it has of threads runs as it does for everybody.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

from dbos import DBOS, SetWorkflowID

from benchmarks.harness import Sample, timed
from benchmarks.peers import report, stay_here
from benchmarks.workload import words

_RUN = "run"
_WARM = 20
"""Steps before those that count: what is imported and prepared at first use is not theirs."""
_dies = False
_taken: Sample | None = None


@DBOS.step()
def score(payload: str) -> str:
    """A step that returns what it gets."""
    return payload


@DBOS.step()
async def score_soon(payload: str) -> str:
    """The same for many at once."""
    return payload


@DBOS.workflow()
def one_by_one(count: int, size: int) -> None:
    """Steps one after the other; killed after the last when `_dies`."""
    global _taken
    payloads = words(size)
    with timed() as taken:
        for number in range(count):
            score(payloads[number % len(payloads)])
    if _dies:
        report(taken)
        os._exit(0)
    _taken = taken


@DBOS.workflow()
async def all_at_once(count: int, size: int) -> None:
    """Steps that are started together."""
    global _taken
    payloads = words(size)
    with timed() as taken:
        await asyncio.gather(*(score_soon(payloads[number % len(payloads)]) for number in range(count)))
    _taken = taken


def main() -> None:
    global _dies
    stay_here()
    work, file = sys.argv[1], Path(sys.argv[2]) / "dbos.sqlite"
    numbers = [int(each) for each in sys.argv[3:]]
    if work == "calls-wal":
        with closing(sqlite3.connect(file)) as connection:
            connection.execute("PRAGMA journal_mode = WAL")
    DBOS(
        config={
            "name": "benchmark",
            "system_database_url": f"sqlite:///{file}",
            "application_version": "1",
            "executor_id": "benchmark",
            "enable_otlp": False,
            "log_level": "ERROR",
            "console_log_level": "ERROR",
        }
    )
    DBOS.launch()
    if work in ("calls", "calls-wal"):
        one_by_one(_WARM, 1)
    elif work == "wide":
        asyncio.run(all_at_once(_WARM, 1))
    _dies = work == "record"
    with SetWorkflowID(_RUN):
        if work == "wide":
            asyncio.run(all_at_once(*numbers))
        elif work == "resume":
            # Launching has put it into the queue again.
            DBOS.retrieve_workflow(_RUN).get_result(polling_interval_sec=0.05)
        else:
            one_by_one(*numbers)
    assert _taken is not None, "the workflow was not run again"
    report(_taken)
    DBOS.destroy()


if __name__ == "__main__":
    main()
