"""What a replay found: how it differs from its recording, and where two requests first differ."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

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


ABSENT: Any = object()
"""Stands where one of two values has nothing."""


def differences(recorded: Any, attempted: Any, path: str = "$") -> Iterator[tuple[str, Any, Any]]:
    """Where two JSON values differ, in order: the path, and what each has there."""
    if isinstance(recorded, dict) and isinstance(attempted, dict):
        for key in [*recorded, *(key for key in attempted if key not in recorded)]:
            yield from differences(recorded.get(key, ABSENT), attempted.get(key, ABSENT), f"{path}.{key}")
    elif isinstance(recorded, list) and isinstance(attempted, list):
        for place in range(max(len(recorded), len(attempted))):
            one = recorded[place] if place < len(recorded) else ABSENT
            other = attempted[place] if place < len(attempted) else ABSENT
            yield from differences(one, other, f"{path}[{place}]")
    elif type(recorded) is not type(attempted) or recorded != attempted:
        yield path, recorded, attempted
