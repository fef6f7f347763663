"""Case 27: two processes appended the same sequence number, and a snapshot ahead of the log froze a reader without a
word. Here a number is given once and without gaps, and a snapshot beyond the head is refused loudly, wherever somebody
looks.
"""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import apsw
import pytest

from refold.events.identity import Stream
from refold.ledger.conformance.place import SCOPE, new_run, outputs, step, verified
from refold.ledger.errors import Fenced
from refold.ledger.ledger import Ledger, open_ledger
from refold.ledger.maintenance.doctor import doctor
from refold.ledger.snapshots import take_snapshot
from refold.ledger.sqlite.incarnation import LEASE
from refold.projections import fold, freeze, new_state
from refold.projections.fingerprint import fingerprint
from tests.cases.support import LEDGER, add_step, begin, edit, in_ledger, look, proven
from tests.invariants.checks import check_all
from tests.ledger.processes import Child, SharedClock, apart


def test_case_27_two_processes_that_both_hold_the_next_seq_store_it_once(tmp_path: Path) -> None:
    apart(_both_hold_the_next_seq, tmp_path / LEDGER)


def _both_hold_the_next_seq(path: Path) -> None:
    clock = SharedClock(path.with_name("passed"))

    async def frozen(child: Child) -> Any:
        async with await open_ledger(path, clock=clock) as ledger:
            writer = await new_run(ledger.scope(SCOPE), steps=2)
            seq = writer.append(step(ledger, "the frozen one's")).seq
            child.say([writer.stream.run_id, seq])
            child.freeze()  # With the event in memory, and a lease that runs out meanwhile.
            try:
                await writer.barrier()
            except Fenced as error:
                return error.facts["first_dropped"], error.facts["last_dropped"]
            return "kept"

    async def boss() -> None:
        child = Child(frozen)
        run_id, seq = child.hear()
        child.until_frozen()
        async with await open_ledger(path, clock=clock) as ledger:
            scope = ledger.scope(SCOPE)
            clock.let_pass(LEASE + 1)
            writer = await scope.writer(Stream.run(run_id))
            assert writer.append(step(ledger, "the taker's")).seq == seq
            await writer.barrier()
            child.thaw()
            assert child.result() == [seq, seq]
            writer.append(step(ledger, "next"))
            await writer.close()
            assert outputs(await verified(scope, Stream.run(run_id))) == [0, 1, "the taker's", "next"]

    asyncio.run(boss())
    check_all(path)


def test_case_27_the_file_itself_takes_no_second_event_with_a_seq(tmp_path: Path) -> None:
    async def work(ledger: Ledger) -> None:
        writer = await begin(ledger.scope())
        add_step(writer, 3)
        await writer.close()

    in_ledger(tmp_path, work)
    columns = "id, tenant_id, workspace_id, format, type, version, epoch, recorded_at, actor, site, facts, hash"
    with pytest.raises(apsw.ConstraintError):
        edit(tmp_path, f"INSERT INTO events ({columns}) SELECT {columns} FROM events WHERE seq = 3")
    assert [seq for (seq,) in look(tmp_path, "SELECT seq FROM events ORDER BY id")] == [1, 2, 3]


def _ahead(folder: Path) -> Stream:
    """A ledger whose snapshot says more than its events: the tail is gone, or the snapshot is another ledger's."""

    async def work(ledger: Ledger) -> Stream:
        scope = ledger.scope()
        writer = await begin(scope)
        for number in range(3, 9):
            add_step(writer, number)
        await writer.barrier()
        lie = take_snapshot(new_state(scope.scope, writer.stream), writer.head, fingerprint())
        writer.append(step(ledger, "last"))
        batch = writer.take_batch()
        assert batch is not None
        (outcome,) = await ledger.store.commit([batch._replace(snapshot=lie._replace(seq=1_000))])
        writer.settle(outcome)
        await writer.close()
        return writer.stream

    return in_ledger(folder, work)


def test_case_27_a_snapshot_beyond_the_head_is_refused_loudly_and_readers_and_writers_go_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    stream = _ahead(tmp_path)

    async def work(ledger: Ledger) -> None:
        scope = ledger.scope()
        whole = fold(new_state(scope.scope, stream), [event async for event in scope.read(stream)])
        with caplog.at_level(logging.WARNING, "refold.ledger.snapshots"):
            loaded = await ledger.store.load(scope.scope, stream)
        assert freeze(loaded) == freeze(whole)
        assert [(each.levelno, "beyond the head" in each.getMessage()) for each in caplog.records] == [
            (logging.ERROR, True)
        ]
        follower = scope.follow(stream, 8)
        assert (await asyncio.wait_for(anext(follower), 30)).seq == 9
        async with await scope.writer(stream) as writer:
            assert add_step(writer, 10).seq == 10
            await writer.barrier()
            assert (await asyncio.wait_for(anext(follower), 30)).seq == 10
        await follower.aclose()  # type: ignore[attr-defined]

    in_ledger(tmp_path, work)


def test_case_27_a_snapshot_beyond_the_head_is_named_by_verify_and_doctor(tmp_path: Path) -> None:
    stream = _ahead(tmp_path)
    proof = proven(tmp_path)
    assert proof.first_bad is not None
    assert proof.first_bad.stream == str(stream)
    assert "a snapshot stands at seq 1000, beyond the head" in proof.first_bad.what
    (check,) = [each for each in asyncio.run(doctor(tmp_path / LEDGER)) if each.name == "snapshots"]
    assert not check.ok
    assert check.facts["beyond_head"] == [f"{stream} at 1000"]
    assert check.remedy
