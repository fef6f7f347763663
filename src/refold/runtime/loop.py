"""The deterministic event loop of one run: a ready list, timers that are operations, and nothing else.

No sockets, no threads, no wall clock. It runs inside a callback of the host's loop, a turn at a time: a turn ends when
the code is quiet, and only then the next delivery is taken. The order in which things become ready is thus a function
of the order of deliveries, which is the order of seq. The idea is that of Temporal's workflow loop; the rules of what
is quiet and of what a timer is are ours.
"""

from __future__ import annotations

import asyncio
import contextvars
import gc
import logging
import sys
from asyncio import events
from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import AbstractContextManager
from time import perf_counter_ns
from typing import Any, Protocol

from refold.runtime import misuse, ordered
from refold.runtime.errors import NeverQuiet
from refold.runtime.refusals import Refusals, refuse
from refold.runtime.scope import SiteScope, current_scope, escaped

_log = logging.getLogger("refold.runtime")

_PATIENCE = 200_000
"""Passes of the ready list between two operations, after which code that never waits is told so."""
_LOOK = 16
"""Passes between two looks at the real clock."""
_STIR = 1024
"""Passes after which tasks that only a cancel scope keeps moving are quiet, if there is something to wait for."""


class Timers(Protocol):
    """Who makes timers of a run's loop into operations."""

    def timer_set(self, handle: asyncio.TimerHandle, scope: SiteScope, delay_us: int) -> None: ...

    def timer_cancelled(self, handle: asyncio.TimerHandle) -> None: ...

    def waiting(self) -> bool:
        """Whether anything was asked for that has no outcome yet."""
        ...


class RunFuture(asyncio.Future[Any]):
    """A future whose place in a set depends on when it was made, not on where in memory."""

    def __init__(self, *, loop: RunLoop) -> None:
        self.number = loop.next_number()
        super().__init__(loop=loop)

    def __hash__(self) -> int:
        return self.number


class RunTask(asyncio.Task[Any]):
    """A task with the same property: `asyncio.wait` and task groups keep their tasks in sets."""

    def __init__(self, coro: Any, *, loop: RunLoop, name: str | None, context: contextvars.Context) -> None:
        self.number = loop.next_number()
        super().__init__(coro, loop=loop, name=name, context=context)

    def __hash__(self) -> int:
        return self.number


class _Turns(AbstractContextManager[None]):
    """Around each turn of a loop. Not a generator: it costs as much as what it does, and each delivery has one."""

    def __init__(self, loop: RunLoop) -> None:
        self._loop = loop

    def __enter__(self) -> None:
        self._loop.enter()

    def __exit__(self, *error: object) -> None:
        self._loop.leave()


