"""The benchmarks' scripts do not rot. What they measure is printed for people, never asserted."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_every_group_runs_on_tiny_sizes_and_keeps_raw_samples(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.run", "--quick", "--out", str(tmp_path), "--work", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(next(tmp_path.glob("*.json")).read_bytes())
    rows = {row["name"]: row for row in report["rows"]}
    assert {"append 1000 B", "load 500 B", "open state", "projection-only", "verify", "import"} <= set(rows)
    assert {"unsafe tool", "pure steps", "16 runs", "four processes", "resume 100 B"} <= set(rows)
    assert {"floor", "writer"} <= set(rows["unsafe tool"]["samples"])
    assert set(rows["append 1000 B"]["samples"]) == {"refold", "floor", "eventsourcing"}
    assert all(row["bars"] or row["skipped"] for row in rows.values())
    assert next(tmp_path.glob("*.md")).read_text(encoding="utf-8") in done.stdout
