"""Case 34: "database is locked" ended turns, in WAL mode too. Here eight processes write beside one reader that stays
open from before the first of them to after the last: nothing fails, nobody starves, and the reader sees one state. All
of it is counted; nothing is timed.
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import apsw

from refold import seam
from refold.events.identity import Stream
from refold.ledger.conformance.place import SCOPE, new_run, step, verified
from refold.ledger.ledger import open_ledger
from refold.ledger.sqlite.connection import CHECKPOINT_PAGES
from refold.testing import faults
from tests.cases.support import LEDGER
from tests.invariants.checks import check_all
from tests.ledger.processes import Child, apart

WRITERS = 8
BATCHES = 25
PAYLOAD = 96 * 1024
"""Bytes of a batch: enough that the log outgrows the size at which SQLite empties it, which the reader prevents."""


def test_case_34_eight_writing_processes_and_one_long_reader_do_not_fail_and_nobody_starves(tmp_path: Path) -> None:
    turns, pages = apart(_write_beside_a_long_reader, tmp_path / LEDGER)
    print(f"turns a process: {sorted(Counter(turns).values())}; pages in the log at the end: {pages}")
    assert len(set(turns)) == WRITERS
    assert pages > CHECKPOINT_PAGES, "the log never grew to where the reader is in the way"
    # Until the first has finished, all want their turns: by then each must have had its share.
    first_end = min(max(place for place, pid in enumerate(turns) if pid == each) for each in set(turns))
    shares = Counter(turns[: first_end + 1])
    assert len(shares) == WRITERS
    assert min(shares.values()) * 3 >= max(shares.values()), shares


def _write_beside_a_long_reader(path: Path) -> tuple[list[int], int]:
    log = path.with_name("turns")

    async def boss() -> None:
        async with await open_ledger(path) as ledger:
            scope = ledger.scope(SCOPE)
            await (await new_run(scope, steps=3)).close()
            children = [Child(lambda child: _writer(path, log, child)) for _ in range(WRITERS)]
            for child in children:
                child.hear()
            async with scope.reader() as reader:
                before = await _everything(reader)
                for child in children:
                    child.go()
                said: list[dict[str, Any]] = [child.result() for child in children]
                assert await _everything(reader) == before, "the long reader saw something new"
            assert [each["failures"] for each in said] == [[]] * WRITERS
            assert [each["kept"] for each in said] == [BATCHES] * WRITERS
            for each in said:
                events = await verified(scope, Stream.run(each["run"]))
                assert len(events) == 1 + BATCHES, "an acknowledged event is missing"

    asyncio.run(boss())
    check_all(path)
    turns = log.read_text().split()
    return [int(line) for line in turns if "=" not in line], max(int(each[1:]) for each in turns if "=" in each)


async def _everything(reader: Any) -> list[Any]:
    heads = await reader.heads()
    return [heads, *[await reader.raw_events(head.stream) for head in heads]]


async def _writer(path: Path, log: Path, child: Child) -> dict[str, Any]:
    file = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def note(point: str) -> None:
        if point == "vfs.sync:wal":  # In this process's turn: the order in the log is the order of the turns.
            os.write(file, b"%d\n" % os.getpid())

    kept, failures = 0, []
    async with await open_ledger(path, vfs=faults.register()) as ledger:
        writer = await new_run(ledger.scope(SCOPE))
        child.say("ready")
        child.wait()
        with seam.installed(note):
            for number in range(BATCHES):
                writer.append(step(ledger, [number, os.urandom(PAYLOAD)]))
                try:
                    await writer.barrier()
                    kept += 1
                except Exception as error:  # noqa: BLE001 - any failure at all is what this test counts
                    failures.append(repr(error))
        run_id = writer.stream.run_id
        size = path.with_name(path.name + "-wal").stat().st_size
        os.write(file, b"=%d\n" % (size // 8192))
        if writer.alive:
            await writer.close()
    return {"run": run_id, "kept": kept, "failures": failures}


def test_case_34_readers_that_come_and_go_beside_writers_never_fail(tmp_path: Path) -> None:
    apart(_readers_come_and_go, tmp_path / LEDGER)


def _readers_come_and_go(path: Path) -> None:
    async def reads(child: Child) -> int:
        child.wait()
        seen = 0
        for _ in range(40):
            async with await open_ledger(path, create=False) as ledger, ledger.scope(SCOPE).reader() as reader:
                for head in await reader.heads():
                    events = await reader.raw_events(head.stream)
                    assert [row.seq for row in events] == list(range(1, head.head.seq + 1))
                    seen = max(seen, len(events))
        return seen

    async def writes(child: Child) -> int:
        child.wait()
        async with await open_ledger(path) as ledger, await new_run(ledger.scope(SCOPE)) as writer:
            for number in range(40):
                writer.append(step(ledger, number))
                await writer.barrier()
        return 41

    async def boss() -> None:
        async with await open_ledger(path) as ledger:
            assert ledger.scope(SCOPE).secret
        children = [Child(work) for work in (reads, writes, reads, writes)]
        for child in children:
            child.go()
        results = [child.result() for child in children]
        assert results[1] == results[3] == 41

    asyncio.run(boss())
    with closing(apsw.Connection(str(path))) as connection:
        assert connection.execute("SELECT count(*) FROM events").fetchall() == [(82,)]
