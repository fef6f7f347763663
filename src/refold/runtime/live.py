"""The source of a live run: what the record has no outcome of is performed, and its outcome becomes a fact.

Everything happens on the host's loop. A performer returns drafts; they are appended when their turn to be delivered
has come, so that the order of seq is the order of delivery.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import msgspec

from refold.errors import RefoldError
from refold.events.catalog.run import Reason, RunPaused, RunResumed
from refold.events.catalog.steps import OperationRefused
from refold.events.content import Encoded, open_content
from refold.events.envelope import Event
from refold.ledger.drafts import Draft
from refold.ledger.writer import StreamWriter
from refold.runtime.budget import Spent
from refold.runtime.calls import Calls
from refold.runtime.divergence import Divergence
from refold.runtime.ending import Ending
from refold.runtime.errors import BudgetExceeded, nothing_moves
from refold.runtime.executor import Executor
from refold.runtime.failures import encode_error
from refold.runtime.frontier import Role, role_of
from refold.runtime.operations import Fields, Operation
from refold.runtime.performers import Performer
from refold.runtime.steps import Codec

_log = logging.getLogger("refold.runtime")


Content = Callable[[Event], dict[str, bytes]]
"""Reads the content of an event that was just appended, field by field, still encoded."""


class Arrival:
    """What came for the code: the drafts of its events, the delivered one first, or the function that makes them when
    it is their turn.
    """

    __slots__ = ("content", "delivers", "drafts", "fields", "operation", "urgent")

    def __init__(
        self,
        operation: Operation | None,
        drafts: list[Draft] | Callable[[], list[Draft]],
        *,
        fields: Fields | None = None,
        content: Content | None = None,
        delivers: str | None = None,
        urgent: bool = False,
    ) -> None:
        self.operation = operation
        self.drafts = drafts
        self.fields = fields
        """The delivered event's content, where only its performer has it; `content` reads it from the event."""
        self.content = content
        self.delivers = delivers
        self.urgent = urgent
        """A receipt: it is made durable at once, whatever the code does next."""


def _fields_of(event: Event, draft: Draft) -> Fields:
    """What stands in the content of an event that was just appended."""
    if draft.content and all(type(field) is Encoded for field in draft.content.values()):
        return {name: msgspec.Raw(field.data) for name, field in draft.content.items()}  # Closed, it is the same bytes.
    content = event.stored.content
    return {} if content is None else open_content(content).values


