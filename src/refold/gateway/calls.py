"""The call that a tool's code is in: `current_call()`."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from types import TracebackType

from refold.clock import Clock
from refold.errors import RefoldError
from refold.gateway.errors import NotSent

_current: ContextVar[CurrentCall | None] = ContextVar("current_call", default=None)


class NoCall(RefoldError):
    """`current_call()` was used where no tool call is under way: outside of a run a tool is its plain function."""

    code = "no_call"
    exit_status = 2
    remedy = "Use `current_call()` in a tool's function only, and call the tool from a run."


class CurrentCall:
    """What a tool's code may know of its call. `key` is what to give the other side, `deadline_us` microseconds UTC."""

    def __init__(
        self,
        *,
        key: str,
        idempotency_key: str,
        tool: str,
        attempt: int,
        deadline_us: int,
        clock: Clock,
        loop: asyncio.AbstractEventLoop,
        check: Callable[[], Awaitable[None]],
        dispatch: Callable[[], Awaitable[None]] | None,
    ) -> None:
        self.key = key
        self.idempotency_key = idempotency_key
        self.tool = tool
        self.attempt = attempt
        self.deadline_us = deadline_us
        self.sent = False
        """Whether something is known to have left the process in this attempt."""
        self.dispatched = dispatch is None
        self._clock, self._loop = clock, loop
        self._check, self._dispatch = check, dispatch

    def remaining(self) -> float:
        """Seconds until the deadline, 0 when it has passed."""
        return max(0.0, (self.deadline_us - self._clock.now()) / 1_000_000)

    def sending(self) -> Sending:
        """`async with` (or `with`, in a plain function) around what leaves the process. Raises NotSent when the
        deadline has passed or the run was taken over, and then nothing may leave.
        """
        return Sending(self)

    async def prepare(self) -> None:
        """What stands before every write: the dispatch on record, then deadline and epoch once more."""
        if not self.dispatched and self._dispatch is not None:
            self.check_deadline()
            await self._dispatch()
            self.dispatched = True
        await self._check()
        self.check_deadline()

    def prepare_in_thread(self) -> None:
        """The same for a function that runs in a thread."""
        asyncio.run_coroutine_threadsafe(self.prepare(), self._loop).result()
        self.check_deadline()

    def check_deadline(self) -> None:
        """Raises NotSent."""
        if self._clock.now() >= self.deadline_us:
            raise NotSent(f"The deadline of {self.tool} passed before anything was sent.", tool=self.tool)


class Sending:
    """The moment at which a call leaves the process."""

    def __init__(self, call: CurrentCall) -> None:
        self._call = call

    async def __aenter__(self) -> None:
        await self._call.prepare()
        self._call.sent = True

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None: ...

    def __enter__(self) -> None:
        self._call.prepare_in_thread()
        self._call.sent = True

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None: ...


def current_call() -> CurrentCall:
    """The call under way in this task or thread. Raises NoCall outside of one."""
    call = _current.get()
    if call is None:
        raise NoCall("No tool call is under way here.")
    return call


def call_under_way() -> CurrentCall | None:
    """The same, None outside of a call."""
    return _current.get()


def enter(call: CurrentCall) -> None:
    """Makes a call the current one of this context."""
    _current.set(call)
