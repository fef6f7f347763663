"""Room: stored bytes over content bytes, for steps, tool calls and a conversation."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path

import apsw

from benchmarks import peer
from benchmarks.harness import Bar, Row
from benchmarks.workload import PAYLOADS, WORKFLOW, Sizes, begin, conversation, size_of, steps, tool_call
from refold.events.catalog.run import RunSucceeded
from refold.ids import SystemIds
from refold.ledger.drafts import Draft
from refold.ledger.ledger import open_ledger

_NOTE = (
    "Bytes of all files after closing, less those of a ledger without runs ('empty KB'), which are paid once a file. "
    "Lists are by number of {what}: {counts}."
)


def measure(folder: Path, sizes: Sizes) -> list[Row]:
    """The two rows of spec 9, each for text that compresses and for base64, which does not."""
    empty = folder / "empty.db"
    asyncio.run(_empty(empty))
    nothing = size_of(empty)
    rows = []
    for kind, payloads in PAYLOADS.items():
        rows.append(_steps(folder, sizes, kind, payloads(1000), nothing))
        rows.append(_calls(folder, sizes, kind, payloads(500), nothing))
        rows.append(_conversation(folder, sizes, kind, payloads(760), nothing))
    return rows


async def _empty(path: Path) -> None:
    async with await open_ledger(path) as ledger:
        assert ledger.scope().secret


def _row(name: str, work: str, ratios: Sequence[float], limit: float, counts: Sequence[int], what: str) -> Row:
    return Row(
        name,
        work,
        [
            Bar("stored / content, the worst", max(ratios), "x", "<=", limit),
            Bar("largest over smallest count", ratios[-1] / ratios[0], "x"),
        ],
        facts={"stored / content": [round(each, 3) for each in ratios]},
        floor="the content itself, once: 1.0",
        notes=[_NOTE.format(what=what, counts=", ".join(f"{each:,}" for each in counts))],
    )


def _steps(folder: Path, sizes: Sizes, kind: str, payloads: Sequence[str], nothing: int) -> Row:
    ratios, others = [], []
    for count in sizes.room:
        path = folder / f"steps-{kind}-{count}.db"
        ids = [SystemIds().new("st") for _ in range(count)]
        asyncio.run(_store_steps(path, ids, payloads))
        content = sum(len(payloads[place % len(payloads)]) for place in range(count))
        ratios.append((size_of(path) - nothing) / content)
        others.append(_peer(folder / f"steps-{kind}-{count}-peer.db", ids, payloads) / content)
    row = _row(f"room, steps, {kind}", f"steps of 1,000 B of {kind}", ratios, 2, sizes.room, "steps")
    row.facts["stored / content of eventsourcing"] = [round(each, 3) for each in others]
    row.facts["empty KB"] = nothing / 1000
    row.peer = "eventsourcing stores JSON uncompressed and no projections"
    return row


async def _store_steps(path: Path, ids: Sequence[str], payloads: Sequence[str]) -> None:
    async with await open_ledger(path) as ledger, await begin(ledger.scope(), "k") as writer:
        await steps(writer, ids, payloads, 100)
        writer.append(Draft(RunSucceeded()))


def _peer(path: Path, ids: Sequence[str], payloads: Sequence[str]) -> int:
    empty = path.with_name("empty-" + path.name)
    peer.open_runs(empty).close()
    app = peer.open_runs(path)
    peer.append(app, peer.Run(WORKFLOW), ids, payloads, 100)
    app.close()
    return size_of(path) - size_of(empty)


def _calls(folder: Path, sizes: Sizes, kind: str, payloads: Sequence[str], nothing: int) -> Row:
    ratios = []
    for count in sizes.room:
        path = folder / f"calls-{kind}-{count}.db"
        asyncio.run(_store_calls(path, count, payloads))
        content = sum(2 * len(payloads[place % len(payloads)]) for place in range(count))
        ratios.append((size_of(path) - nothing) / content)
    work = f"tool calls, 500 B of {kind} as arguments and 500 B as result, two events each"
    row = _row(f"room, tool calls, {kind}", work, ratios, 3, sizes.room, "calls")
    row.facts["bytes a call, by table and index"] = _by_table(path, sizes.room[-1])
    return row


def _by_table(path: Path, calls: int) -> list[str]:
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        sums = connection.execute(
            "SELECT name, sum(pgsize) FROM dbstat GROUP BY name ORDER BY 2 DESC LIMIT 8"
        ).fetchall()
    except apsw.SQLError:
        return []  # A SQLite that was built without dbstat.
    finally:
        connection.close()
    return [f"{name} {size / calls:.0f}" for name, size in sums]


async def _store_calls(path: Path, count: int, payloads: Sequence[str]) -> None:
    async with await open_ledger(path) as ledger, await begin(ledger.scope(), "k") as writer:
        for number in range(count):
            text = payloads[number % len(payloads)]
            tool_call(writer, ledger.ids.new, number, text, text[::-1])
            if number % 50 == 49:
                await writer.barrier()
        writer.append(Draft(RunSucceeded()))


def _conversation(folder: Path, sizes: Sizes, kind: str, payloads: Sequence[str], nothing: int) -> Row:
    ratios, wholes = [], []
    for turns in sizes.turns:
        path = folder / f"conversation-{kind}-{turns}.db"
        asked = _texts(payloads, turns, lambda text, number: f"{number} {text}")
        said = _texts(payloads, turns, lambda text, number: f"{text} {number}")
        asyncio.run(_store_conversation(path, asked, said))
        sizes_ = [len(a) + len(b) for a, b in zip(asked, said, strict=True)]
        ratios.append((size_of(path) - nothing) / sum(sizes_))
        wholes.append(sum(each * (turns - place) for place, each in enumerate(sizes_)) / sum(sizes_))
    work = f"a conversation sent again each turn, messages of 760 B of {kind}, two a turn"
    row = _row(f"room, conversation, {kind}", work, ratios, 3, sizes.turns, "turns")
    row.facts["stored whole each turn"] = [round(each, 1) for each in wholes]
    return row


def _texts(payloads: Sequence[str], turns: int, each: Callable[[str, int], str]) -> list[str]:
    return [each(payloads[number % len(payloads)], number) for number in range(turns)]


async def _store_conversation(path: Path, asked: Sequence[str], said: Sequence[str]) -> None:
    async with await open_ledger(path) as ledger, await begin(ledger.scope(), "k") as writer:
        await conversation(writer, ledger.ids.new, asked, said)
        writer.append(Draft(RunSucceeded()))
