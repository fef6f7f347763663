"""Threads for tools that are plain functions: a bounded number of daemons.

Not `concurrent.futures`: its threads are joined when the process ends, so that one tool that hangs would keep it.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable

MAX_THREADS = 64
"""Plain functions that run at the same time in a process; others wait, within their deadlines."""
IDLE = 10.0
"""Seconds that a thread without work stays."""


class DaemonThreads:
    """Runs work in at most `limit` threads, oldest first."""

    def __init__(self, limit: int = MAX_THREADS) -> None:
        self._limit = limit
        self._begin()

    def _begin(self) -> None:
        self._pid = os.getpid()
        self._changed = threading.Condition()
        self._waiting: deque[Callable[[], None]] = deque()
        self._threads = self._idle = 0

    def submit(self, work: Callable[[], None]) -> None:
        """Runs `work`, which raises nothing, as soon as a thread is free."""
        if self._pid != os.getpid():
            self._begin()  # A forked child has none of its parent's threads.
        with self._changed:
            self._waiting.append(work)
            if self._idle >= len(self._waiting) or self._threads >= self._limit:
                self._changed.notify()
                return
            self._threads += 1
        threading.Thread(target=self._work, name="refold-tool", daemon=True).start()

    def _work(self) -> None:
        while True:
            with self._changed:
                self._idle += 1
                found = self._changed.wait_for(lambda: self._waiting, timeout=IDLE)
                self._idle -= 1
                if not found:
                    self._threads -= 1
                    return
                work = self._waiting.popleft()
            work()


TOOL_THREADS = DaemonThreads()
"""The process's threads for tools."""
