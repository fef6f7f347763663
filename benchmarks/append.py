"""Append in batches of 1,000 with projections."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import apsw

from benchmarks import peer
from benchmarks.harness import Bar, Row, Sample, cpu, interleave, timed, times, wall
from benchmarks.workload import WORKFLOW, Sizes, begin, steps, words
from refold.ids import SystemIds
from refold.ledger.ledger import open_ledger
from refold.ledger.sqlite.connection import connect


def measure(folder: Path, sizes: Sizes) -> list[Row]:
    """The row of spec 9, for 1 KB and for 200 bytes a step."""
    return [_append(folder, sizes, size) for size in (1000, 200)]


def _append(folder: Path, sizes: Sizes, size: int) -> Row:
    payloads = words(size)
    ids = [SystemIds().new("st") for _ in range(sizes.append)]
    events, rows = _recorded(folder / f"recorded-{size}.db", ids, payloads, sizes.batch)
    passes = iter(range(1_000_000))

    def fresh(kind: str) -> Path:
        place = folder / f"append-{size}-{kind}-{next(passes)}"
        place.mkdir()
        return place / "ledger.db"

    samples = interleave(
        sizes.rounds,
        {
            "refold": lambda: asyncio.run(_refold(fresh("refold"), ids, payloads, sizes.batch)),
            "floor": lambda: asyncio.run(_floor(fresh("floor"), events, rows, sizes.batch)),
            "eventsourcing": lambda: _peer(fresh("peer"), ids, payloads, sizes.batch),
        },
    )
    rate = sizes.append / wall(samples["refold"])
    limit = 25_000 if size == 1000 else None
    return Row(
        f"append {size} B",
        f"append {sizes.append:,} steps of {size} B in batches of {sizes.batch:,}, projections included",
        [
            Bar("events/s", rate, "/s", ">=" if limit else None, limit),
            Bar("events/s of CPU time", sizes.append / cpu(samples["refold"]), "/s"),
            *times(samples, "floor"),
            *times(samples, "eventsourcing"),
        ],
        samples,
        {
            "events/s floor": sizes.append / wall(samples["floor"]),
            "events/s eventsourcing": sizes.append / wall(samples["eventsourcing"]),
        },
        floor="the same stored bytes into the same two tables, in as many commits with synchronous=FULL: "
        "no encoding, scan, compression or hash",
        peer="eventsourcing writes the payload as JSON: no projection, no compression, no scan for secrets, no chain",
    )


def _recorded(path: Path, ids: Sequence[str], payloads: Sequence[str], batch: int) -> tuple[list[Any], list[Any]]:
    """What refold stores for this work, byte for byte."""
    asyncio.run(_refold(path, ids, payloads, batch))
    connection = apsw.Connection(str(path))
    plain = [name for _, name, *_ in connection.execute("PRAGMA table_info(events)")]
    events = list(
        connection.execute(f"SELECT {', '.join(plain)} FROM events WHERE type = 'step.completed' ORDER BY id")
    )
    rows = list(connection.execute("SELECT * FROM run_steps ORDER BY seq"))
    connection.close()
    return events, rows


async def _refold(path: Path, ids: Sequence[str], payloads: Sequence[str], batch: int) -> Sample:
    async with await open_ledger(path) as ledger:
        writer = await begin(ledger.scope(), "k")
        await writer.barrier()
        with timed() as sample:
            await steps(writer, ids, payloads, batch)
        await writer.close()
    return sample


async def _floor(path: Path, events: Sequence[Any], rows: Sequence[Any], batch: int) -> Sample:
    async with await open_ledger(path) as ledger:
        await (await begin(ledger.scope(), "k")).close()
    connection = connect(path, write=True)
    connection.execute("PRAGMA foreign_keys = OFF")
    event = f"INSERT INTO events VALUES ({', '.join('?' * len(events[0]))})"
    row = f"INSERT INTO run_steps VALUES ({', '.join('?' * len(rows[0]))})"
    with timed() as sample:
        for start in range(0, len(events), batch):
            connection.execute("BEGIN IMMEDIATE")
            connection.executemany(event, events[start : start + batch])
            connection.executemany(row, rows[start : start + batch])
            connection.execute("UPDATE stream_heads SET seq = ?", (start + batch,))
            connection.execute("COMMIT")
    connection.close()
    return sample


def _peer(path: Path, ids: Sequence[str], payloads: Sequence[str], batch: int) -> Sample:
    app = peer.open_runs(path)
    run = peer.Run(WORKFLOW)
    app.save(run)
    with timed() as sample:
        peer.append(app, run, ids, payloads, batch)
    app.close()
    return sample
