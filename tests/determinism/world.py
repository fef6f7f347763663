"""A host whose time and whose answers come when a seed says so, and a watch over what a run's code asks and is told."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from weakref import WeakKeyDictionary

import msgspec
import pytest

from refold import Abandon, Happened, Resend
from refold.events.envelope import Event
from refold.runtime.executor import Executor
from refold.runtime.live import Live
from refold.runtime.loop import RunLoop
from refold.runtime.opened import Refold
from refold.runtime.operations import Operation

START_US = 1_790_000_000_000_000


class SeededLoop(asyncio.SelectorEventLoop):
    """A host loop whose time stands still until somebody moves it."""

    us = 0

    def time(self) -> float:
        return self.us / 1_000_000


class LoopClock:
    """The wall clock that belongs to such a loop."""

    def __init__(self, loop: SeededLoop) -> None:
        self._loop = loop

    def now(self) -> int:
        return START_US + self._loop.us

    def monotonic(self) -> int:
        return self._loop.us * 1000

    def since_boot(self) -> int:
        return self._loop.us


_parked: dict[int, asyncio.Future[None]] = {}
"""Steps and tools that wait for the world, by the number they were given."""


async def parked(number: int) -> None:
    """Waits until the world lets this one go."""
    future = _parked[number] = asyncio.get_running_loop().create_future()
    try:
        await future
    finally:
        if _parked.get(number) is future:
            del _parked[number]


class Stuck(AssertionError):
    """A run does not come to rest."""


class World:
    """Decides for one run, from a seed, which answer, timer or signal comes next."""

    def __init__(self, rf: Refold, run_id: str, seed: str) -> None:
        self._rf = rf
        self._run_id = run_id
        self._random = random.Random(seed)
        self._loop = asyncio.get_running_loop()
        assert isinstance(self._loop, SeededLoop)
        self._host: SeededLoop = self._loop
        self._deciding: asyncio.Task[Any] | None = None

    async def drive(self, upto: int | None = None) -> Live | None:
        """Lets things happen until the run is over (None), or its record has come to a seq."""
        running = self._rf.running(self._run_id)
        assert running is not None
        while not running.over:
            live = await self._rest()
            if live is None:
                break
            if upto is not None and live.writer.head.seq >= upto:
                return live
            await self._let_something_happen(live)
        await running.task  # What broke it is raised here.
        if running.error is not None:
            raise running.error
        return None

    async def _rest(self) -> Live | None:
        """Waits until the run's code waits for nothing but what is decided here."""
        running = self._rf.running(self._run_id)
        assert running is not None
        for spins in range(1, 200_000):
            await asyncio.sleep(0)
            if running.over:
                return None
            live = running.live
            if spins % 1000 == 0 and live is not None and (live.outstanding or self._deciding is not None):
                self._host.us += 100_000  # The gateway waits before it sends again what was out when the run stopped.
            if self._deciding is not None and not self._deciding.done():
                continue
            if live is not None and live.executor.at_frontier and self._resting(live):
                return live
        raise Stuck(f"{list(running.live.executor.asked) if running.live else 'not begun'}, {sorted(_parked)}")

    def _resting(self, live: Live) -> bool:
        executor = live.executor
        if executor._scheduled or (not executor.asked and not _parked and live.paused is None):
            return False  # It goes on by itself, or ends.
        if not executor.asked and not executor.main.done():
            return False  # A segment that has just begun: its code has not asked for anything yet.
        return all(self._ours(each) for each in executor.asked.values())

    def _ours(self, operation: Operation) -> bool:
        ask: Any = operation.ask
        if not operation.begun:
            return False
        if operation.in_doubt:
            return True
        match ask.kind:
            case "timer":
                return bool(ask.due_us > START_US + self._host.us)
            case "signal":
                return True
            case "step":
                return bool(ask.args and ask.args[0] in _parked and not _parked[ask.args[0]].done())
            case "tool":
                number = ask.arguments["number"]
                return number in _parked and not _parked[number].done()
        return False

    async def _let_something_happen(self, live: Live) -> None:
        asked = list(live.executor.asked.values())
        timers = [each for each in asked if each.ask.kind == "timer"]
        signals = [each.ask.waits_for for each in asked if each.ask.kind == "signal"]  # type: ignore[attr-defined]
        waiting = sorted(_parked)
        choices = [("answer", each) for each in waiting] + [("signal", each) for each in signals]
        choices += [("time", 0)] * bool(timers)
        choices += [("doubt", each.tool_call_id) for each in live.writer.open_calls() if each.status == "in_doubt"]
        if not choices:
            raise Stuck(f"nothing can happen: {[each.site for each in asked]}")
        what, which = self._random.choice(choices)
        if what == "answer":
            # Sometimes two in one turn of the host.
            for number in {which, self._random.choice(waiting)} if self._random.random() < 0.3 else {which}:
                if not _parked[number].done():
                    _parked[number].set_result(None)
        elif what == "doubt":
            self._deciding = asyncio.create_task(self._decide(live, str(which)))
        elif what == "signal":
            await self._rf.signal(self._run_id, str(which), self._random.random())
        else:
            due = min(each.ask.due_us for each in timers)  # type: ignore[attr-defined]
            late = self._random.choice((0, 0, 0, 5000, 500_000))
            self._host.us = max(self._host.us, due - START_US + late) + 1

    async def _decide(self, live: Live, call: str) -> None:
        await live.writer.barrier()
        decision = self._random.choice([Happened(len(_parked)), Resend(), Abandon()])
        await self._rf.resolve(call, decision, basis="a seed", by="the world")