class Live:
    """One live execution's source of outcomes."""

    def __init__(
        self,
        writer: StreamWriter,
        codec: Codec,
        spent: Spent,
        ending: Ending,
        calls: Calls,
        performers: Sequence[Performer],
    ) -> None:
        self.writer = writer
        self.codec = codec
        self.spent = spent
        self.executor: Executor
        self._ending = ending
        self._calls = calls
        self.left: set[str] = set()
        """Calls whose tool may be left in doubt, and that the code does not wait for any more."""
        self._performers = {kind: each for each in performers for kind in each.kinds}
        self._host = asyncio.get_running_loop()
        self._own = False
        self.paused: str | None = None
        """Why the run is paused, as its record says."""
        self.divergences: list[Divergence] = []
        self.outstanding: dict[str, str] = {}
        """Sites of what the host still does for the run, though the code may not wait for it any more."""
        self._held: list[Operation] = []
        self._tasks: set[asyncio.Future[Any]] = set()
        self._taken: list[str] = []
        """Keys of items that asked for nothing new: the next event is their receipt."""
        self.moved = asyncio.Event()
        """Set whenever the run paused, went on, or ended."""
        self.rested: Callable[[], None] = lambda: None
        """Called when the code has been told everything and waits."""
        writer.appended = self._appended

    # What the executor asks for.

    def frontier(self, left: Sequence[Operation]) -> None:
        self._calls.take_up(self)
        for operation in left:
            self._performers[operation.ask.kind].left(operation, self)

    def begin(self, operation: Operation) -> None:
        if self.paused == "requested":
            self._held.append(operation)
            return
        try:
            self._spend(operation)
        except BudgetExceeded as error:
            self.refuse(operation, error)
            return
        self._performers[operation.ask.kind].begin(operation, self)

    def _spend(self, operation: Operation) -> None:
        if operation.recorded:
            return  # It was counted when it was sent.
        kind = operation.ask.kind
        if kind in ("tool", "step", "infer", "child"):
            self.spent.time(self.now())
            self.spent.step()
        if kind == "tool":
            self.spent.call()

    def cancelled(self, operation: Operation) -> None:
        self._performers[operation.ask.kind].cancelled(operation, self)

    def record(self, arrival: Arrival) -> tuple[Event, Fields]:
        drafts = arrival.drafts if isinstance(arrival.drafts, list) else arrival.drafts()
        if self.paused in ("in_doubt", "waiting"):
            self._resumed()
        self._own = True
        try:
            event = self.writer.append(drafts[0], delivers=arrival.delivers or self._receipt())
            for draft in drafts[1:]:
                self.writer.append(draft)
        finally:
            self._own = False
        if arrival.urgent:
            self.spawn(self._durable())
        if arrival.fields is not None:
            return event, arrival.fields
        if arrival.content is not None:
            return event, {name: msgspec.Raw(data) for name, data in arrival.content(event).items()}
        return event, _fields_of(event, drafts[0])

    def unwanted(self, arrival: Arrival) -> None:
        assert arrival.operation is not None
        if arrival.operation.ask.kind in ("tool", "infer") and isinstance(arrival.drafts, list):
            self.note(arrival.drafts)

    def given_up(self, event: Event) -> None:
        self._calls.given_up(event)

    def diverged(self, divergence: Divergence) -> bool:
        self.divergences.append(divergence)
        return False

    def idle(self) -> None:
        executor = self.executor
        asked = list(executor.asked.values())
        if not asked and not executor.main.done():
            executor.failure = nothing_moves()
            self.ended()
            return
        if not asked:
            return
        doubtful = [each for each in asked if self._in_doubt(each)]
        others = [each for each in asked if each not in doubtful]
        if doubtful and self.paused is None and all(each.ask.kind == "signal" for each in others):
            self.spawn(self.pause("in_doubt"))
        elif not doubtful and self.paused == "in_doubt":
            self._resumed()  # Somebody resolved it while nobody had the run.
        elif self.paused is not None:
            self.moved.set()  # It is known now that the pause still stands.
        self.rested()

    @property
    def rests(self) -> bool:
        """Whether nothing is under way: only time, a signal, a child or a resolution can move the code."""
        if not self.executor.quiet or self.executor.main.done() or self._calls.gateway.probing:
            return False
        asked = self.executor.asked.values()
        return all(each.in_doubt or each.ask.kind in ("timer", "signal", "child") for each in asked)

    def stands(self) -> bool:
        """Whether the run's pause, as its record says it, still holds: nothing that is known, and no probe that is
        being asked, may have ended it.
        """
        if not self.executor.quiet:
            return False
        if self.paused != "in_doubt":
            return True
        doubts = [each.recorded[-1][0].facts.tool_call_id for each in self.executor.asked.values() if each.in_doubt]
        return set(doubts) <= set(self._calls.doubts()) and not self._calls.gateway.probing

    def _in_doubt(self, operation: Operation) -> bool:
        """Whether only a resolution can move it: of its own doubt, or of that of an equal call, for which it waits."""
        if operation.in_doubt:
            return True
        waits = self.outstanding.get(operation.site) in self._calls.doubts()
        return waits and any(call.status == "in_doubt" for call in self.writer.open_calls())

    def ended(self) -> None:
        if self._ending.begun:
            return
        waits = [call for call in self._out() if call not in self.left]
        if waits:
            if self.paused is None and set(waits) <= set(self._calls.doubts()):
                self.spawn(self.pause("in_doubt"))
            return
        if all(call in self.left for call in self.outstanding.values()):
            self._ending.begun = True
            self.spawn(self._close())

    def _out(self) -> list[str]:
        """Tool calls of which it is not known how they ended."""
        return [each.tool_call_id for each in self.writer.open_calls() if each.status in ("dispatched", "in_doubt")]

    async def _close(self) -> None:
        value, error = self.executor.outcome()
        if self.paused is not None:
            self._resumed()
        for draft in self._calls.abandoned(self.left):
            self._append(draft)
        self._append(self._ending.draft(value, error))
        self.executor.closed = True
        await self.writer.barrier()
        self._calls.ended()
        await self.writer.close()
        self.executor.stop()
        self.moved.set()

    # What performers and whoever has the run ask for.

    def arrive(
        self,
        operation: Operation,
        drafts: list[Draft],
        *,
        fields: Fields | None = None,
        content: Content | None = None,
        urgent: bool = False,
    ) -> None:
        """An operation's outcome is there."""
        self.executor.arrive(Arrival(operation, drafts, fields=fields, content=content, urgent=urgent))

    def note(self, drafts: list[Draft]) -> None:
        """An outcome that nobody waits for any more is recorded all the same, while the run can hold it."""
        if self.executor.closed:
            return  # It came to a call that was left behind in doubt.
        for draft in drafts:
            self.writer.append(draft)
        self.spawn(self._durable())
        self.executor.schedule()

    def later(self, operation: Operation, make: Callable[[], list[Draft]]) -> None:
        """An operation's outcome will be made when its turn has come."""
        self.executor.arrive(Arrival(operation, make))

    def part(self, operation: Operation, draft: Draft) -> None:
        """A piece of an outcome that code is given before the whole is there."""
        self.executor.arrive(Arrival(operation, [draft]))

    def post(self, draft: Draft, delivers: str | None) -> None:
        """Something from outside that the code is told."""
        self.executor.arrive(Arrival(None, [draft], delivers=delivers))

    def stopping(self, why: str) -> bool:
        """Notes that the run is to stop; False when it was told before."""
        first = self._ending.stopping is None
        self._ending.stopping = self._ending.stopping or why
        return first

    def refuse(self, operation: Operation, error: RefoldError) -> None:
        """The operation is refused before it began; the code gets the error, now and in every replay."""
        kind: Any = operation.ask.kind if operation.ask.kind in ("step", "tool", "infer", "child") else "step"
        facts = OperationRefused(self.id("st"), kind, operation.ask.name, error.code)
        draft = Draft(facts, {"error": self.error(error)}, error=error.message, site=operation.site)
        self.arrive(operation, [draft])

    def error(self, error: BaseException) -> Encoded:
        """An exception in its stored form."""
        return encode_error(error, self.codec.errors, self.codec.types)

    def id(self, prefix: str) -> str:
        return self._ending.ids.new(prefix)

    def now(self) -> int:
        return self._ending.clock.now()

    def monotonic(self) -> int:
        return self._ending.clock.monotonic()

    def call_later(self, seconds: float, function: Callable[[], None]) -> asyncio.TimerHandle:
        return self._host.call_later(seconds, function)

    def spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Host work on behalf of the run. What it raises ends this execution, and whoever waits for it is told."""
        task = self._host.create_task(work, context=contextvars.Context())
        self._tasks.add(task)
        task.add_done_callback(self._finished)
        return task

    def _finished(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            self.executor.stop(task.exception())

    async def _durable(self) -> None:
        await self.writer.barrier()

    async def pause(self, reason: Reason, drafted: dict[str, Any] | None = None, delivers: str | None = None) -> None:
        """Says in the record that the run waits, and for what. What the run found out by itself says nothing new of a
        run that waits already, and there is nothing more to say of one that has ended.
        """
        if self.executor.closed or (self.paused is not None and reason in ("in_doubt", "waiting")):
            return
        self.paused = reason
        self._append(Draft(RunPaused(reason), drafted), delivers)
        await self.writer.barrier()
        self.moved.set()

    def unpause(self, delivers: str | None = None) -> None:
        """Whoever brought what the run waited for says so before anything else is appended."""
        if self.paused is not None:
            self._resumed(delivers)
        elif delivers is not None:
            self._taken.append(delivers)
        held, self._held = self._held, []
        for operation in held:
            if not operation.done():
                self.begin(operation)
        self.executor.schedule()

    def _resumed(self, delivers: str | None = None) -> None:
        self.paused = None
        self._append(Draft(RunResumed()), delivers)
        self.moved.set()

    def _receipt(self) -> str | None:
        return self._taken.pop() if self._taken else None

    def _append(self, draft: Draft, delivers: str | None = None) -> None:
        own, self._own = self._own, True
        try:
            self.writer.append(draft, delivers=delivers or self._receipt())
        finally:
            self._own = own

    def _appended(self, event: Event) -> None:
        if self._own:
            return
        if self.paused in ("in_doubt", "waiting") and event.type in ("tool.resolved", "tool.dispatched"):
            self._resumed()
        role = role_of(event)
        if role is Role.OUTCOME and self.executor.sites.is_past(event):
            # At once: an equal call that waits for this one looks as soon as the answer is there, and must know that
            # nobody got it.
            self._calls.given_up(event)
        if event.site and role is not Role.NONE:
            self.executor.progressed(event)

    async def end(self) -> None:
        """Lets go of everything that is under way, in this process only."""
        self.writer.appended = None
        self._calls.close()
        tasks = [each for each in self._tasks if not each.done() and each is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
