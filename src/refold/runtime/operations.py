"""What a run's code asks for, until its outcome is delivered."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from refold.events.envelope import Event
from refold.events.values import UnknownType, ValueDamaged
from refold.runtime.loop import RunFuture, RunLoop
from refold.runtime.places import Place, line_of

if TYPE_CHECKING:
    from refold.runtime.executor import Executor

Fields = dict[str, msgspec.Raw]
"""The fields of an event's content, each still in its stored form."""


class Ask(Protocol):
    """One kind of operation: what is asked, how it is compared with the record, and what its outcome means.

    `outcome` is the one function that turns a recorded delivery into what the code gets; live, resumed and replayed
    runs all use it.
    """

    @property
    def kind(self) -> str:
        """step, tool, infer, child, timer, signal, checkpoint"""
        ...

    @property
    def name(self) -> str:
        """What stands in the site: the step's, tool's, model's name."""
        ...

    @property
    def drains(self) -> bool:
        """Whether a cancellation waits until the operation has settled."""
        ...

    def difference(self, event: Event, fields: Fields) -> str | None:
        """How what is asked differs from what this event of the same site recorded; None: it does not, or the event
        does not say what was asked.
        """
        ...

    def outcome(self, event: Event, fields: Fields) -> Any:
        """What the code gets; raises what it gets raised."""
        ...

    def request(self) -> Any:
        """What is asked, as a JSON tree for people."""
        ...


class Operation(RunFuture):
    """An operation, and the future that the code awaits.

    Cancelling one that drains is remembered and takes effect when its outcome is known: the code sees the cancellation
    then, and not before.
    """

    def __init__(self, ask: Ask, site: str, executor: Executor, loop: RunLoop, place: Place | None) -> None:
        super().__init__(loop=loop)
        self.ask = ask
        self.site = site
        self._place = place
        self.begun = False
        """Its turn has ended: it was started, or it waits for the frontier. From here on it may have effects."""
        self.cancelling = False
        self.recorded: list[tuple[Event, Fields]] = []
        """What the record holds of it besides its outcome: an attempt that was sent, say."""
        self.work: asyncio.Future[Any] | asyncio.TimerHandle | None = None
        """What the host does for it."""
        self._executor = executor
        self._message: Any = None

    @property
    def in_doubt(self) -> bool:
        """Whether it was sent, and is not known how it ended: there is nothing to wait for but a resolution."""
        return bool(self.recorded) and self.recorded[-1][0].type == "tool.doubted"

    @property
    def at(self) -> str | None:
        """Where in the code it was asked for, as file and line."""
        return None if self._place is None else line_of(self._place)

    def cancel(self, msg: Any = None) -> bool:
        if self.done():
            return False
        if self.begun and self.ask.drains and not self.in_doubt:
            self._message = msg
            if not self.cancelling:  # A cancel scope says it again and again.
                self.cancelling = True
                self._executor.operation_cancelled(self)
            return True
        super().cancel(msg)
        self._executor.operation_cancelled(self)
        return True

    def settle(self, event: Event, fields: Fields) -> None:
        """Hands the recorded outcome to the code, or the cancellation that waited for it. Raises UnknownType,
        ValueDamaged when the record does not fit the code's classes.
        """
        if self.cancelled():
            return
        if self.cancelling:
            super().cancel(self._message)
            return
        try:
            value = self.ask.outcome(event, fields)
        except (UnknownType, ValueDamaged):
            raise  # What was recorded cannot be made again by this code: nothing may stand in for it.
        except Exception as error:  # noqa: BLE001 - the outcome is this exception
            self.set_exception(error)
        else:
            self.set_result(value)
