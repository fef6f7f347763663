"""SIGKILL at the points of three workflows that pay over real HTTP: doubled 0, lost 0, guessed 0.

The points: each append to a stream, each beginning of a tool, each send, each of SQLite's writes and syncs.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest

from refold.testing import crash
from tests.ledger.memory import fast
from tests.runtime import kill_work
from tests.runtime.kill_apps import ORDERS, Outside
from tests.runtime.kill_truth import Tally
from tests.world.fixtures import session_world, world
from tests.world.world import World

__all__ = ["fast", "session_world", "world"]

FIRST_DEATHS = {"sequential": ("http.send", 4), "wide": ("vfs.sync:wal", 8), "nested": ("http.send", 4)}
"""Where a process died before the one that is killed at each of its points: effects are out then, or in doubt."""


@pytest.fixture
def outside(world: World) -> Outside:
    return Outside(world.payments.url, world.forgetful.url, (world.payments.log, world.forgetful.log))


def sweep(workflow: str, outside: Outside, under: Path, *, probing: bool, again: bool = False, **options: Any) -> None:
    """Kills at each point, lets another process go on, compares with the services' logs; prints the sums."""
    scenario = partial(kill_work.run_it, workflow, probing, outside)
    if again:
        scenario = partial(kill_work.run_again, *FIRST_DEATHS[workflow], workflow, probing, outside)
    check = partial(kill_work.comes_back, workflow, probing, outside)
    try:
        crash.kill_at_each(scenario, check, under=under, **options)
    finally:
        print(f"{workflow}: {Tally.read(under / 'tally')}")


@pytest.mark.parametrize("workflow", ORDERS)
@pytest.mark.parametrize(
    ("at", "options"),
    [
        ("stream.append", {"probing": True, "require": {"stream.append"}}),
        ("[ht]*", {"probing": False, "require": {"http.send", "tool.call"}}),
        ("vfs.sync:wal", {"probing": True, "every": 2, "require": {"vfs.sync:wal"}}),
        ("vfs.write:*", {"probing": False, "every": 53, "require": {"vfs.write:wal"}}),
    ],
    ids=["appends", "sends", "syncs", "writes"],
)
def test_sigkill_leaves_each_effect_done_once_and_repeats_nothing_that_was_recorded(
    workflow: str, at: str, options: dict[str, Any], outside: Outside, fast: Path
) -> None:
    sweep(workflow, outside, fast, at=at, **options)


@pytest.mark.parametrize("workflow", ORDERS)
def test_sigkill_of_the_process_that_recovers(workflow: str, outside: Outside, fast: Path) -> None:
    sweep(workflow, outside, fast, probing=True, again=True, at="[!v]*")


@pytest.mark.soak
@pytest.mark.parametrize("workflow", ORDERS)
@pytest.mark.parametrize("probing", [True, False], ids=["probed", "looked-up"])
def test_sigkill_at_every_point(workflow: str, probing: bool, outside: Outside, fast: Path) -> None:
    sweep(workflow, outside, fast, probing=probing)


@pytest.mark.soak
@pytest.mark.parametrize("workflow", ORDERS)
def test_sigkill_of_the_process_that_recovers_at_many_points(workflow: str, outside: Outside, fast: Path) -> None:
    sweep(workflow, outside, fast, probing=True, again=True, every=3)
