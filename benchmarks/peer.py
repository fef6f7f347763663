"""The peer: `eventsourcing` (PyPI) with its SQLite module, one aggregate a run, one event a step.

Its settings are its own: WAL, synchronous=FULL (SQLite's default, which it leaves), JSON, no compression. It
writes no projections, and no digest or chain that an edit would break.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from uuid import UUID

from eventsourcing.application import Application
from eventsourcing.domain import Aggregate, event


class Run(Aggregate):  # type: ignore[misc]
    """A run as an aggregate: its steps by id."""

    @event("Started")
    def __init__(self, workflow: str) -> None:
        self.workflow = workflow
        self.steps: dict[str, str] = {}

    @event("StepCompleted")
    def complete(self, step_id: str, name: str, output: str, duration_us: int) -> None:
        self.steps[step_id] = output[:160]


class Runs(Application[UUID]):  # type: ignore[misc]
    """The application that stores runs."""

    is_snapshotting_enabled = True


def open_runs(path: Path) -> Runs:
    """The application on a SQLite file."""
    return Runs(env={"PERSISTENCE_MODULE": "eventsourcing.sqlite", "SQLITE_DBNAME": str(path)})


def append(app: Runs, run: Run, ids: Sequence[str], payloads: Sequence[str], batch: int) -> None:
    """One event a step, `batch` to a commit."""
    for start in range(0, len(ids), batch):
        for place in range(start, min(start + batch, len(ids))):
            run.complete(ids[place], "score", payloads[place % len(payloads)], 10)
        app.save(run)
