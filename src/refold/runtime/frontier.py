"""What a recorded event is to the code."""

from __future__ import annotations

from enum import Enum, auto

from refold.events.catalog.run import TERMINAL
from refold.events.envelope import Event
from refold.runtime.operations import Operation


class Role(Enum):
    """What an event of a run's stream is to its code."""

    NONE = auto()
    OUTCOME = auto()
    PROGRESS = auto()
    PART = auto()
    SIGNAL = auto()
    STOP = auto()
    TERMINAL = auto()


_ROLES: dict[str, Role] = {
    **dict.fromkeys(
        (
            "step.completed",
            "step.failed",
            "tool.answered",
            "tool.refused",
            "tool.replayed",
            "inference.completed",
            "timer.fired",
            "child.ended",
            "operation.refused",
            "run.checkpointed",
        ),
        Role.OUTCOME,
    ),
    **dict.fromkeys(
        (
            "tool.claimed",
            "tool.dispatched",
            "tool.doubted",
            "inference.requested",
            "inference.lost",
            "child.started",
        ),
        Role.PROGRESS,
    ),
    "inference.part": Role.PART,
    "signal.received": Role.SIGNAL,
    "run.stop_requested": Role.STOP,
    **dict.fromkeys(TERMINAL, Role.TERMINAL),
}


def role_of(event: Event) -> Role:
    """An attempt that another follows is progress, and so is a doubt until it is resolved."""
    kind = event.type
    if kind == "tool.failed" or kind == "inference.failed":
        return Role.PROGRESS if event.facts.retrying else Role.OUTCOME
    if kind == "tool.resolved":
        return Role.OUTCOME if event.facts.resolution in ("happened", "abandon") else Role.PROGRESS
    return _ROLES.get(kind, Role.NONE)


_KINDS: dict[str, tuple[str, ...]] = {
    "step": ("step", "env"),
    "tool": ("tool",),
    "inference": ("infer",),
    "child": ("child",),
    "timer": ("timer",),
    "run": ("checkpoint",),
}
"""Kinds of operation by the family of the events that they leave."""
_KINDS_OF = {
    each: _KINDS[each.partition(".")[0]]
    for each in (*_ROLES, "tool.failed", "tool.resolved", "inference.failed")
    if each.partition(".")[0] in _KINDS and each not in TERMINAL
}

_CALLED = {
    "step": "a step",
    "env": "an environment variable",
    "tool": "a tool call",
    "infer": "an inference",
    "child": "a child run",
    "timer": "a timer",
    "signal": "a signal",
    "checkpoint": "a checkpoint",
}


def kinds_of(event: Event) -> tuple[str, ...]:
    """The kinds of operation that leave such an event at their site."""
    if event.type == "operation.refused":
        refused = event.facts.operation
        return ("step", "env", "timer", "checkpoint") if refused == "step" else (refused,)
    return _KINDS_OF.get(event.type, ())


def called(kind: str) -> str:
    """A kind of operation, for people."""
    return _CALLED[kind]


def other_kind(event: Event, operation: Operation) -> str | None:
    """How the operation at an event's site is of another kind than the one on record; None where it is not."""
    kinds = kinds_of(event)
    if operation.ask.kind in kinds:
        return None
    return f"{called(kinds[0]) if kinds else event.type} is now {called(operation.ask.kind)}"
