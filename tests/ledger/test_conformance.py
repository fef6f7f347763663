"""The conformance suite on SQLite, and the suite itself: it must be able to fail."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence
from pathlib import Path

import pytest

from refold.ledger.conformance import CHECKS, Check, run_conformance
from refold.ledger.ledger import Ledger
from refold.ledger.port import Committed, Lost, Outcome, StreamBatch
from refold.ledger.sqlite.store import SqliteStore
from tests.ledger.memory import fast
from tests.ledger.places import SqlitePlace

__all__ = ["fast"]


@pytest.mark.parametrize("check", [pytest.param(check, id=name) for name, check in CHECKS])
def test_sqlite_conforms(check: Check, tmp_path: Path) -> None:
    asyncio.run(check(SqlitePlace(tmp_path)))


class _AlwaysCommitted(SqliteStore):
    """An adapter with the worst of bugs: a batch that was lost is reported as durable."""

    async def commit(self, batches: Sequence[StreamBatch]) -> list[Outcome]:
        outcomes = await super().commit(batches)
        return [Committed(7) if isinstance(outcome, Lost) else outcome for outcome in outcomes]


class _PlaceOfTheLiar(SqlitePlace):
    async def open(self) -> Ledger:
        ledger = await super().open()
        liar = _AlwaysCommitted(self.path, self.clock, ledger.ids)
        return Ledger(liar, ledger.path, self.clock, ledger.ids, ledger.redactor)


def test_the_suite_reports_what_an_adapter_does_wrong(fast: Path) -> None:
    folders = (fast / str(number) for number in itertools.count())

    def new_place() -> SqlitePlace:
        folder = next(folders)
        folder.mkdir()
        return _PlaceOfTheLiar(folder)

    report = asyncio.run(run_conformance(new_place))
    assert not report.passed
    assert "a_frozen_owner_is_replaced_and_writes_nothing_after" in report.failed
    assert "one_conflicting_stream_leaves_its_neighbours_committed" in report.failed
    assert "creators_that_race_for_a_key_get_one_run" in report.failed
    assert len(report.passed_checks) + len(report.failed) == len(CHECKS)
    assert "was not refused with fenced" in str(report)