class RunLoop(Refusals):
    """The loop of one segment of one run."""

    def __init__(self, timers: Timers, root: SiteScope, started_us: int) -> None:
        self._timers = timers
        self.root = root
        self._started_us = started_us
        self._now_us = started_us
        self._ready: deque[asyncio.Handle] = deque()
        self._numbers = 0
        self._generators: list[AsyncGenerator[Any, Any]] = []
        self._prune_at = 64
        self._passes = 0
        self._repeating: list[Any] = []
        self._closed = False
        self.requested = False
        """Set by whoever registers an operation: the pass in which it happened was not a quiet one."""
        self._context = contextvars.Context()
        self._context.run(current_scope.set, root)
        self._entered = False
        self._turns = _Turns(self)

    # Time.

    @property
    def now_us(self) -> int:
        """The time of the current delivery, in microseconds UTC; it never goes back."""
        return self._now_us

    def advance(self, to_us: int) -> None:
        """A delivery was recorded at this time."""
        self._now_us = max(self._now_us, to_us)

    def time(self) -> float:
        """Seconds since the segment's start, as of the current delivery: the recorded clock."""
        return (self._now_us - self._started_us) / 1_000_000

    # A turn.

    def turn(self, budget_ns: int) -> bool:
        """Runs the code until it is quiet. False: the budget of real time was used up before, and a further call goes
        on; that changes when code runs, not in which order. Raises NeverQuiet.
        """
        with self.entered():
            return self.run(perf_counter_ns() + budget_ns)

    def entered(self) -> AbstractContextManager[None]:
        """Makes this the loop that runs in this thread; the host's comes back at the end."""
        return self._turns

    def enter(self) -> None:
        self._outer = events._get_running_loop()
        self._hooks = sys.get_asyncgen_hooks()
        self._collecting = gc.isenabled()
        events._set_running_loop(self)
        sys.set_asyncgen_hooks(firstiter=self._generators_first, finalizer=None)
        ordered.begin()
        self._entered = True
        misuse.enter()
        # The collector would run code of people's finalizers at moments that no replay meets again.
        gc.disable()

    def leave(self) -> None:
        if self._collecting:
            gc.enable()
        misuse.leave()
        self._entered = False
        ordered.end()
        sys.set_asyncgen_hooks(*self._hooks)
        events._set_running_loop(self._outer)

    def run(self, until_ns: int) -> bool:
        """Passes of the ready list until one is quiet: no task moved and nothing was asked for, unless it left
        something in the list that was not in it before. What reschedules only itself (a cancel scope does) waits for
        the next delivery, and so do tasks that such a scope cancels without end, since what they wait for drains.
        False: the time is over. Raises NeverQuiet.
        """
        while self._ready:
            if self._pass():
                break
            self._passes += 1
            if self._passes % _LOOK == 0:
                if self._stirred():
                    break
                if self._passes > _PATIENCE:
                    raise NeverQuiet(f"Workflow code ran {_PATIENCE} rounds without waiting for anything.")
                if perf_counter_ns() > until_ns:
                    return False
        self._passes = 0
        return True

    def _pass(self) -> bool:
        """One pass of the list as it stands. Whether it was a quiet one."""
        ready = self._ready
        moved = self.requested = False
        ran: list[Any] = []
        for _ in range(len(ready)):
            handle = ready.popleft()
            if handle.cancelled():
                continue
            if not moved:
                callback = _callback(handle)
                if _is_step(callback):
                    moved = True
                else:
                    ran.append(callback)
            try:  # noqa: SIM105 - an object more for each callback
                handle._run()
            except SystemExit:  # Its task has it, as any exception; the process is not the code's to end.
                pass
        if self.requested:
            self._passes = 0
            return False
        if moved:
            return False
        return not ready or all(_callback(handle) in ran for handle in ready)

    def _stirred(self) -> bool:
        """Whether the passes go on and on because a callback that is no task's comes back again and again."""
        before, self._repeating = self._repeating, [each for each in map(_callback, self._ready) if not _is_step(each)]
        return self._passes >= _STIR and any(each in before for each in self._repeating) and self._timers.waiting()

    @property
    def running_code(self) -> bool:
        """Whether the run's code is what runs now, and not the host's."""
        return self._entered and not self._closed and events._get_running_loop() is self

    @property
    def busy(self) -> bool:
        """Whether anything is ready besides what runs now."""
        return bool(self._ready)

    # What asyncio asks of a loop.

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., Any], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context if context is not None else self._here())
        self._ready.append(handle)
        return handle

    def call_soon_threadsafe(  # type: ignore[override]
        self, callback: Callable[..., Any], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        if not self.running_code:
            refuse("call_soon_threadsafe from another thread")
        return self.call_soon(callback, *args, context=context)

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., Any], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        if self._closed:
            raise RuntimeError("Event loop is closed")
        when = self.time() + delay
        handle = asyncio.TimerHandle(when, callback, args, self, context if context is not None else self._here())
        delay_us = -int(-delay * 1_000_000 // 1)
        if delay_us <= 0:
            self._ready.append(handle)
        else:
            self._timers.timer_set(handle, self.scope(), delay_us)
        return handle

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., Any], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_later(when - self.time(), callback, *args, context=context)

    def fire(self, handle: asyncio.TimerHandle) -> None:
        """The timer's delivery was recorded."""
        self._ready.append(handle)

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        self._timers.timer_cancelled(handle)

    def create_future(self) -> RunFuture:
        return RunFuture(loop=self)

    def create_task(
        self, coro: Any, *, name: str | None = None, context: contextvars.Context | None = None, **_: Any
    ) -> RunTask:
        scope = self.scope().child(_qualified_name(coro))
        # Its own context even where one was given: a scope belongs to one task.
        context = self._here() if context is None else context.copy()
        context.run(current_scope.set, scope)
        task = RunTask(coro, loop=self, name=name or f"Task-{self._numbers}", context=context)
        scope.task = task
        return task

    def create_main(self, coro: Coroutine[Any, Any, Any]) -> RunTask:
        """The task of the workflow's own function; its scope is the segment's."""
        context = self.new_context()
        return RunTask(coro, loop=self, name="main", context=context)

    def set_variable(self, variable: contextvars.ContextVar[Any], value: Any) -> None:
        """What all code of the run finds in a context variable."""
        self._context.run(variable.set, value)

    def next_number(self) -> int:
        self._numbers += 1
        return self._numbers

    def scope(self) -> SiteScope:
        """The scope of the code that runs now."""
        return current_scope.get(self.root)

    def _here(self) -> contextvars.Context:
        return contextvars.copy_context() if self._entered else self.new_context()

    def new_context(self) -> contextvars.Context:
        """The context in which the code of this loop begins."""
        return self._context.copy()

    def get_task_factory(self) -> None:
        return None

    def set_task_factory(self, factory: Any) -> None:
        if factory is not None:
            refuse("a task factory")

    def get_debug(self) -> bool:
        return False

    def set_debug(self, enabled: bool) -> None:
        return

    def is_running(self) -> bool:
        return self._entered

    def is_closed(self) -> bool:
        return self._closed

    def close(self) -> None:
        self._closed = True
        self._ready.clear()

    def get_exception_handler(self) -> None:
        return None

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        self.call_exception_handler(context)

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        error = context.get("exception")
        # What an exception says may be content: its class has to do.
        _log.warning("in the code of a run: %s (%s)", context.get("message"), type(error).__name__)

    # Asynchronous generators.

    def _generators_first(self, generator: AsyncGenerator[Any, Any]) -> None:
        # Held until the end of the run: the collector must not decide when the code behind a yield goes on.
        if len(self._generators) >= self._prune_at:
            self._generators = [each for each in self._generators if each.ag_frame is not None]  # type: ignore[attr-defined]
            self._prune_at = max(64, 2 * len(self._generators))
        self._generators.append(generator)

    async def shutdown_asyncgens(self) -> None:
        """Closes the asynchronous generators that nobody finished, in the order in which they began."""
        for each in self.open_generators():
            await each.aclose()

    def open_generators(self) -> list[AsyncGenerator[Any, Any]]:
        """The asynchronous generators that nobody finished, in the order in which they began; the loop forgets them."""
        generators, self._generators = self._generators, []
        return [each for each in generators if each.ag_frame is not None]  # type: ignore[attr-defined]

    async def shutdown_default_executor(self) -> None:
        return


def _qualified_name(coro: Any) -> str:
    name = getattr(coro, "__qualname__", None) or type(coro).__qualname__
    return escaped(name.rpartition("<locals>.")[2])


def _callback(handle: asyncio.Handle) -> Any:
    return handle._callback  # type: ignore[attr-defined]


def _is_step(callback: Any) -> bool:
    """Whether it lets a task go on."""
    return isinstance(getattr(callback, "__self__", None), RunTask)
