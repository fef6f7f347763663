"""What a replay found: how it differs from its recording."""

from __future__ import annotations

from typing import Literal

import msgspec

Kind = Literal["changed_request", "exhausted", "unanswered", "cut", "missing"]


class Divergence(msgspec.Struct, frozen=True):
    """One difference. `missing` is a recorded request that was not made again; the other kinds are those of
    `RecordingDiverged`.

    `seq` and `step` name the recorded request, where there is one. `recorded` and `attempted` show, redacted and
    shortened, what stands at the path `first_difference`, or the two requests.
    """

    kind: Kind
    seq: int | None
    step: str | None
    recorded: str | None
    attempted: str | None
    first_difference: str | None = None


class Report(msgspec.Struct, frozen=True):
    """How a replay went. `equal`: every recorded request was made once more, and no other."""

    run_id: str
    requests: int
    divergences: list[Divergence]

    @property
    def equal(self) -> bool:
        return not self.divergences
