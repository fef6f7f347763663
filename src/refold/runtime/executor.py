"""The executor: deliveries in, operations out. Live runs, resumed ones and replays are all this one.

It takes what is recorded first, in order of seq, and checks that the code asks again what it asked then. When the
record is exhausted - the frontier - whatever is asked and has no outcome goes to the *source* of the kind of
execution: a live run performs it, a replay ends there. Nothing else depends on the kind.
One delivery at a time: it is recorded, handed to the code, and the code runs until it is quiet; then the next. So the
order of delivery is the order of seq, live and in every replay.
"""

from __future__ import annotations

import asyncio
import sys
from collections import deque
from functools import partial
from time import perf_counter_ns
from typing import Any

from refold.events.envelope import Event
from refold.events.values import UnknownType, ValueDamaged
from refold.runtime.ahead import Known, take_outcome
from refold.runtime.comparison import Comparison
from refold.runtime.divergence import Divergence
from refold.runtime.errors import NeverQuiet, OutsideRun
from refold.runtime.frontier import Role, other_kind, role_of
from refold.runtime.loop import RunLoop, RunTask
from refold.runtime.operations import Ask, Fields, Operation
from refold.runtime.places import Place, place_of
from refold.runtime.record import Record
from refold.runtime.scope import SiteScope
from refold.runtime.segment import Main, State, discard, never_begun, outcome_of, whole
from refold.runtime.signals import Mailbox, SignalAsk
from refold.runtime.sites import Sites
from refold.runtime.source import Source
from refold.runtime.timers import TimerAsk

_SLICE = 5_000_000
"""Nanoseconds of the host's time that a run takes before others get theirs."""


