"""The one bridge between code without an event loop and ours: `app.open_sync`, and workflows written as `def`.

Nothing is decided here: each method hands a coroutine of the asynchronous side over and waits.
"""

from __future__ import annotations

import asyncio
import contextvars
import random
import threading
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar
from uuid import UUID

from refold.gateway.models import Completion, ModelCall
from refold.gateway.tools import Tool, gateway_call
from refold.runtime import misuse
from refold.runtime.errors import OutsideRun

if TYPE_CHECKING:
    from refold.gateway.resolutions import Decision
    from refold.runtime.app import App
    from refold.runtime.handle import RunHandle
    from refold.runtime.opened import Refold, ReplayKind
    from refold.runtime.run import Run
    from refold.runtime.workflow import Workflow

T = TypeVar("T")


class _Abandoned(BaseException):
    """The run's code is left where it stands: the thread that held it ends."""


class _Handover:
    """Two threads of which one runs at a time: the loop's, and that of a `def` workflow."""

    def __init__(self, work: Callable[[], Any]) -> None:
        self._ours = threading.Semaphore(0)
        self._theirs = threading.Semaphore(0)
        self._work = work
        self._asked: Coroutine[Any, Any, Any] | None = None
        self._reply: tuple[Any, BaseException | None] = (None, None)
        self._ended: tuple[Any, BaseException | None] | None = None
        self._left = False
        self._thread = threading.Thread(target=self._run, name="refold-def-workflow", daemon=True)

    # The loop's side.

    async def run(self) -> Any:
        """Runs the function to its end; what it asks for is awaited here."""
        with misuse.suspended():
            self._thread.start()
        try:
            while True:
                self._theirs.release()
                self._ours.acquire()  # The function runs now, and nothing else does: as if it were called here.
                if self._ended is not None:
                    value, error = self._ended
                    if error is not None:
                        raise error
                    return value
                assert self._asked is not None
                try:
                    self._reply = (await self._asked, None)
                except GeneratorExit:
                    raise
                except BaseException as error:  # noqa: BLE001 - the function is the one to handle it
                    self._reply = (None, error)
        finally:
            if self._ended is None:
                self._left = True
                self._theirs.release()
                self._thread.join()

    # The function's side.

    def wait(self, asked: Coroutine[Any, Any, T]) -> T:
        """Hands a coroutine over and waits for its outcome."""
        if threading.current_thread() is not self._thread:
            asked.close()
            raise OutsideRun("The run was used outside the workflow's own thread.")
        if self._left:
            asked.close()
            raise _Abandoned
        self._asked = asked
        self._ours.release()
        self._theirs.acquire()
        if self._left:
            raise _Abandoned
        value, error = self._reply
        if error is not None:
            raise error
        result: T = value
        return result

    def _run(self) -> None:
        self._theirs.acquire()
        if not self._left:
            misuse.enter()
            try:
                self._ended = (self._work(), None)
            except BaseException as error:  # noqa: BLE001 - raised again on the loop's side
                self._ended = (None, error)
            finally:
                misuse.leave()
        self._ours.release()


class SyncRun:
    """`Run` for workflows written as `def`: the same operations, which return what the others await."""

    def __init__(self, run: Run, handover: _Handover) -> None:
        self._run = run
        self._handover = handover
        self.state: Any = run.state

    @property
    def id(self) -> str:
        """The run's id."""
        return self._run.id

    @property
    def key(self) -> str | None:
        """The caller's name for it."""
        return self._run.key

    def step(self, function: Callable[..., Any], *args: Any, **options: Any) -> Any:
        """See `Run.step`."""
        return self._handover.wait(self._run.step(function, *args, **options))

    def infer(
        self, model: str, *, messages: Sequence[Mapping[str, Any]], tools: Sequence[Tool[Any, Any]] = (), **options: Any
    ) -> Completion:
        """See `Run.infer`."""
        return self._handover.wait(self._run.infer(model, messages=messages, tools=tools, **options))

    def call(self, call: ModelCall) -> Any:
        """See `Run.call`."""
        return self._handover.wait(self._run.call(call))

    def sleep(self, seconds: float = 0, **units: float) -> None:
        """See `Run.sleep`."""
        self._handover.wait(self._run.sleep(seconds, **units))

    def signal(self, name: str, type_: Any = Any) -> Any:
        """See `Run.signal`."""
        return self._handover.wait(self._run.signal(name, type_))

    def env(self, name: str) -> str | None:
        """See `Run.env`."""
        return self._handover.wait(self._run.env(name))

    def child(self, workflow: Workflow, input: Any = None, **options: Any) -> Any:
        """See `Run.child`."""
        return self._handover.wait(self._run.child(workflow, input, **options))

    def checkpoint(self, state: Any) -> NoReturn:
        """See `Run.checkpoint`."""
        self._handover.wait(self._run.checkpoint(state))
        raise AssertionError("a checkpoint does not return")

    def now(self) -> datetime:
        """See `Run.now`."""
        return self._handover.wait(_made(self._run.now))

    def random(self) -> random.Random:
        """See `Run.random`."""
        return self._handover.wait(_made(self._run.random))

    def uuid(self) -> UUID:
        """See `Run.uuid`."""
        return self._handover.wait(_made(self._run.uuid))

    @contextmanager
    def scope(self, name: Any) -> Iterator[None]:
        """See `Run.scope`."""
        entered = self._run.scope(name)
        self._handover.wait(_entered(entered.__aenter__()))
        try:
            yield
        finally:
            self._handover.wait(_entered(entered.__aexit__(None, None, None)))


