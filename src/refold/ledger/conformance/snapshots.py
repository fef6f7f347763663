"""Snapshots: equal to the whole fold, or passed over with a logged reason; never trusted on their word."""

from __future__ import annotations

import logging
from hashlib import sha256

from refold.events.catalog.inference import InferenceRequested
from refold.events.catalog.run import RunStarted
from refold.events.identity import Stream
from refold.ledger.conformance.place import SCOPE, Place, all_events, new_run, opened, require, same, step
from refold.ledger.drafts import Draft
from refold.ledger.ledger import Ledger, ScopedLedger
from refold.ledger.port import Committed, Snapshot
from refold.ledger.snapshots import take_snapshot
from refold.ledger.writer import SNAPSHOT_EVERY, StreamWriter
from refold.projections import fold, freeze, new_state
from refold.projections.fingerprint import fingerprint

_log = logging.getLogger("refold.ledger.snapshots")


class _Heard(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)


async def check_a_snapshot_and_the_tail_equal_the_whole_fold(place: Place) -> None:
    """Case 28: its position is a seq, so the tail is folded once, wherever in a batch it was taken."""
    async with opened(place) as ledger:
        scope = ledger.scope(SCOPE)
        writer = await _with_open_things(scope)
        for number in range(SNAPSHOT_EVERY + 30):
            writer.append(step(ledger, number))
            if number % 700 == 0:
                await writer.barrier()
        await writer.barrier()
        async with scope.reader() as reader:
            taken = await reader.snapshots(writer.stream)
        require(taken, f"no snapshot was taken in {SNAPSHOT_EVERY} events")
        await _load_equals_fold(scope, writer.stream)
        writer.append(step(ledger, "tail"))
        await writer.close()
        await _load_equals_fold(scope, writer.stream)


async def check_a_caller_who_changes_a_state_changes_his_copy(place: Place) -> None:
    """Case 30."""
    async with opened(place) as ledger:
        scope = ledger.scope(SCOPE)
        writer = await _with_open_things(scope)
        await _put(ledger, writer, take_snapshot(writer.state, writer.head, fingerprint()))
        state = await ledger.store.load(scope.scope, writer.stream)
        state.open.steps.clear()
        if state.open.run is not None:
            state.open.run.status = "succeeded"
        await _load_equals_fold(scope, writer.stream)


async def check_a_snapshot_that_does_not_fit_is_passed_over_with_a_reason(place: Place) -> None:
    """Cases 27 and 29: another fold's, another chain's, damaged, or ahead of the log."""
    async with opened(place) as ledger:
        scope = ledger.scope(SCOPE)
        writer = await _with_open_things(scope)
        good = take_snapshot(writer.state, writer.head, fingerprint())
        lie = take_snapshot(new_state(scope.scope, writer.stream), writer.head, fingerprint())
        broken = bytes([good.state[0] ^ 1]) + good.state[1:]
        unreadable = b"\xc1 not a state"
        bad = {
            "other code": good._replace(fingerprint="0" * 32),
            "another hash": good._replace(hash=bytes(32)),
            "their digest": good._replace(state=broken),
            "cannot be read": good._replace(state=unreadable, state_digest=sha256(unreadable).digest()),
            "beyond the head": lie._replace(seq=writer.head.seq + 1000),
        }
        for reason, snapshot in bad.items():
            await _put(ledger, writer, snapshot)
            heard = await _load_equals_fold(scope, writer.stream)
            require(any(reason in each.getMessage() for each in heard), f"no log says {reason!r}: {heard}")
            if reason == "beyond the head":
                require(
                    any(each.levelno >= logging.ERROR for each in heard),
                    "a snapshot beyond the head is not loud",
                )


async def check_an_older_good_snapshot_serves_when_the_newest_is_bad(place: Place) -> None:
    async with opened(place) as ledger:
        scope = ledger.scope(SCOPE)
        writer = await _with_open_things(scope)
        good = take_snapshot(writer.state, writer.head, fingerprint())
        await _put(ledger, writer, good)
        await _put(ledger, writer, take_snapshot(writer.state, writer.head, "f" * 32))
        heard = await _load_equals_fold(scope, writer.stream)
        same(
            [each.args[1] for each in heard if isinstance(each.args, tuple)],
            [good.seq + 1],
            "snapshots passed over",
        )


async def check_a_writer_opened_from_a_snapshot_goes_on_like_the_one_before(place: Place) -> None:
    async with opened(place) as ledger:
        scope = ledger.scope(SCOPE)
        writer = await _with_open_things(scope)
        await _put(ledger, writer, take_snapshot(writer.state, writer.head, fingerprint()))
        before = freeze(writer.state)
        await writer.close()
        async with await scope.writer(writer.stream) as again:
            same(freeze(again.state), before, "open state of the reopened writer")


async def _with_open_things(scope: ScopedLedger) -> StreamWriter:
    writer = await new_run(scope)
    writer.append(Draft(RunStarted()))
    for _ in range(3):
        writer.append(Draft(InferenceRequested(scope.ledger.ids.new("st"), "m", "p")))
    await writer.barrier()
    return writer


async def _put(ledger: Ledger, writer: StreamWriter, snapshot: Snapshot) -> None:
    """Commits an event with this snapshot, whatever it says."""
    writer.append(step(ledger))
    batch = writer.take_batch()
    if batch is None:
        raise AssertionError("nothing to commit")
    (outcome,) = await ledger.store.commit([batch._replace(snapshot=snapshot)])
    require(isinstance(outcome, Committed), f"the commit was lost: {outcome}")
    writer.settle(outcome)


async def _load_equals_fold(scope: ScopedLedger, stream: Stream) -> list[logging.LogRecord]:
    heard = _Heard()
    _log.addHandler(heard)
    try:
        loaded = await scope.ledger.store.load(scope.scope, stream)
    finally:
        _log.removeHandler(heard)
    whole = fold(new_state(scope.scope, stream), await all_events(scope, stream))
    same(freeze(loaded), freeze(whole), "the loaded state")
    return heard.records
