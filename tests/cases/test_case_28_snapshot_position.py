"""Case 28: a snapshot kept how many events it had handled instead of where it stood; where some events had no handler,
the tail was folded twice. Here its position is a seq: from a snapshot at any seq, each later event is folded once.
"""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest

from refold.events.catalog import CATALOG, Catalog, Facts
from refold.events.envelope import Event
from refold.events.identity import Stream
from refold.ledger import loading
from refold.ledger.conformance.snapshots import check_a_snapshot_and_the_tail_equal_the_whole_fold
from refold.ledger.ledger import Ledger
from refold.ledger.snapshots import take_snapshot
from refold.projections import FoldState, fold, freeze, new_state
from refold.projections.fingerprint import fingerprint
from tests.cases.support import edit, in_ledger, look
from tests.ledger.places import SqlitePlace
from tests.replay.support import every_event


def test_case_28_snapshot_and_tail_equal_the_whole_fold_wherever_in_a_batch_it_was_taken(tmp_path: Path) -> None:
    asyncio.run(check_a_snapshot_and_the_tail_equal_the_whole_fold(SqlitePlace(tmp_path)))


CATALOG_HERE = Catalog()
for _known in CATALOG:
    CATALOG_HERE.register(_known.name, _known.version)(_known.facts)


@CATALOG_HERE.register("test.unhandled")
class Unhandled(Facts, frozen=True):
    """A type that no fold handles."""


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Stream]:
    """A run with every type of event, and some that no fold handles scattered among them."""
    folder = tmp_path_factory.mktemp("recorded")

    async def work(ledger: Ledger) -> Stream:
        teller = await every_event(ledger.scope(), finish=False)
        for _ in range(3):
            teller.tell(Unhandled())
            teller.inference()
            teller.tell(Unhandled())
            teller.dispatch("mail")
        await teller.writer.close()
        return teller.writer.stream

    stream = in_ledger(folder, work, catalog=CATALOG_HERE)
    assert look(folder, "SELECT count(*) FROM snapshots") == [(0,)]
    return folder, stream


def test_case_28_from_a_snapshot_at_every_seq_each_later_event_is_folded_once(
    recorded: tuple[Path, Stream], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, stream = recorded
    copy = shutil.copytree(folder, tmp_path / "copy")
    folded: list[int] = []

    def counting(state: FoldState, events: list[Event]) -> FoldState:
        folded.extend(event.seq for event in events)
        return fold(state, events)

    monkeypatch.setattr(loading, "fold", counting)

    async def work(ledger: Ledger) -> None:
        scope = ledger.scope()
        events = [event async for event in scope.read(stream)]
        assert len(events) > 60
        whole = freeze(fold(new_state(scope.scope, stream), events))
        head = await scope.run_head(stream.run_id)
        for place in range(1, len(events) + 1):
            state = fold(new_state(scope.scope, stream), events[:place])
            taken = take_snapshot(state, head._replace(seq=place, hash=events[place - 1].stored.hash), fingerprint())
            edit(copy, "DELETE FROM snapshots")
            edit(copy, "INSERT INTO snapshots VALUES (?, ?, ?, ?, ?, ?, ?, ?)", *scope.scope, str(stream), *taken)
            folded.clear()
            loaded = await ledger.store.load(scope.scope, stream)
            assert folded == list(range(place + 1, len(events) + 1)), f"snapshot at {place}"
            assert freeze(loaded) == whole, f"snapshot at {place}"
            assert loaded.open.seq == len(events)

    in_ledger(copy, work, catalog=CATALOG_HERE)
