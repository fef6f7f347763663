"""SIGKILL at every write, sync and send of a recorded agent: what it saw is on record, what it sent is, and no more."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from refold.testing import crash, faults
from tests.interop.record import crash_work
from tests.interop.record.servers import serving
from tests.ledger.memory import fast

__all__ = ["fast"]


@pytest.mark.parametrize(
    ("at", "require", "questions"),
    [
        ("http.send", {"http.send"}, 3),
        ("vfs.sync:*", {"vfs.sync:wal", "vfs.sync:db"}, 3),
        ("vfs.write:*", {"vfs.write:wal", "vfs.write:db"}, 1),
        pytest.param("vfs.write:*", {"vfs.write:wal", "vfs.write:db"}, 3, marks=pytest.mark.soak),
    ],
)
def test_a_killed_recording_is_honest(at: str, require: set[str], questions: int, fast: Path) -> None:
    with serving(crash_work.noting) as server:
        scenario = partial(crash_work.recorded_agent, crash_work.prepared(fast), server.url, questions)
        check = partial(crash_work.is_honest, server.url)
        crash.kill_at_each(scenario, check, under=fast, at=at, require=require)


def test_a_recording_whose_power_was_cut_is_honest(fast: Path) -> None:
    """Nothing unsynced survives: a request that was sent before its sync would be found here."""
    with serving(crash_work.noting) as server:
        scenario = partial(crash_work.recorded_agent, crash_work.prepared(fast), server.url, 3)
        check = partial(crash_work.is_honest, server.url)
        crash.fault_at_each(scenario, check, faults.power_cut, under=fast, at="vfs.sync:*", require={"vfs.sync:wal"})
