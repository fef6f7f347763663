"""Random workflows under random latencies: what the code asked and was told, in which order, and what it made of it is
the same live, resumed and replayed, byte by byte. A failing seed is in the test's message; `one(seed)` runs it alone.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from refold import InferenceSkipping, Partial
from refold.runtime.opened import Refold
from tests.determinism.programs import KINDS, Grower, app, kinds_of, perform
from tests.determinism.world import LoopClock, SeededLoop, Trace, World, as_bytes, watched

BLOCK = 50
SEEDS = int(os.environ.get("REFOLD_SEEDS", "1000"))


MEMORY = Path("/dev/shm")


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Path]:
    """The place of a ledger; in memory where there is such a folder: no disk is on trial here."""
    with TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else tmp_path) as folder:
        yield Path(folder, "l.db")


@pytest.mark.parametrize("first", range(0, SEEDS, BLOCK))
def test_live_resumed_and_replayed_executions_are_the_same_bytes(first: int, ledger: Path) -> None:
    tried(range(first, first + BLOCK), ledger)


@pytest.mark.soak
@pytest.mark.parametrize("first", range(1000, 10_000, 500))
def test_ten_thousand_seeds(first: int, ledger: Path) -> None:
    tried(range(first, first + 500), ledger)


def tried(seeds: range, ledger: Path) -> None:
    with asyncio.Runner(loop_factory=SeededLoop) as runner:
        for seed in seeds:
            try:
                runner.run(one(seed, ledger))
            except BaseException as error:
                error.add_note(f"seed {seed}")
                raise


def test_the_programs_hold_every_construct() -> None:
    reached: set[str] = set()
    for seed in range(SEEDS):
        reached.update(*map(kinds_of, Grower(seed).program()))
    assert reached == set(KINDS)


async def one(seed: int, ledger: Path) -> None:
    """One workflow of one seed: live up to a few random places, resumed at each, and replayed."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, SeededLoop)
    opened = lambda: app.open(str(ledger), clock=LoopClock(loop), recover=False)  # noqa: E731
    choose = random.Random(f"cuts {seed}")
    cuts = sorted(choose.sample(range(2, 40), choose.choice((0, 1, 1, 2))))
    with watched() as traces:
        async with opened() as rf:
            run_id = (await rf.start(perform, Grower(seed).program(), key=str(seed))).id
            stood = await stopped_at(rf, run_id, cuts.pop(0) if cuts else None, f"{seed}")
        while stood is not None:
            async with opened() as rf:
                await compare_part(rf, run_id, stood)
                if (await (await rf.get(run_id)).row()).ended_at is not None:
                    break  # It was about to end when it was stopped.
                await rf.resume(run_id)
                stood = await stopped_at(rf, run_id, cuts.pop(0) if cuts else None, f"{seed} {len(cuts)}")
        async with opened() as rf:
            await compare_whole(rf, run_id, traces[run_id])


Stood = tuple[int, list[str]]


async def stopped_at(rf: Refold, run_id: str, cut: int | None, latencies: str) -> Stood | None:
    """Lets the run live up to a seq. Where it stood, and what its code waited for; None when it has ended before."""
    world = World(rf, run_id, latencies)
    live = await world.drive(cut)
    if live is not None and live.executor.main.done():
        live = await world.drive()
    if live is None:
        return None
    return live.writer.head.seq, sorted(live.executor.asked)


async def compare_part(rf: Refold, run_id: str, stood: Stood) -> None:
    part = await rf.replay(run_id, Partial(until=stood[0]))
    assert part.equal, part.divergences
    assert sorted(each["site"] for each in part.state["waits_for"]) == stood[1]


async def compare_whole(rf: Refold, run_id: str, traces: list[Trace]) -> None:
    lives = [each for each in traces if each]
    before = len(lives)
    replays: list[Any] = [await rf.replay(run_id, InferenceSkipping()) for _ in range(2)]
    first, second = replays
    assert first.equal, first.divergences
    assert first.state_digest == second.state_digest
    assert first.head_after == first.head_before == second.head_after
    whole, again = traces[before:]
    assert_within(again, whole)
    for lived in lives:
        assert_within(lived, whole)
    row = await (await rf.get(run_id)).row()
    assert row.ended_at is not None


def assert_within(lived: Trace, whole: Trace) -> None:
    """Each execution is a stretch of the whole: from the checkpoint where it began to where it was stopped."""
    begins = whole.index(lived[0])
    stretch = whole[begins : begins + len(lived)]
    if as_bytes(lived) != as_bytes(stretch):
        for at, (one_, other) in enumerate(zip(lived, stretch, strict=False)):
            assert one_ == other, f"entry {at} of {len(lived)}: {one_}, {other}, after {lived[max(0, at - 10) : at]}"
        raise AssertionError(f"{len(lived)} entries, and {len(stretch)} in the replay")
