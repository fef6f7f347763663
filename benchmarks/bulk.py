"""A million events: folded in memory, folded into a scratch copy, proved."""

from __future__ import annotations

import asyncio
import importlib
from pathlib import Path

import apsw

from benchmarks import floors
from benchmarks.harness import Bar, Row, Sample, Side, cpu, interleave, timed, times, wall
from benchmarks.workload import Sizes, fill, words
from refold.events.identity import Scope
from refold.ledger.ledger import open_ledger
from refold.ledger.proof import verify_all
from refold.projections import ROWS, fold, new_state

PAYLOAD = 100
_PAGE = 500


def measure(folder: Path, sizes: Sizes) -> list[Row]:
    """The three rows of spec 9, on one file."""
    path = folder / "bulk.db"
    asyncio.run(fill(path, sizes.bulk, sizes.streams, words(PAYLOAD)))
    rows = [_fold(path, sizes), _refold_into(path, folder, sizes), _verify(path, sizes)]
    for row in rows:
        row.facts["file MB"] = path.stat().st_size / 1e6
        row.facts["events"] = sizes.bulk
    return rows


def _fold(path: Path, sizes: Sizes) -> Row:
    samples = interleave(
        sizes.bulk_rounds,
        {"refold": lambda: asyncio.run(_all_streams(path)), "floor": lambda: _plain_fold(path)},
    )
    return Row(
        "projection-only",
        f"read, decode and fold {sizes.bulk:,} steps of {PAYLOAD} B in {sizes.streams} runs, in memory",
        [
            Bar("wall", wall(samples["refold"]), "s", "<=", 2.0 * sizes.bulk / 1e6),
            *times(samples, "floor", 1.2),
            Bar("CPU", cpu(samples["refold"]), "s"),
        ],
        samples,
        {"s floor": wall(samples["floor"])},
        floor="read the same columns, decode facts and views with msgspec, make one row struct a step",
        notes=["Rows are made and let go, page by page, as a comparison with the stored ones would."],
    )


async def _all_streams(path: Path) -> Sample:
    count = 0
    async with await open_ledger(path, create=False) as ledger, ledger.scope().reader() as reader:
        with timed() as sample:
            for head in await reader.heads(limit=1_000_000):
                state = new_state(Scope(), head.stream)
                while page := await reader.folding(head.stream, state.open.seq, limit=_PAGE):
                    fold(state, page)
                    count += len(state.take())
    assert count
    return sample


def _plain_fold(path: Path) -> Sample:
    connection = floors.open_plain(path)
    with timed() as sample:
        count = sum(1 for _ in floors.fold(connection))
    assert count
    connection.close()
    return sample


def _refold_into(path: Path, folder: Path, sizes: Sizes) -> Row:
    name, work = (
        "projection-only, written",
        f"the same {sizes.bulk:,} events, their rows written into a scratch copy",
    )
    try:
        refolding = importlib.import_module("refold.ledger.sqlite.refolding")
    except ImportError:
        return Row(name, work, skipped="refold.ledger.sqlite.refolding is not there yet")
    names = {row: row.TABLE.name for row in ROWS}
    scratch = folder / "scratch.db"

    def side() -> Sample:
        scratch.unlink(missing_ok=True)
        read, write = floors.open_plain(path), apsw.Connection(str(scratch))
        # Nobody needs a scratch copy after a crash.
        write.execute("PRAGMA page_size = 8192; PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF").fetchall()
        with timed() as sample:
            read.execute("BEGIN")
            write.execute("BEGIN")
            count = refolding.refold_into(read, write, names)
            write.execute("COMMIT")
        assert count == sizes.bulk
        read.close()
        write.close()
        return sample

    samples = interleave(sizes.bulk_rounds, {"refold": side, "floor": lambda: _plain_rows(path, scratch)})
    return Row(
        name,
        work,
        [
            Bar("wall", wall(samples["refold"]), "s", "<=", 5.0 * sizes.bulk / 1e6),
            Bar("CPU", cpu(samples["refold"]), "s"),
            *times(samples, "floor"),
        ],
        samples,
        {"s floor": wall(samples["floor"]), "scratch MB": scratch.stat().st_size / 1e6},
        floor="the fold's floor, and its rows by executemany into the same table without indexes or keys",
    )


def _plain_rows(path: Path, scratch: Path) -> Sample:
    scratch.unlink(missing_ok=True)
    read, write = floors.open_plain(path), apsw.Connection(str(scratch))
    write.execute("PRAGMA page_size = 8192; PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF").fetchall()
    with timed() as sample:
        floors.write_steps(read, write)
    read.close()
    write.close()
    return sample


def _verify(path: Path, sizes: Sizes) -> Row:
    sides: dict[str, Side] = {
        "refold": lambda: asyncio.run(_prove(path, 1)),
        "floor": lambda: _plain_verify(path),
        "two processes": lambda: asyncio.run(_prove(path, 2)),
    }
    samples = interleave(sizes.bulk_rounds, sides)
    return Row(
        "verify",
        f"verify {sizes.bulk:,} steps of {PAYLOAD} B in {sizes.streams} runs",
        [
            *times(samples, "floor", 1.3),
            Bar("wall", wall(samples["refold"]), "s"),
            Bar("CPU", cpu(samples["refold"]), "s"),
            Bar("wall on two processes", wall(samples["two processes"]), "s", "<=", 1.7 * sizes.bulk / 1e6),
        ],
        samples,
        {"s floor": wall(samples["floor"])},
        floor="read the same columns, SHA-256 of content, of view, and of as many bytes as header and facts have; "
        "SQLite's own check of the three tables",
    )


async def _prove(path: Path, workers: int) -> Sample:
    async with await open_ledger(path, create=False) as ledger:
        with timed() as sample:
            proof = await verify_all(ledger, workers=workers)
    assert proof.ok
    return sample


def _plain_verify(path: Path) -> Sample:
    connection = floors.open_plain(path)
    with timed() as sample:
        floors.verify(connection)
    connection.close()
    return sample
