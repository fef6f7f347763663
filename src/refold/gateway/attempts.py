"""One attempt of a call: the tool's function under its deadline, in a task or in a thread."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import threading
from typing import Any, cast

from refold import seam
from refold.gateway import calls
from refold.gateway.calls import CurrentCall
from refold.gateway.endings import Ending, Failure, Result, Unknown, ending_of
from refold.gateway.threads import TOOL_THREADS
from refold.gateway.tools import Tool, gateway_call, refuse_nested


class Attempt:
    """A tool's function under way. `ending` is done when the function is, however late that is."""

    def __init__(self, tool: Tool[Any, Any], arguments: dict[str, Any], call: CurrentCall) -> None:
        self._tool = tool
        self._call = call
        self._args, self._kwargs = tool.parameters.spread(arguments)
        self._context = contextvars.copy_context()
        self._context.run(calls.enter, call)
        self._context.run(gateway_call.set, refuse_nested)
        self._loop = asyncio.get_running_loop()
        self._task: asyncio.Task[None] | None = None
        self._turn = threading.Lock()
        """Taken by whoever comes first: the thread that begins, or the deadline of one that did not."""
        self.ending: asyncio.Future[Ending] = self._loop.create_future()
        if tool.is_async:
            self._task = self._loop.create_task(self._in_task(), context=self._context)
        else:
            TOOL_THREADS.submit(self._in_thread)

    @property
    def running(self) -> bool:
        """Whether the function may still do something."""
        return not self.ending.done()

    async def until_deadline(self) -> Ending:
        """How it ended; past the deadline that is not known, and the function is asked to stop."""
        await asyncio.wait((self.ending,), timeout=self._call.remaining())
        if self.ending.done():
            return self.ending.result()
        if not self.stop():
            self._end(Failure("not_sent", "not_sent", f"No thread was free for {self._tool.name} in time.", True))
            return self.ending.result()
        return Unknown("timeout", f"{self._tool.name} gave no answer within {self._tool.timeout:g} s.")

    def stop(self) -> bool:
        """Asks the function to stop, which a thread cannot hear: it is left behind. False: it has not even begun, and
        never will.
        """
        if self._task is not None:
            self._task.cancel()
            return True
        return not self._turn.acquire(blocking=False)

    async def _in_task(self) -> None:
        try:
            seam.reach("tool.call")
            self._end(Result(await cast(Any, self._tool.function(*self._args, **self._kwargs))))
        except (asyncio.CancelledError, KeyboardInterrupt) as error:
            self._end(self._ending_of(error))
            raise
        except BaseException as error:  # noqa: BLE001 - what a tool raises is an outcome
            self._end(self._ending_of(error))

    def _in_thread(self) -> None:
        if not self._turn.acquire(blocking=False):
            return
        try:
            self._call.check_deadline()
            seam.reach("tool.call")
            ending: Ending = Result(self._context.run(self._tool.function, *self._args, **self._kwargs))
        except BaseException as error:  # noqa: BLE001 - what a tool raises is an outcome
            ending = self._ending_of(error)
        with contextlib.suppress(RuntimeError):  # The loop has ended, and with it whoever wants to know.
            self._loop.call_soon_threadsafe(self._end, ending)

    def _ending_of(self, error: BaseException) -> Ending:
        return ending_of(error, sent=self._call.sent, dispatched=self._call.dispatched)

    def _end(self, ending: Ending) -> None:
        if not self.ending.done():
            self.ending.set_result(ending)
