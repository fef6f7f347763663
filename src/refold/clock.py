"""Time, injected. Everything that asks for time asks a `Clock`; tests hand in a simulated one."""

from __future__ import annotations

import time
from typing import Protocol

_BOOT = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class Clock(Protocol):
    """The three times that refold needs."""

    def now(self) -> int:
        """Wall clock, microseconds since 1970-01-01 UTC. For people; nothing is ordered by it."""
        ...

    def monotonic(self) -> int:
        """Nanoseconds for durations inside one process."""
        ...

    def since_boot(self) -> int:
        """Microseconds since the machine started, the same for all its processes; leases are measured with it."""
        ...


class SystemClock:
    """The machine's clocks."""

    def now(self) -> int:
        return time.time_ns() // 1000

    def monotonic(self) -> int:
        return time.monotonic_ns()

    def since_boot(self) -> int:
        # Not the wall clock: a clock that jumps must neither expire a live lease nor keep a dead one.
        return time.clock_gettime_ns(_BOOT) // 1000
