"""Importing a real session of a coding agent, from beside the project: it is not ours to copy."""

from __future__ import annotations

import asyncio
import importlib
import os
from pathlib import Path
from typing import Any

import apsw
import msgspec

from benchmarks.harness import Bar, Row, Sample, cpu, interleave, timed, times, wall
from benchmarks.workload import Sizes
from refold.ledger.ledger import open_ledger

_SESSION = "data/pi-sessions/before-compaction.jsonl"


def measure(folder: Path, sizes: Sizes) -> list[Row]:
    """The row of spec 9."""
    name, work = "import of a session", f"import {_SESSION} into a new ledger"
    root = Path(os.environ.get("REFOLD_SHARED") or Path(__file__).parents[2] / "shared")
    source = root / _SESSION
    if not source.exists():
        return [Row(name, work, skipped=f"{_SESSION} is neither under REFOLD_SHARED nor ../shared")]
    importers = importlib.import_module("refold.interop.importers")
    if not hasattr(importers, "import_paths"):
        return [Row(name, work, skipped="refold.interop.importers is not there yet")]
    passes = iter(range(1_000_000))
    samples = interleave(
        sizes.rounds,
        {
            "refold": lambda: asyncio.run(_import(importers, source, folder / f"import-{next(passes)}.db")),
            "floor": lambda: _plain(source, folder / f"plain-{next(passes)}.db"),
        },
    )
    size = source.stat().st_size / 1e6
    return [
        Row(
            name,
            work,
            [
                Bar("MB/s", size / wall(samples["refold"]), "MB/s", ">=", 20),
                Bar("MB/s of CPU time", size / cpu(samples["refold"]), "MB/s"),
                *times(samples, "floor"),
            ],
            samples,
            {"MB": size, "MB/s floor": size / wall(samples["floor"])},
            floor="read and decode each line, and put it into one table as it is, in one commit with synchronous=FULL",
        )
    ]


async def _import(importers: Any, source: Path, path: Path) -> Sample:
    async with await open_ledger(path) as ledger:
        scope = ledger.scope()
        assert scope.secret
        with timed() as sample:
            report = await importers.import_paths(scope, "pi", [source])
    assert report.runs
    return sample


def _plain(source: Path, path: Path) -> Sample:
    connection = apsw.Connection(str(path))
    connection.execute(
        "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; CREATE TABLE lines (line BLOB)"
    ).fetchall()
    decode = msgspec.json.Decoder().decode
    with timed() as sample:
        lines = source.read_bytes().splitlines()
        for line in lines:
            decode(line)
        connection.execute("BEGIN")
        connection.executemany("INSERT INTO lines VALUES (?)", ((line,) for line in lines))
        connection.execute("COMMIT")
    connection.close()
    return sample
