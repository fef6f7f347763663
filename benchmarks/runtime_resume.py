"""Going on with a run that has ten thousand operations behind it: read, decoded, and handed to its code again."""

from __future__ import annotations

import asyncio
import shutil
from hashlib import sha256
from pathlib import Path
from typing import Any

import apsw
import msgspec

from benchmarks import floors, peers
from benchmarks.harness import Bar, Row, Sample, Side, fresh_places, interleave, timed, wall
from benchmarks.peers import DBOS, LANGGRAPH, Peer
from benchmarks.runtime_app import (
    calls_in_a_row,
    gone_on,
    left_waiting,
    skipped_through,
    steps_at_once,
    steps_in_a_row,
)
from benchmarks.workload import Sizes
from refold.events.catalog import CATALOG
from refold.events.content import unseal
from refold.events.envelope import HEADER

_SMALL = 100
_RECORD = "SELECT type, site, facts, content, content_digest FROM events WHERE id >= 4294967296 ORDER BY id"


class _Content(msgspec.Struct):
    values: dict[str, Any]


def measure(folder: Path, sizes: Sizes) -> list[Row]:
    """One row of spec 9, in four."""
    return [
        _pure(folder, sizes, _SMALL, 120_000),
        _pure(folder, sizes, 1000, None),
        _tools(folder, sizes),
        _wide(folder, sizes),
    ]


def _pure(folder: Path, sizes: Sizes, size: int, limit: float | None) -> Row:
    runtime = sizes.runtime
    path = folder / f"steps-{size}.db"
    run_id = asyncio.run(left_waiting(path, steps_in_a_row, (runtime.resumed, size, True)))
    recorded = folder / f"peers-{size}"
    recorded.mkdir()
    work = (runtime.peer_resumed, size)
    wanted = {"DBOS": Peer(DBOS, "resume", work), "LangGraph": Peer(LANGGRAPH, "resume", work)}
    limited = limit is not None  # The peers' own cost hardly depends on the size.
    others = _resumed_peers(wanted, recorded) if limited else {}
    samples = interleave(runtime.rounds, _sides(path, runtime.resumed, run_id) | others)
    return Row(
        f"resume {size} B",
        f"resume through the code of {runtime.resumed:,} pure steps of {size:,} B",
        _rates(samples, runtime.resumed, dict.fromkeys(wanted, runtime.peer_resumed), limit),
        samples,
        floor=_FLOOR,
        peer="DBOS and LangGraph (tasks of its functional API) run the workflow again, its steps answered from the "
        "file; measured in the workflow, from its first step to its last" * limited,
        notes=peers.missing() if limited else ["The same for 1 KB, without the peers."],
    )


_FLOOR = (
    "one scan by stream and seq; facts decoded by their type, contents opened and decoded, results put in a dict by "
    "site: no code run. `proven` also hashes contents, and as many bytes as header and facts have"
)


def _tools(folder: Path, sizes: Sizes) -> Row:
    runtime = sizes.runtime
    path = folder / "tools.db"
    run_id = asyncio.run(left_waiting(path, calls_in_a_row, (runtime.resumed, _SMALL, True)))
    samples = interleave(runtime.rounds, _sides(path, runtime.resumed, run_id))
    return Row(
        "resume tools",
        f"resume through the code of {runtime.resumed:,} unsafe tool calls, {_SMALL} B of arguments and of result",
        _rates(samples, runtime.resumed, {}, 60_000),
        samples,
        floor=f"{_FLOOR}; two events a call, whose arguments stay as they are stored",
    )


def _wide(folder: Path, sizes: Sizes) -> Row:
    runtime = sizes.runtime
    path = folder / "wide.db"
    times = max(1, runtime.resumed // runtime.wide)
    run_id = asyncio.run(left_waiting(path, steps_at_once, (times, runtime.wide, _SMALL, True)))
    samples = interleave(runtime.rounds, _sides(path, times * runtime.wide, run_id))
    return Row(
        "resume wide",
        f"resume through the code of {times} times {runtime.wide:,} pure steps of {_SMALL} B that start together",
        _rates(samples, times * runtime.wide, {}, 60_000),
        samples,
        floor=_FLOOR,
    )


def _sides(path: Path, operations: int, run_id: str) -> dict[str, Side]:
    return {
        "refold": lambda: asyncio.run(gone_on(path, run_id)),
        "refold, kind 6": lambda: asyncio.run(skipped_through(path, run_id)),
        "floor": lambda: _read(path, operations, proven=False),
        "floor, proven": lambda: _read(path, operations, proven=True),
    }


def _read(path: Path, operations: int, *, proven: bool) -> Sample:
    connection = floors.open_plain(path)
    decoders = {each.name: each.decoder.decode for each in CATALOG}
    opened = msgspec.json.Decoder(_Content).decode
    connection.execute("SELECT count(*) FROM stream_heads").fetchall()
    with timed() as sample:
        found = _results(connection, decoders, opened, proven)
    assert len(found) == operations
    connection.close()
    return sample


def _results(connection: apsw.Connection, decoders: dict[str, Any], opened: Any, proven: bool) -> dict[str, Any]:
    found = {}
    header = bytes(HEADER.size)
    for type_, site, encoded, content, digest in connection.execute(_RECORD):
        facts = decoders[type_](encoded)
        if proven:
            sha256(header + type_.encode() + encoded).digest()
            if content is not None and sha256(content).digest() != digest:
                raise ValueError("content")
        if type_ in ("step.completed", "tool.answered"):
            found[site] = facts, opened(unseal(content)).values
    return found


def _resumed_peers(wanted: dict[str, Peer], folder: Path) -> dict[str, Side]:
    """A pass works on a copy of what the peer wrote once before it was killed."""
    for peer in wanted.values():
        if peers.installed(peer.name):
            peers.measured(peer._replace(work="record"), folder)
    empty = fresh_places(folder)

    def fresh(name: str) -> Path:
        place = empty(name)
        for file in folder.glob(f"{name}.sqlite*"):
            shutil.copy(file, place)
        return place

    return peers.sides(wanted, fresh)


def _rates(samples: dict[str, list[Sample]], count: int, others: dict[str, int], limit: float | None) -> list[Bar]:
    return [
        Bar(f"operations/s, {name}", others.get(name, count) / wall(taken), "/s", *_held(name, limit))
        for name, taken in samples.items()
    ]


def _held(name: str, limit: float | None) -> tuple[Any, ...]:
    return (">=", limit) if name.startswith("refold") and limit is not None else ()
