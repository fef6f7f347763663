"""What it means when code and record part: the report that a run is paused with, or that a replay gives."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import msgspec

from refold.errors import RefoldError
from refold.events.envelope import Event
from refold.events.values import UnknownType, ValueDamaged
from refold.runtime.divergence import REMEDIES, Divergence, DivergenceKind, first_difference
from refold.runtime.errors import nothing_moves
from refold.runtime.failures import message_of
from refold.runtime.frontier import Role, called, kinds_of, role_of
from refold.runtime.operations import Fields, Operation

if TYPE_CHECKING:
    from refold.runtime.executor import Executor


EndDifference = Callable[[Event, Fields, "Executor"], tuple[Any, Any, str] | None]
"""Compares the end on record with the code's: what was recorded, what it is now, and how they differ; None: equal."""


class Comparison:
    """Makes divergences."""

    def __init__(self, end: EndDifference) -> None:
        self._end = end

    def missing(self, event: Event, fields: Fields, executor: Executor) -> Divergence:
        """The record goes on with an operation that the code does not ask for."""
        waiting = [each for each in executor.asked.values() if not each.recorded]
        nearest = min(waiting, key=lambda each: _distance(event, fields, each), default=None)
        if executor.main.done():
            error = executor.outcome()[1]
            how = "" if error is None else f", with {type(error).__name__}: {message_of(error)}"
            instead = f"the workflow's function has ended{how}"
        elif nearest is None:
            instead = "the code asks for nothing new"
        else:
            instead = (
                f"the code asks for {called(nearest.ask.kind)} at {nearest.site}{_likeness(event, fields, nearest)}"
            )
        kinds = kinds_of(event)
        sentence = f"the record has {called(kinds[0]) if kinds else event.type} here, and {instead}"
        return self._made(event, "missing", nearest, tree(fields), sentence, event.site)

    def changed(self, event: Event, fields: Fields, operation: Operation, difference: str) -> Divergence:
        """The site asks something else than it did."""
        kind: DivergenceKind = "state" if event.type == "run.checkpointed" else "changed"
        return self._made(event, kind, operation, tree(fields), difference, event.site)

    def spinning(
        self, error: RefoldError, following: Iterable[tuple[Event, Fields]], executor: Executor
    ) -> Divergence | None:
        """The code goes on and on where, on record, it waited - unless the record says that it was ended for that,
        when what it had out had settled.
        """
        for event, fields in following:
            role = role_of(event)
            if role is Role.TERMINAL:
                executor.failure, executor.seq = error, event.seq
                return self.end(event, fields, executor)
            out = executor.sites.of(event) in executor.asked or executor.sites.is_past(event)
            if role is not Role.NONE and not out:
                break
        return Divergence(executor.seq, None, "missing", None, None, error.message, None, error.remedy)

    def handed(self, operation: Operation, event: Event, fields: Fields) -> Divergence | None:
        """Hands an outcome to the code; the divergence where the code's classes cannot hold it."""
        try:
            operation.settle(event, fields)
        except (UnknownType, ValueDamaged) as error:
            return self._made(event, "type", operation, tree(fields), error.message, operation.site)
        return None

    def unbegun(self, seq: int, error: RefoldError) -> Divergence:
        """The code's classes cannot hold the input of the run, or the state of its checkpoint."""
        return Divergence(seq, None, "type", None, None, error.message, None, REMEDIES["type"])

    def end(self, event: Event, fields: Fields, executor: Executor) -> Divergence | None:
        """The record's end against the code's."""
        if not executor.main.done() and not executor.asked:
            executor.failure = executor.failure or nothing_moves()
        if not executor.main.done() and executor.failure is None:
            waiting = next((each for each in executor.asked.values() if not each.cancelling), None)
            asks = "waits" if waiting is None else f"asks for {called(waiting.ask.kind)} at {waiting.site}"
            sentence = f"the record ends here with {event.type}, and the code {asks}"
            return self._made(event, "extra", waiting, tree(fields), sentence, waiting.site if waiting else None)
        difference = self._end(event, fields, executor)
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


def _distance(event: Event, fields: Fields, operation: Operation) -> tuple[bool, bool, bool, bool]:
    """How unlike an operation is to the one on record: by name, by what is asked, by kind; timers come last."""
    return (
        operation.ask.kind == "timer" and event.type != "timer.fired",
        operation.ask.kind not in kinds_of(event),
        operation.ask.name != _name_of(event),
        _asks_other(fields, operation),
    )


def _likeness(event: Event, fields: Fields, operation: Operation) -> str:
    """What the nearest operation has in common with the one on record."""
    if operation.ask.kind not in kinds_of(event):
        return ""
    if operation.ask.name == _name_of(event):
        return ", of the same name: is its task or its scope called otherwise, or is another call before it?"
    return "" if _asks_other(fields, operation) else ", which asks the same: was it renamed?"


def _name_of(event: Event) -> str:
    return event.site.rpartition("/")[2].partition("#")[0]


def _asks_other(fields: Fields, operation: Operation) -> bool:
    """Whether the record says what was asked, and the operation asks something else."""
    asked = operation.ask.request()
    for name in ("input", "arguments"):
        if name in fields:
            asks = asked.get(name) if isinstance(asked, dict) else asked
            return first_difference(msgspec.json.decode(fields[name]), asks) is not None
    return True


def tree(fields: Fields) -> Any:
    """Stored fields as a JSON tree."""
    return {name: msgspec.json.decode(raw) for name, raw in fields.items()}
