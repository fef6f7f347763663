"""Real processes: killed anywhere, and racing for one key."""

from __future__ import annotations

import multiprocessing
from pathlib import Path

import pytest

from refold.testing import crash
from tests.gateway import crash_work, race_work
from tests.invariants.checks import check_all
from tests.ledger.memory import fast

__all__ = ["fast"]

ROUNDS = 60


@pytest.mark.parametrize(
    ("at", "require"),
    [
        ("[!v]*", {"tool.call", "act", "acted"}),
        ("vfs.sync:*", {"vfs.sync:wal"}),
        pytest.param("vfs.write:*", {"vfs.write:wal"}, marks=pytest.mark.soak),
    ],
)
def test_sigkill_anywhere_leaves_each_unsafe_effect_done_once_or_in_doubt(
    at: str, require: set[str], fast: Path
) -> None:
    crash.kill_at_each(crash_work.calls_of_every_kind, crash_work.each_done_once, under=fast, at=at, require=require)


def test_processes_that_race_for_a_key_do_it_once(tmp_path: Path) -> None:
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        raced = [pool.apply_async(race_work.race, (tmp_path, me, ROUNDS)) for me in (0, 1)]
        (first, lost), (second, lost_too) = (each.get(120) for each in raced)
    print(f"{ROUNDS} races, {lost + lost_too} lost in the commit itself")
    assert first == second
    assert sorted((tmp_path / "truth").read_text().split(), key=int) == [str(number) for number in range(ROUNDS)]
    assert lost + lost_too > 0, "nobody was ever late: no race"
    check_all(tmp_path / "ledger.db")