async def _made(make: Callable[[], T]) -> T:
    return make()


async def _entered(awaitable: Any) -> Any:
    return await awaitable


async def run_function(workflow: Workflow, run: Run, arguments: tuple[Any, ...]) -> Any:
    """A `def` workflow as a coroutine of its run's loop."""
    context = contextvars.copy_context()
    handover = _Handover(lambda: context.run(workflow.function, SyncRun(run, handover), *arguments))

    def call(tool: Tool[Any, Any], bound: dict[str, Any], key: str | None) -> Any:
        return handover.wait(run.tool(tool, bound, key))

    context.run(gateway_call.set, call)
    return await handover.run()


class SyncOpening:
    """`with app.open_sync(...) as rf`: the ledger, and everything that looks after its runs, in a thread of its own."""

    def __init__(self, app: App, ledger: str, scope: str, recover: bool) -> None:
        self._opening = app.open(ledger, scope=scope, recover=recover)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="refold", daemon=True)

    def __enter__(self) -> SyncRefold:
        self._thread.start()
        try:
            return SyncRefold(self.wait(self._opening.__aenter__()), self)
        except BaseException:
            self._stop()
            raise

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        try:
            self.wait(self._opening.__aexit__(kind, error, tb))
        finally:
            self._stop()

    def _stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def wait(self, coro: Coroutine[Any, Any, T]) -> T:
        """Runs a coroutine over there and waits for it."""
        return asyncio.run_coroutine_threadsafe(coro, self._loop).result()


class SyncHandle:
    """A run, for code without an event loop."""

    def __init__(self, handle: RunHandle, bridge: SyncOpening) -> None:
        self._handle = handle
        self._bridge = bridge
        self.id = handle.id

    def result(self) -> Any:
        """See `RunHandle.result`."""
        return self._bridge.wait(self._handle.result())


class SyncRefold:
    """`Refold` for code without an event loop."""

    def __init__(self, opened: Refold, bridge: SyncOpening) -> None:
        self._opened = opened
        self._bridge = bridge

    def start(self, workflow: Workflow | str, input: Any = None, **options: Any) -> SyncHandle:
        """See `Refold.start`."""
        return SyncHandle(self._bridge.wait(self._opened.start(workflow, input, **options)), self._bridge)

    def get(self, run: str) -> SyncHandle:
        """See `Refold.get`."""
        return SyncHandle(self._bridge.wait(self._opened.get(run)), self._bridge)

    def resume(self, run: str) -> SyncHandle:
        """See `Refold.resume`."""
        return SyncHandle(self._bridge.wait(self._opened.resume(run)), self._bridge)

    def signal(self, run: str, name: str, value: Any = None, **options: Any) -> None:
        """See `Refold.signal`."""
        self._bridge.wait(self._opened.signal(run, name, value, **options))

    def cancel(self, run: str, **options: Any) -> None:
        """See `Refold.cancel`."""
        self._bridge.wait(self._opened.cancel(run, **options))

    def pause(self, run: str, **options: Any) -> None:
        """See `Refold.pause`."""
        self._bridge.wait(self._opened.pause(run, **options))

    def resolve(self, call: str, resolution: Decision, *, basis: str, by: str) -> Any:
        """See `Refold.resolve`."""
        return self._bridge.wait(self._opened.resolve(call, resolution, basis=basis, by=by))

    def replay(self, run: str, kind: ReplayKind[T]) -> T:
        """See `Refold.replay`."""
        return self._bridge.wait(self._opened.replay(run, kind))
