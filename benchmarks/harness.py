"""Measuring side by side, and what a row of the results is.

The sides of a row take turns (A B C A B C ...), so that whatever else the machine does hits all of them.
Garbage collection is as a program has it: on, for every side, after a collection of what the rounds before
left behind. Wall time says what a user waits; CPU time of the process says what the code costs where the
machine is shared.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any, Literal

import msgspec

Bound = Literal["<=", ">="]


class Sample(msgspec.Struct):
    """One measured pass: seconds of wall clock and of this process's CPU."""

    wall: float = 0.0
    cpu: float = 0.0


@contextmanager
def timed() -> Iterator[Sample]:
    """Measures its body; what is set up before is not counted."""
    gc.collect()
    sample = Sample()
    wall, cpu = time.perf_counter(), time.process_time()
    yield sample
    sample.cpu = time.process_time() - cpu
    sample.wall = time.perf_counter() - wall


Side = Callable[[], Sample]
"""Does its work once on fresh ground and says what it took."""


def interleave(rounds: int, sides: dict[str, Side]) -> dict[str, list[Sample]]:
    """Runs all sides in turn, `rounds` times."""
    samples: dict[str, list[Sample]] = {name: [] for name in sides}
    for _ in range(rounds):
        for name, side in sides.items():
            samples[name].append(side())
    return samples


class Bar(msgspec.Struct):
    """One thing that the specification asks for, and what was measured. `met` None: no bar, reported only."""

    what: str
    value: float
    unit: str
    bound: Bound | None = None
    limit: float | None = None

    @property
    def met(self) -> bool | None:
        if self.bound is None or self.limit is None:
            return None
        return self.value <= self.limit if self.bound == "<=" else self.value >= self.limit


class Row(msgspec.Struct):
    """One row of spec 9: bars, raw samples by side, and what has to be known to read them. `skipped` says
    why nothing was measured.
    """

    name: str
    work: str
    bars: list[Bar] = []
    samples: dict[str, list[Sample]] = {}
    facts: dict[str, Any] = {}
    floor: str = ""
    peer: str = ""
    notes: list[str] = []
    skipped: str = ""


def wall(samples: list[Sample]) -> float:
    """The median wall time, seconds."""
    return median(each.wall for each in samples)


def cpu(samples: list[Sample]) -> float:
    """The median CPU time, seconds."""
    return median(each.cpu for each in samples)


def fresh_places(folder: Path) -> Callable[[str], Path]:
    """Gives each pass an empty folder of its own."""
    passes = iter(range(1_000_000))

    def fresh(kind: str) -> Path:
        place = folder / f"{kind}-{next(passes)}"
        place.mkdir(parents=True)
        return place

    return fresh


def times(samples: dict[str, list[Sample]], over: str, limit: float | None = None, side: str = "refold") -> list[Bar]:
    """How many times the other side's time refold takes, by the clock and by CPU time; a bar is held
    against the clock.
    """
    name = ("" if side == "refold" else f"{side}, ") + "times " + ("the floor" if over == "floor" else over)
    return [
        Bar(name, wall(samples[side]) / wall(samples[over]), "x", "<=" if limit else None, limit),
        Bar(f"{name}, CPU", cpu(samples[side]) / cpu(samples[over]), "x"),
    ]
