"""What must be true of every ledger at every moment, one invariant a module, each as `check(path)`.

A check reads the ledger's file on a connection of its own and raises AssertionError where the invariant does
not hold, so that it can be asked in the middle of any scenario, also while others write.
"""

from __future__ import annotations

from pathlib import Path

from tests.invariants.checks import chains, folds, gapless, heads, independent

ALL = (gapless, heads, chains, folds, independent)


def check_all(path: Path) -> None:
    """Every invariant of the ledger at `path`."""
    for invariant in ALL:
        invariant.check(path)
