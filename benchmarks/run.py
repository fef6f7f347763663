"""`make bench`: measures every row, prints a table, and keeps the raw samples in benchmarks/results/."""

from __future__ import annotations

import argparse
import datetime
import os
import platform
import shutil
import sys
import tempfile
import time
from importlib import import_module
from pathlib import Path

import apsw
import msgspec

from benchmarks.report import Machine, Report, as_markdown
from benchmarks.workload import FULL, QUICK

GROUPS = (
    "append",
    "load",
    "bulk",
    "room",
    "importing",
    "package",
    "runtime",
    "runtime_steps",
    "runtime_many",
    "runtime_resume",
)
"""Modules, each with a function `measure(folder, sizes) -> list[Row]`. Imported when their turn comes:
worker processes import this one.
"""
RESULTS = Path(__file__).parent / "results"


def main() -> int:
    parser = argparse.ArgumentParser(prog="benchmarks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="tiny sizes: shows that the scripts run, measures nothing")
    parser.add_argument("--only", nargs="+", choices=GROUPS, default=list(GROUPS), help="groups to run")
    parser.add_argument("--bulk", type=int, help="events instead of 1,000,000")
    parser.add_argument("--work", type=Path, help="folder for the measured files (default: a temporary one)")
    parser.add_argument("--out", type=Path, help="folder for the results (default: benchmarks/results)")
    chosen = parser.parse_args()
    sizes = QUICK if chosen.quick else FULL
    if chosen.bulk:
        sizes = msgspec.structs.replace(sizes, bulk=chosen.bulk)
    out = chosen.out or RESULTS
    out.mkdir(parents=True, exist_ok=True)
    report = Report(machine(), [])
    for name in chosen.only:
        # A folder a group: room is given back, and no group finds the files of another in the cache.
        folder = Path(tempfile.mkdtemp(prefix=f"refold-bench-{name}-", dir=chosen.work))
        started = time.perf_counter()
        try:
            report.rows += import_module(f"benchmarks.{name}").measure(folder, sizes)
        finally:
            shutil.rmtree(folder)
        print(f"{name}: {time.perf_counter() - started:.0f} s", file=sys.stderr)
    report.machine.load_after = os.getloadavg()
    stem = out / datetime.datetime.now(datetime.UTC).date().isoformat()
    text = as_markdown(report)
    stem.with_suffix(".json").write_bytes(msgspec.json.format(msgspec.json.encode(report), indent=1) + b"\n")
    stem.with_suffix(".md").write_text(text, encoding="utf-8")
    print(text)
    return 0


def machine() -> Machine:
    """What the numbers depend on besides the code."""
    return Machine(
        datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        platform.python_version(),
        apsw.sqlite_lib_version(),
        platform.system(),
        platform.machine(),
        os.cpu_count() or 0,
        os.getloadavg(),
    )


if __name__ == "__main__":
    sys.exit(main())
