"""How often something is tried, and how long is waited between."""

from __future__ import annotations

import msgspec


class Retry(msgspec.Struct, frozen=True):
    """At most `attempts` failures, the last of them final; before the next try `first` seconds, each time `factor` as
    long, at most `limit`. Whoever asks for a longer pause than `limit` is not asked again. The pauses have no random
    part, so that a run's record explains them.
    """

    attempts: int = 3
    first: float = 0.5
    factor: float = 2.0
    limit: float = 60.0

    def delay(self, failures: int) -> float:
        """Seconds after so many failures (1 is the first), whether or not another try is allowed."""
        # The exponent is bounded, since a float overflows long before anybody has waited so often.
        return min(self.limit, self.first * self.factor ** min(failures - 1, 64))

    def pause(self, failures: int, wanted: float | None = None) -> float | None:
        """Seconds to wait after so many failures (1 is the first); None when there will be no other try.

        `wanted` is what the other side asked for.
        """
        if failures >= self.attempts:
            return None
        if wanted is not None:
            return wanted if wanted <= self.limit else None
        return self.delay(failures)
