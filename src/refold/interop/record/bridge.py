"""A thread with an event loop for the ledger, so that code which blocks, or has a loop of its own, can wait for it."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

from refold.interop.record.errors import RecordingOver

T = TypeVar("T")


class Bridge:
    """Runs coroutines on its own loop for callers of any thread, with or without a loop."""

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._over = False
        self._started: Future[asyncio.AbstractEventLoop] = Future()
        self._stop = asyncio.Event()
        # A daemon: a block that was never left must not keep its process alive.
        self._thread = threading.Thread(target=self._run, name="refold-record", daemon=True)
        self._thread.start()
        self._loop = self._started.result()

    def _run(self) -> None:
        with asyncio.Runner() as runner:
            self._started.set_result(runner.get_loop())
            runner.run(self._until_stopped())

    async def _until_stopped(self) -> None:
        await self._stop.wait()

    def _submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        with self._lock:
            # A forked child has no such thread, and after the end there is no such loop: waiting would have no end.
            if not self._over and self._pid == os.getpid():
                return asyncio.run_coroutine_threadsafe(work, self._loop)
        work.close()
        raise RecordingOver("The recording has ended, or belongs to the process that this one was forked from.")

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of `work`; blocks until it is there. Raises RecordingOver, and whatever `work` raises."""
        return self._submit(work).result()

    async def acall(self, work: Coroutine[Any, Any, T]) -> T:
        """The same for a coroutine of any loop.

        A cancellation is delivered when `work` has ended, and never reaches it: what is being written is written whole.
        """
        waiter = asyncio.wrap_future(self._submit(work))
        cancelled: asyncio.CancelledError | None = None
        while not waiter.done():
            try:
                await asyncio.shield(waiter)
            except asyncio.CancelledError as error:
                cancelled = error
            except Exception:  # noqa: BLE001 - raised below, by whoever takes the result
                break
        if cancelled is not None and not waiter.cancelled():
            waiter.exception()
            raise cancelled
        return waiter.result()

    def stop(self) -> None:
        """Ends the loop and waits for its thread; who still waits for something is told."""
        if self._pid != os.getpid():
            return
        with self._lock:
            self._over = True
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()
