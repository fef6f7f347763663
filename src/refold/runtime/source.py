"""The one thing that differs between a live run, and a replay: where outcomes come from that the record does not
hold.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from refold.events.envelope import Event
from refold.runtime.divergence import Divergence
from refold.runtime.operations import Fields, Operation


class Source(Protocol):
    """Where outcomes come from once the record is exhausted."""

    def frontier(self, left: Sequence[Operation]) -> None:
        """The record is exhausted, and the code stands where it stood; `begin` follows for what it waits for. `left` is
        what it had begun and given up.
        """
        ...

    def begin(self, operation: Operation) -> None:
        """The operation is wanted, and the record has no outcome of it."""
        ...

    def cancelled(self, operation: Operation) -> None:
        """The code gave the operation up; where it drains, its outcome is still wanted."""
        ...

    def given_up(self, event: Event) -> None:
        """An outcome is on record, and the code that had asked did not want it any more."""
        ...

    def unwanted(self, arrival: Any) -> None:
        """What came for an operation that the code has given up meanwhile."""
        ...

    def record(self, arrival: Any) -> tuple[Event, Fields]:
        """Makes an arrival a fact: appends its events and returns the one that is delivered."""
        ...

    def diverged(self, divergence: Divergence) -> bool:
        """Code and record part. Whether to go on as the record says."""
        ...

    def idle(self) -> None:
        """The code is quiet, nothing has arrived, and the record is exhausted."""
        ...

    def ended(self) -> None:
        """The workflow's function has ended, and nothing that must settle first is under way."""
        ...
