"""Where the code of a run and its record part: what was recorded, what the code asked, and the first difference."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from refold.events.differences import ABSENT, differences

DivergenceKind = Literal["changed", "missing", "extra", "output", "type", "state"]


class Divergence(msgspec.Struct, frozen=True, omit_defaults=True):
    """One difference between code and record.

    `kind`: `changed` (a site asks something else), `missing` (the record holds an operation that the code does not ask
    for), `extra` (the code asks for what the record of an ended run does not hold), `output` and `state` (the result,
    or the state of a checkpoint, is another), `type` (a recorded value no longer fits its class). `step` is the site,
    `at` the line of code that asked.
    """

    seq: int | None
    step: str | None
    kind: DivergenceKind
    recorded: Any
    attempted: Any
    first_difference: str
    at: str | None = None
    remedy: str = ""

    def sentence(self) -> str:
        """The difference for people."""
        where = f"at seq {self.seq}" if self.seq is not None else "after the record's end"
        return f"{where}, {self.step or 'the run'}: {self.first_difference}"


REMEDIES: dict[str, str] = {
    "changed": "Put the code back as it was, so that this site asks what it asked; or start a new run.",
    "missing": "Put the operation back where it stood: everything recorded must be asked for again.",
    "extra": "Take the new operation out, or replay with the code that the run was made with.",
    "output": "The code computes another result from the same answers; look at what changed after the last operation.",
    "state": "The code makes another state from the same answers; look at what changed before the checkpoint.",
    "type": "Give the class back the fields it had, or register one of the old shape under the recorded name.",
}


def first_difference(recorded: Any, attempted: Any, path: str = "$") -> str | None:
    """The path and the two values where two stored JSON trees first differ; None when they do not."""
    found = next(differences(recorded, attempted, path), None)
    if found is None:
        return None
    place, was, now = found
    said = "was not there" if was is ABSENT else f"was {_shown(was)}"
    return f"{place} {said} and is {'not there' if now is ABSENT else _shown(now)}"


def _shown(value: Any) -> str:
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= 80 else text[:79] + "…"