class Executor:
    """One execution of one run's code. All of it happens on the host loop's thread, in callbacks of their own."""

    def __init__(self, record: Record, source: Source, main: Main, comparison: Comparison) -> None:
        self.source = source
        self._record = record
        self._main_of = main
        self._compare = comparison
        self._host = asyncio.get_running_loop()
        self.asked: dict[str, Operation] = {}
        """Operations without an outcome, in the order in which they were asked for."""
        self._left: dict[str, Operation] = {}
        """What the code gave up while the record was replayed."""
        self._new: list[Operation] = []
        self._arrived: deque[Any] = deque()
        self._progressed: deque[tuple[Event, Fields]] = deque()
        self.signals = Mailbox()
        self.seq = 0  # The last event that was delivered or passed over.
        self.at_frontier = False
        self.stopped = False
        self.closed = False  # The run has its end on record.
        self._reading: asyncio.Task[None] | None = None
        self._scheduled, self._until = False, 0
        self._over: asyncio.Future[None] = self._host.create_future()
        self.loop: RunLoop
        self.main: RunTask  # The workflow's function.
        self._begun = False
        self.segment = 0
        self.failure: BaseException | None = None  # What the code was ended with, instead of by itself.
        self._unfit: Divergence | None = None

    def start(self, after: int, started_us: int, segment: int = 0, state: State = lambda: None) -> None:
        """Makes the code's loop, for a segment that begins with event `after`; it turns in the host's next callback."""
        self._begin_segment(segment, state, started_us, after)
        self.schedule()

    async def wait(self) -> None:
        """Returns when the execution is over. Raises what broke it: an unreadable record, a lost ledger."""
        await asyncio.shield(self._over)

    def arrive(self, arrival: Any) -> None:
        """What the code waits for is there; it is recorded and delivered in its turn."""
        self._arrived.append(arrival)
        self.schedule()

    def progressed(self, event: Event) -> None:
        """The source appended an event that is no delivery; it counts from the end of the turn, as in a replay."""
        self._progressed.append((event, {}))
        self.schedule()

    @property
    def quiet(self) -> bool:
        """Whether the code has been told everything that is known, and waits."""
        return self.at_frontier and not (self._scheduled or self._arrived or self._progressed)

    def schedule(self) -> None:
        if not (self._scheduled or self.stopped or self.closed):
            self._scheduled = True
            self._host.call_soon(self._drive)

    def stop(self, error: BaseException | None = None) -> None:
        """Ends this execution, not the run: what the record holds stays, and nothing more is delivered."""
        if self.stopped:
            return
        self.stopped = True
        if self._reading is not None:
            self._reading.cancel()
        for operation in self.asked.values():
            if operation.work is not None:
                operation.work.cancel()
        discard(self.loop)
        if not self._over.done():
            self._over.set_result(None) if error is None else self._over.set_exception(error)

    # What the code asks for.

    def ask(self, ask: Ask) -> Operation:
        """Registers an operation at its site and returns the future of its outcome. Raises OutsideRun."""
        return self.register(ask, self.site(ask), place_of(sys._getframe(1)))

    def ahead(self, site: str, ask: Ask) -> Known | None:
        """The outcome of what is asked and awaited at once, where nothing but that can happen next."""
        if self.at_frontier or self.loop.busy or self._unfit is not None or perf_counter_ns() > self._until:
            return None
        known = take_outcome(self._record.events, self.sites, site, ask)
        if known is not None:
            self._end_turn()
            self.seq = known[0].seq
            self.loop.advance(known[0].recorded_at)
            self.loop.next_number()  # The operation's, had it been one.
            self.sites.settle(site)
        return known

    def site(self, ask: Ask) -> str:
        """The site of the next operation like this. Raises OutsideRun."""
        loop = self.loop
        if not loop.running_code:
            raise OutsideRun(f"{ask.kind} {ask.name!r} was asked for outside the workflow's own code.")
        return loop.scope().site(ask.name)

    def register(self, ask: Ask, site: str, place: Place | None) -> Operation:
        operation = Operation(ask, site, self, self.loop, place)
        if isinstance(ask, SignalAsk) and (waiting := self.signals.take(ask.waits_for)) is not None:
            self.sites.settle(operation.site)
            self._unfit = self._compare.handed(operation, *waiting)
            return operation
        self.asked[operation.site] = operation
        self._new.append(operation)
        self.loop.requested = True
        return operation

    def timer_set(self, handle: asyncio.TimerHandle, scope: SiteScope, delay_us: int) -> None:
        ask = TimerAsk(handle, delay_us, self.loop.now_us + delay_us)
        operation = self.register(ask, scope.site(ask.name), place_of(sys._getframe(1)))
        ask.operation = self._timers[handle] = operation

    def timer_cancelled(self, handle: asyncio.TimerHandle) -> None:
        if handle in self._timers:
            self._timers.pop(handle).cancel()

    def waiting(self) -> bool:
        return bool(self.asked)

    def operation_cancelled(self, operation: Operation) -> None:
        if self.stopped:
            return  # Code that is let go of cancels what it waits for; the run has not given it up.
        if not operation.cancelling:
            self.asked.pop(operation.site, None)
            self.sites.settle(operation.site)
        if operation.begun and self.at_frontier:
            self.source.cancelled(operation)
        elif operation.begun and not operation.cancelling:  # One that drains is begun again instead.
            self._left[operation.site] = operation

    def cut(self, operation: Operation) -> None:
        """The code wants no more of a stream; its end is still to be recorded, and awaited."""
        if not operation.begun:
            operation.cancel()
        elif self.at_frontier and not self.stopped:
            self.source.cancelled(operation)

    # Driving.

    def _drive(self) -> None:
        self._scheduled = False
        if self.stopped or self.closed:
            return
        try:
            self._until = perf_counter_ns() + _SLICE
            self._go(self._until)
        except NeverQuiet as error:
            self._never_quiet(error)
        except BaseException as error:
            self.stop(error)
            if not isinstance(error, Exception):
                raise

    def _never_quiet(self, error: NeverQuiet) -> None:
        if self._record.unread:
            return self._read()
        if self._record.exhausted and not self.at_frontier:
            self.at_frontier = True
            self.source.frontier(list(self._left.values()))
        if self.at_frontier:
            self.failure = error
            return self.schedule()  # What has arrived meanwhile comes before the end.
        if not self._diverge(self._compare.spinning(error, iter(self._record.take, None), self)):
            self.failure = error
            self.source.ended()
        return None

    def _go(self, until: int) -> None:
        if not self.at_frontier and not self._catch_up(until):
            return self.schedule()
        while not self.stopped:
            if self.failure is None and not self.loop.turn(_SLICE):  # What code that spins has out is still recorded.
                return self.schedule()
            if self._end_turn() or self.stopped or not self._next():
                return None
            if perf_counter_ns() > until:
                return self.schedule()
        return None

    def _catch_up(self, until: int) -> bool:
        """Delivers what the record holds in memory, with no look at the host in between. False: its time is over."""
        loop = self.loop
        with loop.entered():
            while loop is self.loop and not self.stopped:
                if not loop.run(until):
                    return False
                if self._end_turn():
                    return True
                while (taken := self._record.take()) is not None:
                    if self._replayed(*taken):
                        break
                else:
                    return True
                if perf_counter_ns() > until:
                    return False
        return True

    def _end_turn(self) -> bool:
        if self._unfit is not None and self._diverge(self._unfit):
            return True
        for operation in self._new:
            operation.begun = True
            if self.at_frontier and not operation.done():
                self.source.begin(operation)
        self._new.clear()
        return False

    def _next(self) -> bool:
        """Takes the next delivery and hands it to the code. False: there is none now."""
        while not self._record.exhausted:
            taken = self._record.take()
            if taken is None:
                self._read()
                return False
            if self._replayed(*taken):
                return not self.stopped
        if not self.at_frontier:
            self._reach_frontier()
            return not self.stopped
        while self._progressed:
            if self._replayed(*self._progressed.popleft()):
                return not self.stopped
        while self._arrived:
            arrival = self._arrived.popleft()
            operation = getattr(arrival, "operation", None)
            if operation is not None and operation.done():
                self.source.unwanted(arrival)  # The code has given it up meanwhile.
                continue
            event, fields = self.source.record(arrival)
            self._deliver(event, fields, role_of(event))
            return not self.stopped
        if (self.main.done() or self.failure) and not any(each.ask.drains for each in self.asked.values()):
            self.source.ended()
        else:
            self.source.idle()
        return False

    def _read(self) -> None:
        async def read() -> None:
            try:
                await self._record.read()
            except Exception as error:  # noqa: BLE001 - whoever waits for the execution is told
                self.stop(error)
            self.schedule()

        self._reading = self._host.create_task(read())

    def _reach_frontier(self) -> None:
        self.at_frontier = True
        self.source.frontier(list(self._left.values()))
        for operation in list(self.asked.values()):
            if not operation.done():
                self.source.begin(operation)

    # The record.

    def _replayed(self, event: Event, fields: Fields) -> bool:
        """Takes one recorded event. Whether no other may follow: the code runs first, or the execution is over."""
        role = role_of(event)
        self.seq = event.seq
        if role is Role.NONE:
            return False
        if role is Role.TERMINAL:
            return self._diverge(self._compare.end(event, fields, self))
        if role is Role.SIGNAL or role is Role.STOP:
            self._deliver(event, fields, role)
            return True
        site = self.sites.of(event)
        operation = self.asked.get(site)
        if operation is None:
            if site in self._left:
                self._left[site].recorded.append((event, fields))
            if not self.sites.is_past(event):
                return self._diverge(self._compare.missing(event, fields, self))
            if role is Role.OUTCOME:
                self.source.given_up(event)
            return False
        difference = other_kind(event, operation) or operation.ask.difference(event, fields)
        if difference is not None and self._diverge(self._compare.changed(event, fields, operation, difference)):
            return True
        if role is Role.PROGRESS and not (event.type == "tool.doubted" and operation.cancelling):
            # A cancellation that waits for the outcome is told that there is none to wait for.
            operation.recorded.append((event, fields))
            return False
        self.loop.advance(event.recorded_at)
        self._settle(operation, event, fields, role)
        return True

    def _deliver(self, event: Event, fields: Fields, role: Role) -> None:
        """Hands a fact to the code, which runs afterwards."""
        self.seq = event.seq
        self.loop.advance(event.recorded_at)
        if role is Role.SIGNAL:
            self._signal(event, fields)
        elif role is Role.STOP:
            self.main.cancel()
        elif (operation := self.asked.get(self.sites.of(event))) is not None:
            self._settle(operation, event, fields, role)

    def _settle(self, operation: Operation, event: Event, fields: Fields, role: Role) -> None:
        if role is Role.PART:
            operation.ask.part(event, fields)  # type: ignore[attr-defined]
            return None
        del self.asked[operation.site]
        self.sites.settle(operation.site)
        if operation.cancelling and role is Role.OUTCOME:
            self.source.given_up(event)
        if event.type == "run.checkpointed":
            state = partial(operation.ask.outcome, event, fields)
            return self._begin_segment(event.facts.segment, state, event.recorded_at, event.seq)
        if type(operation.ask) is TimerAsk:
            self._timers.pop(operation.ask.handle, None)
            self.loop.advance(operation.ask.due_us)
            self.loop.fire(operation.ask.handle)
            return None
        self._diverge(self._compare.handed(operation, event, fields))
        return None

    def _signal(self, event: Event, fields: Fields) -> None:
        for operation in self.asked.values():
            if isinstance(operation.ask, SignalAsk) and operation.ask.waits_for == event.facts.signal:
                self._settle(operation, event, fields, Role.SIGNAL)
                return
        self.signals.put(event, fields)

    def _diverge(self, divergence: Divergence | None) -> bool:
        """Whether the execution ends here."""
        if divergence is None or self.source.diverged(divergence):
            return False
        if not self.stopped:
            self.stop()
        return True

    def _begin_segment(self, number: int, state: State, started_us: int, seq: int) -> None:
        if self._begun:
            discard(self.loop)
        self._begun = True
        self.segment = number
        self.failure = None
        self.sites = Sites(number)
        self._timers: dict[asyncio.TimerHandle, Operation] = {}
        self.loop = RunLoop(self, SiteScope(None, str(number)), started_us)
        try:
            code = self._main_of(number, state())
        except (UnknownType, ValueDamaged) as error:
            self.main = self.loop.create_main(never_begun())
            self._diverge(self._compare.unbegun(seq, error))
        else:
            self.main = self.loop.create_main(whole(self.loop, code))

    def outcome(self) -> tuple[Any, BaseException | None]:
        """How the workflow's function ended: its value, or what it raised."""
        if self.failure is not None:
            return None, self.failure
        return outcome_of(self.main)