# The watch.

Trace = list[Any]
_traces: WeakKeyDictionary[RunLoop, Trace] = WeakKeyDictionary()


def say(*what: Any) -> None:
    """The code of a run says where it is; it stands in the trace of this execution."""
    loop = asyncio._get_running_loop()  # None when the collector ends what nobody waits for.
    trace = _traces.get(loop) if isinstance(loop, RunLoop) and not loop.is_closed() else None
    if trace is not None:
        trace.append(["says", *what])


@contextmanager
def watched() -> Iterator[dict[str, list[Trace]]]:
    """The traces of all executions from here on, by run and in order: what was asked where, what was told when."""
    found: dict[str, list[Trace]] = {}
    mine: WeakKeyDictionary[Executor, Trace] = WeakKeyDictionary()

    def after_segment(self: Executor, segment: int, *_: Any) -> None:
        if self not in mine:
            mine[self] = []
            found.setdefault(self._record.stream.run_id, []).append(mine[self])
        mine[self].append(["segment", segment])
        _traces[self.loop] = mine[self]

    def told(self: Executor, event: Event) -> None:
        mine[self].append(["is told", event.seq, event.type, event.site])

    with pytest.MonkeyPatch.context() as patch:

        def wrap(name: str, wrapper: Any) -> None:
            original = getattr(Executor, name)
            patch.setattr(Executor, name, lambda self, *given, **named: wrapper(original, self, *given, **named))

        def begin_segment(original: Any, self: Executor, *given: Any) -> None:
            original(self, *given)
            after_segment(self, *given)

        def register(original: Any, self: Executor, *given: Any) -> Any:
            operation = original(self, *given)
            mine[self].append(["asks", operation.site, operation.ask.request()])
            return operation

        def ahead(original: Any, self: Executor, site: str, ask: Any) -> Any:
            known = original(self, site, ask)
            if known is not None:
                mine[self].append(["asks", site, ask.request()])
                told(self, known[0])
            return known

        def settle(original: Any, self: Executor, operation: Any, event: Event, *given: Any) -> None:
            if event.type != "signal.received":
                told(self, event)
            original(self, operation, event, *given)

        def signal(original: Any, self: Executor, event: Event, *given: Any) -> None:
            told(self, event)
            original(self, event, *given)

        wrap("_begin_segment", begin_segment)
        wrap("register", register)
        wrap("ahead", ahead)
        wrap("_settle", settle)
        wrap("_signal", signal)
        yield found


def as_bytes(trace: Trace) -> bytes:
    """A trace, to be compared byte by byte."""
    return msgspec.json.encode(trace)
