"""The claim table: what a call finds under its key, and what follows. Pure, and the only place that decides it."""

from __future__ import annotations

from enum import Enum, auto
from typing import NamedTuple

from refold.events.catalog.tool import Effect
from refold.gateway.tools import EFFECTS
from refold.projections.rows import IntentRow


class Move(Enum):
    """What a call does next."""

    ATTEMPT = auto()
    """Claim the intent, or claim it again, and send."""
    JOIN = auto()
    """This process has it out, since before the run was opened again: go on with that."""
    DOUBT = auto()
    """It was sent by a process that is gone, and may not be sent again: say so, then wait for a way out."""
    AWAIT_WAY_OUT = auto()
    """It is in doubt, and this call is the one to wait for a way out."""
    WAIT = auto()
    """Another call of the domain is at it, or in doubt about it."""
    REPLAY = auto()
    """It has an outcome: that is this call's too."""
    CONFLICT = auto()
    IN_PROGRESS = auto()
    UNKNOWN = auto()


class Found(NamedTuple):
    """What a call sees of the intent under its key. `mine`: this very call holds it. `out_here`: an attempt of it is
    under way in this process, begun before the run was opened again.
    """

    row: IntentRow
    fingerprint: str
    mine: bool
    out_here: bool
    owner_lives: bool
    same_domain: bool
    key_is_good: bool
    """Whether the other side still knows the downstream key until the next attempt's deadline."""
    may_retry: bool
    """Whether a failure on record may be followed by another attempt."""
    effect: Effect


def decide(found: Found | None) -> Move:
    """The row of the claim table that applies."""
    if found is None:
        return Move.ATTEMPT
    row = found.row
    if row.fingerprint != found.fingerprint:
        return Move.CONFLICT
    if row.status == "succeeded":
        return Move.REPLAY
    if row.status == "failed":
        return Move.ATTEMPT if found.may_retry else Move.REPLAY
    if row.status in ("in_doubt", "abandoned"):
        if found.mine and row.status == "in_doubt":
            return Move.AWAIT_WAY_OUT
        return Move.WAIT if found.same_domain else Move.UNKNOWN
    if not found.mine and found.owner_lives:
        return Move.WAIT if found.same_domain else Move.IN_PROGRESS
    if row.status == "dispatched" and found.out_here:
        return Move.JOIN
    if row.status == "dispatched" and not may_repeat(found.effect, row.effect, found.key_is_good):
        return Move.DOUBT
    return Move.ATTEMPT


def may_repeat(declared: Effect, recorded: str, key_is_good: bool) -> bool:
    """Whether a call of unknown outcome may be made again under the same downstream key. The wilder of what the tool
    says now and what it said when it was sent counts.
    """
    effect = max(declared, recorded, key=lambda each: EFFECTS.index(each))
    return effect in ("pure", "read") or (effect == "idempotent" and key_is_good)
