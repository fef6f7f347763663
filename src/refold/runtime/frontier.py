"""What a recorded event is to the code, and what it means when code and record part."""

from __future__ import annotations

from enum import Enum, auto
from typing import TYPE_CHECKING, Any

import msgspec

from refold.errors import RefoldError
from refold.events.catalog.run import TERMINAL
from refold.events.envelope import Event
from refold.runtime.divergence import REMEDIES, Divergence, DivergenceKind
from refold.runtime.operations import Fields, Operation

if TYPE_CHECKING:
    from refold.runtime.executor import Executor


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


class Comparison:
    """Makes divergences. `output` turns an execution's end into what its terminal event would hold."""

    def __init__(self, end: Any) -> None:
        self._end = end

    def missing(self, event: Event, fields: Fields, executor: Executor) -> Divergence:
        """The record goes on with an operation that the code does not ask for."""
        waiting = [each for each in executor.asked.values() if not each.recorded and each.ask.kind != "timer"]
        held = ", ".join(each.site for each in waiting) or "nothing"
        if executor.main.done():
            held = "the workflow's function has ended"
        else:
            held = f"the code waits for {held}"
        nearest = next(
            (each for each in waiting if each.ask.name == event.site.rpartition("/")[2].partition("#")[0]), None
        )
        nearest = nearest or (waiting[0] if waiting else None)
        sentence = f"the record has {event.type}, and {held}"
        return self._made(event, "missing", nearest, tree(fields), sentence, event.site)

    def changed(self, event: Event, fields: Fields, operation: Operation, difference: str) -> Divergence:
        """The site asks something else than it did."""
        return self._made(event, "changed", operation, tree(fields), difference, event.site)

    def spinning(self, seq: int, error: RefoldError) -> Divergence:
        """The code goes on and on where, on record, it waited."""
        return Divergence(seq, None, "missing", None, None, error.message, None, error.remedy)

    def unreadable(self, event: Event, operation: Operation, error: RefoldError) -> Divergence:
        """What was recorded does not fit the code's classes."""
        return self._made(event, "type", operation, event.type, error.message, event.site)

    def end(self, event: Event, fields: Fields, executor: Executor) -> Divergence | None:
        """The record's end against the code's."""
        if not executor.main.done():
            waiting = next((each for each in executor.asked.values() if not each.cancelling), None)
            sentence = f"the record has {event.type}, and the code asks for {waiting.site if waiting else 'nothing'}"
            return self._made(event, "extra", waiting, tree(fields), sentence, waiting.site if waiting else None)
        difference: tuple[Any, Any, str] | None = self._end(event, fields, executor)
        if difference is None:
            return None
        recorded, attempted, sentence = difference
        return Divergence(event.seq, None, "output", recorded, attempted, sentence, None, REMEDIES["output"])

    def _made(
        self,
        event: Event,
        kind: DivergenceKind,
        operation: Operation | None,
        recorded: Any,
        sentence: str,
        step: str | None,
    ) -> Divergence:
        attempted = None if operation is None else {"site": operation.site, "asks": operation.ask.request()}
        at = None if operation is None else operation.at
        return Divergence(event.seq, step, kind, recorded, attempted, sentence, at, REMEDIES[kind])


def tree(fields: Fields) -> Any:
    """Stored fields as a JSON tree."""
    return {name: msgspec.json.decode(raw) for name, raw in fields.items()}
