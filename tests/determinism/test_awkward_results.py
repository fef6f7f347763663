"""Thirteen awkward results: as input, result, exception, signal, state and output they come back equal and of the same
type, after a SIGKILL, and in a replay.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from refold import InferenceSkipping, Partial
from refold.runtime.opened import Refold
from tests.determinism.awkward import AWKWARD, PLACES, app, meet, same, seen


@pytest.fixture(params=["before", "after"])
def killed(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, Path]:
    """A ledger whose process was killed while a run for each value waited, before or after its checkpoint."""
    ledger = tmp_path / "l.db"
    command = [sys.executable, "-m", "tests.determinism.awkward", str(ledger), request.param]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        process.kill()
    assert line == "waiting\n"
    return request.param, ledger


@pytest.fixture(autouse=True)
def nothing_seen() -> None:
    for got in seen.values():
        got.clear()


async def test_awkward_results_are_equal_and_of_the_same_type_after_a_kill_and_in_a_replay(
    killed: tuple[str, Path],
) -> None:
    moment, ledger = killed
    async with app.open(str(ledger)) as rf:
        for name, value in AWKWARD.items():
            run = await rf.start(meet, [name, value], key=name)
            if moment == "before":
                await rf.signal(run.id, "value", value)
            await rf.signal(run.id, "go")
            assert same(await run.result(), value), f"{name} as output"
            check(name, PLACES if moment == "before" else PLACES[-1:])
            await replayed(rf, run.id, name)


async def replayed(rf: Refold, run_id: str, name: str) -> None:
    seen[name].clear()
    whole = await rf.replay(run_id, InferenceSkipping())
    assert whole.equal, (name, whole.divergences)
    check(name, PLACES)
    part = await rf.replay(run_id, Partial(until=whole.at_seq - 2))
    assert part.equal, (name, part.divergences)


def check(name: str, places: tuple[str, ...]) -> None:
    assert tuple(place for place, _ in seen[name]) == places
    for place, value in seen[name]:
        assert same(value, AWKWARD[name]), f"{name} from {place}: {type(value).__name__}"
