"""Loading a run: all of it into its projections, and its open state from snapshot and tail."""

from __future__ import annotations

import asyncio
from pathlib import Path
from uuid import UUID

from benchmarks import floors, peer
from benchmarks.harness import Bar, Row, Sample, cpu, interleave, timed, times, wall
from benchmarks.workload import WORKFLOW, Sizes, begin, fill, steps, tool_call, words
from refold.events.identity import Scope, Stream
from refold.ids import SystemIds
from refold.ledger.ledger import open_ledger
from refold.ledger.writer import SNAPSHOT_EVERY
from refold.projections import fold, new_state

_PAGE = 500
_OPEN_CALLS = 50


def measure(folder: Path, sizes: Sizes) -> list[Row]:
    """The two rows of spec 9."""
    return [_whole(folder, sizes, 500, 25), _whole(folder, sizes, 1000, 35), _open(folder, sizes)]


def _whole(folder: Path, sizes: Sizes, size: int, limit: float) -> Row:
    path, other = folder / f"load-{size}.db", folder / f"load-{size}-peer.db"
    payloads = words(size)
    run_id = asyncio.run(fill(path, sizes.load, 1, payloads))[0]
    aggregate = _peer_run(other, sizes.load, payloads)
    samples = interleave(
        sizes.rounds,
        {
            "refold": lambda: asyncio.run(_fold(path, run_id)),
            "floor": lambda: _plain(path),
            "eventsourcing": lambda: _peer_load(other, aggregate),
        },
    )
    return Row(
        f"load {size} B",
        f"load a run of {sizes.load:,} steps of {size} B into its projections, in memory",
        [
            Bar("wall", 1000 * wall(samples["refold"]), "ms", "<=", limit),
            Bar("CPU", 1000 * cpu(samples["refold"]), "ms"),
            *times(samples, "floor"),
            *times(samples, "eventsourcing"),
        ],
        samples,
        {
            "ms floor": 1000 * wall(samples["floor"]),
            "ms eventsourcing": 1000 * wall(samples["eventsourcing"]),
        },
        floor="read the same columns, decode facts and views with msgspec, one row struct a step",
        peer="eventsourcing loads the aggregate of as many events, without a snapshot",
    )


async def _fold(path: Path, run_id: str) -> Sample:
    async with await open_ledger(path, create=False) as ledger:
        scope = ledger.scope()
        stream = Stream.run(run_id)
        async with scope.reader() as reader:
            await reader.head(stream)
            with timed() as sample:
                state = new_state(scope.scope, stream)
                while page := await reader.folding(stream, state.open.seq, limit=_PAGE):
                    fold(state, page)
                rows = state.take()
        assert rows
    return sample


def _plain(path: Path) -> Sample:
    connection = floors.open_plain(path)
    connection.execute("SELECT count(*) FROM stream_heads").fetchall()
    with timed() as sample:
        rows = list(floors.fold(connection))
    assert rows
    connection.close()
    return sample


def _peer_run(path: Path, events: int, payloads: list[str], batch: int = 1000) -> UUID:
    app = peer.open_runs(path)
    run = peer.Run(WORKFLOW)
    ids = SystemIds()
    peer.append(app, run, [ids.new("st") for _ in range(events)], payloads, batch)
    app.close()
    found: UUID = run.id
    return found


def _peer_load(path: Path, aggregate: UUID) -> Sample:
    app = peer.open_runs(path)
    with timed() as sample:
        app.repository.get(aggregate)
    app.close()
    return sample


def _open(folder: Path, sizes: Sizes) -> Row:
    path, other = folder / "open.db", folder / "open-peer.db"
    payloads = words(1000)
    run_id, tail = asyncio.run(_with_longest_tail(path, sizes, payloads))
    aggregate = _peer_run(other, sizes.open, payloads)
    app = peer.open_runs(other)
    app.take_snapshot(aggregate)
    app.close()
    samples = interleave(
        sizes.rounds,
        {
            "refold": lambda: asyncio.run(_load(path, run_id)),
            "eventsourcing": lambda: _peer_load(other, aggregate),
        },
    )
    return Row(
        "open state",
        f"open the state of a run of {sizes.open:,} events from snapshot and tail, {_OPEN_CALLS} calls unanswered",
        [
            Bar("wall", 1000 * wall(samples["refold"]), "ms", "<=", 10),
            Bar("CPU", 1000 * cpu(samples["refold"]), "ms"),
            *times(samples, "eventsourcing"),
        ],
        samples,
        {"events in the tail": tail, "ms eventsourcing": 1000 * wall(samples["eventsourcing"])},
        peer="eventsourcing loads from a snapshot taken at the last event, so without a tail",
        notes=[f"The tail is the longest there can be; snapshots are {SNAPSHOT_EVERY} events apart."],
    )


async def _with_longest_tail(path: Path, sizes: Sizes, payloads: list[str]) -> tuple[str, int]:
    async with await open_ledger(path) as ledger:
        writer = await begin(ledger.scope(), "k")
        for number in range(_OPEN_CALLS):
            tool_call(writer, ledger.ids.new, number, "{}", None)
        await writer.barrier()
        tail = min(SNAPSHOT_EVERY - 2, sizes.open // 2)
        await steps(writer, [ledger.ids.new("st") for _ in range(sizes.open - tail)], payloads, SNAPSHOT_EVERY)
        async with ledger.scope().reader() as reader:
            found = await reader.snapshots(writer.stream)
        at = found[0].seq if found else 0
        missing = min(at + SNAPSHOT_EVERY - 1, sizes.open) - writer.head.seq
        await steps(writer, [ledger.ids.new("st") for _ in range(missing)], payloads, SNAPSHOT_EVERY)
        await writer.close()
        return writer.stream.run_id, writer.head.seq - at


async def _load(path: Path, run_id: str) -> Sample:
    async with await open_ledger(path, create=False) as ledger:
        with timed() as sample:
            state = await ledger.store.load(Scope(), Stream.run(run_id))
        assert len(state.open.calls) == _OPEN_CALLS
    return sample
