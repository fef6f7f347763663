"""Time and identity that depend on a seed alone."""

from __future__ import annotations

import random

from refold.ids import encode_ulid


class SimulatedClock:
    """A clock that moves by one microsecond a look, and by as much as it is told."""

    def __init__(self, start: int = 1_700_000_000_000_000) -> None:
        self._now = start
        self._start = start

    def now(self) -> int:
        self._now += 1
        return self._now

    def monotonic(self) -> int:
        return (self.now() - self._start) * 1000

    def since_boot(self) -> int:
        return self.now() - self._start

    def advance(self, microseconds: int) -> None:
        """Lets time pass."""
        self._now += microseconds


class SimulatedIds:
    """Ids and random bytes from a seed."""

    def __init__(self, clock: SimulatedClock, seed: int) -> None:
        self._clock = clock
        self._random = random.Random(seed)
        self._count = 0

    def new(self, prefix: str) -> str:
        self._count += 1
        tail = self._count << 40 | self._random.getrandbits(40)
        return f"{prefix}_{encode_ulid(self._clock.now() // 1000 << 80 | tail)}"

    def random(self, size: int) -> bytes:
        return self._random.randbytes(size)
