"""A run before the rules of its evidence: what is read once for all of them, and what a rule answers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Literal

import msgspec

from refold.events.identity import Stream
from refold.ledger.artifacts import ArtifactFiles
from refold.ledger.port import Reader, StreamHead
from refold.projections.rows import RunRow
from refold.replay.survey import Survey
from refold.runtime.app import App

Status = Literal["pass", "warning", "fail", "not_applicable"]


class Verdict(msgspec.Struct):
    """What a rule found. `references` name event ids, ids, or sections of the evidence bundle; `missing`
    names what is not there.

    `kinds` is part of `replay_ready` only: for each kind of replay whether this run supports it, and if not,
    why.
    """

    status: Status
    summary: str
    references: list[str] = []
    missing: list[str] = []
    kinds: list[dict[str, Any]] | None = None


class Case(msgspec.Struct):
    """A run before the rules: what was read once for all of them. `trouble` stands where the events could not
    be surveyed. `app` is the code at hand, where the one who asks has any.
    """

    reader: Reader
    run_id: str
    files: ArtifactFiles
    head: StreamHead | None
    run: RunRow | None
    surveyed: Survey | None
    trouble: Exception | None
    app: App | None = None

    @property
    def found(self) -> Survey:
        """The survey of the events, or the error that ended it."""
        if self.surveyed is None:
            raise self.trouble or RuntimeError("the events were not surveyed")
        return self.surveyed

    @property
    def row(self) -> RunRow:
        """The run's row. Raises LookupError when the tables do not hold it."""
        if self.run is None:
            raise LookupError(f"the table of runs has no row for {self.run_id}")
        return self.run

    @property
    def stream(self) -> Stream:
        return Stream.run(self.run_id)


Rule = Callable[[Case], Awaitable[Verdict]]
