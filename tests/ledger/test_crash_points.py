"""SIGKILL at every write and sync of a process that commits a transaction of every kind, while others append."""

from __future__ import annotations

import ast
from collections import Counter
from functools import partial
from pathlib import Path

import pytest

import refold.ledger.sqlite
from refold.testing import crash, faults
from tests.ledger import crash_soak_work, crash_work
from tests.ledger.crash_work import KINDS
from tests.ledger.memory import fast

__all__ = ["fast"]


@pytest.mark.parametrize(
    ("at", "require"),
    [
        ("vfs.write:wal", {"vfs.write:wal"}),
        ("vfs.write:db", {"vfs.write:db"}),
        ("vfs.[!w]*", {"vfs.open:db", "vfs.open:wal", "vfs.sync:wal", "vfs.sync:db", "vfs.truncate:db"}),
        ("artifact.*", {f"artifact.{each}" for each in ("write", "sync", "rename", "sync_folder")}),
    ],
)
def test_sigkill_at_every_point_loses_nothing_that_was_acknowledged(at: str, require: set[str], fast: Path) -> None:
    start = crash_work.prepared(fast / "start")
    scenario = partial(crash_work.commits_of_every_kind, start, 1, False)
    crash.kill_at_each(scenario, partial(crash_work.nothing_lost, 1), under=fast, at=at, require=require)


def test_sigkill_at_every_sync_beside_processes_that_race(fast: Path) -> None:
    start = crash_work.prepared(fast / "start")
    scenario = partial(crash_work.commits_of_every_kind, start, 3, True)
    crash.kill_at_each(scenario, partial(crash_work.nothing_lost, 3), under=fast, at="vfs.sync:*")


def test_a_power_cut_at_every_sync_loses_nothing_that_was_acknowledged(fast: Path) -> None:
    """Nothing unsynced survives, so an acknowledgement before its sync would be found here."""
    start = crash_work.prepared(fast / "start")
    scenario = partial(crash_work.commits_of_every_kind, start, 0, False)
    check = partial(crash_work.nothing_lost, 0)
    crash.fault_at_each(scenario, check, faults.power_cut, under=fast, at="vfs.sync:*", require={"vfs.sync:wal"})


@pytest.mark.soak
@pytest.mark.parametrize("companions", [1, 5])
@pytest.mark.parametrize("seed", range(4))
def test_soak_sigkill_at_every_point_of_made_up_work(seed: int, companions: int, fast: Path) -> None:
    start = crash_work.prepared(fast / "start")
    print(f"seed {seed}, {companions} companions")
    scenario = partial(crash_soak_work.made_up_commits, start, companions, seed)
    crash.kill_at_each(scenario, partial(crash_work.nothing_lost, companions), under=fast, timeout=300)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(4, 8))
@pytest.mark.parametrize("fault", [faults.power_cut, faults.Torn(700)], ids=["power cut", "torn write"])
def test_soak_worse_ends_at_every_write_of_made_up_work(fault: faults.Fault, seed: int, fast: Path) -> None:
    start = crash_work.prepared(fast / "start")
    print(f"seed {seed}")
    scenario = partial(crash_soak_work.made_up_commits, start, 0, seed)
    check = partial(crash_work.nothing_lost, 0)
    crash.fault_at_each(scenario, check, fault, under=fast, at="vfs.write:*", timeout=300)


def test_every_kind_of_transaction_has_writes_and_syncs_among_the_points(fast: Path) -> None:
    start = crash_work.prepared(fast / "start")
    scenario = partial(crash_work.commits_of_every_kind, start, 1, False)
    points = crash.points(scenario, partial(crash_work.nothing_lost, 1), under=fast)
    print(f"{len(points)} points: {dict(Counter(points))}")
    assert kinds_struck(points) == set(KINDS)


def test_sigkill_while_a_ledger_is_made_leaves_none_or_a_whole_one(fast: Path) -> None:
    crash.kill_at_each(
        crash_work.making_a_ledger,
        crash_work.nothing_lost_of_a_new_ledger,
        under=fast,
        at="vfs.*",
        require={"vfs.write:wal", "vfs.sync:wal", "vfs.write:db", "vfs.sync:db"},
    )


def kinds_struck(points: list[str]) -> set[str]:
    """The kinds of transactions in which at least one write and one sync of the WAL is a point."""
    struck, kind, seen = set(), "", set()
    for point in points:
        if point.startswith("transaction."):
            kind, seen = point.partition(".")[2], set()
        seen.add(point)
        if kind and {"vfs.write:wal", "vfs.sync:wal"} <= seen:
            struck.add(kind)
    return struck


def test_every_place_that_opens_a_transaction_is_in_the_campaign() -> None:
    """A new kind of transaction in the adapter must get its step in the scenario, and its name here."""
    assert _transactions() == {
        ("connection.py", "transaction"),  # what in_turn, the finishing of erasures and the making of a ledger run in
        ("access.py", "transact"),
        ("access.py", "in_turn"),
        ("access.py", "write"),  # what the next six run in
        ("store.py", "_make_secret"),  # secret
        ("store.py", "acquire"),  # take over, annex, scope, reopen
        ("store.py", "release"),  # release
        ("store.py", "renew"),  # renew
        ("store.py", "move_cursor"),  # cursor
        ("erasing.py", "finish"),  # in a campaign of its own: test_erasure_crashes.py
        ("store.py", "post"),  # post
        ("committing.py", "_begin"),  # create, append, group, part, artifacts, tool, deliver, end
        ("opening.py", "_make"),  # making a ledger
    }


def _transactions() -> set[tuple[str, str]]:
    folder = Path(refold.ledger.sqlite.__file__).parent
    found = set()
    for file in folder.glob("*.py"):
        for function in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                text = ast.unparse(function)
                if any(
                    each in text
                    for each in ("BEGIN IMMEDIATE", "transaction(connection)", ".in_turn(", "access.write(")
                ):
                    found.add((file.name, function.name))
    return found
