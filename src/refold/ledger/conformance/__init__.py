"""The conformance suite: what every adapter of the ledger must do, for any test runner.

An adapter is judged through a `Place`: an empty ledger that can be opened several times (each opening is what
a process has of a ledger: an incarnation and connections of its own) and whose leases can be made to run out.
A check uses nothing but `Ledger`, `ScopedLedger` and the port. `CHECKS` lists them; `run_conformance` runs them
all and reports:

    report = await run_conformance(lambda: MyPlace(new_database()))
    assert report.passed, str(report)
"""

from __future__ import annotations

from collections.abc import Callable

from refold.ledger.conformance import (
    artifacts,
    delivery,
    fencing,
    following,
    intents,
    isolation,
    keys,
    parts,
    recovery,
    snapshots,
    streams,
)
from refold.ledger.conformance.place import Check, ConformanceFailed, Place, Report

_ROOMS = (streams, fencing, recovery, keys, intents, delivery, parts, artifacts, snapshots, following, isolation)

CHECKS: list[tuple[str, Check]] = [
    (name.removeprefix("check_"), check)
    for room in _ROOMS
    for name, check in vars(room).items()
    if name.startswith("check_")
]
"""Every check: its name, and an async function of a fresh `Place`. It returns, or raises what went wrong."""


async def run_conformance(new_place: Callable[[], Place]) -> Report:
    """Runs every check on a place of its own; one that fails does not keep the others from running."""
    report = Report([], {})
    for name, check in CHECKS:
        try:
            await check(new_place())
        except Exception as problem:  # noqa: BLE001 - whatever an adapter raises is its result
            report.failed[name] = problem
        else:
            report.passed_checks.append(name)
    return report


__all__ = ["CHECKS", "Check", "ConformanceFailed", "Place", "Report", "run_conformance"]
