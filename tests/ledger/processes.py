"""Tests with several processes: what they run in, how they talk, and how one is frozen.

A test runs in an interpreter of its own ("spawn"), which has no threads when it forks and no connection that its
children could inherit unless the test is about that.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import signal
import traceback
from collections.abc import Callable, Coroutine
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from refold.clock import SystemClock


def apart(function: Callable[..., Any], *args: Any) -> Any:
    """What the function returns in a new interpreter; what it raises there fails the test."""
    spawn = multiprocessing.get_context("spawn")
    ours, theirs = spawn.Pipe(duplex=False)
    process = spawn.Process(target=_serve, args=(theirs, function, args), daemon=False)
    process.start()
    theirs.close()
    try:
        fine, result = ours.recv()
    except EOFError:
        fine, result = False, "it ended without a word"
    process.join()
    assert fine, f"in the other process:\n{result}"
    return result


def _serve(pipe: Connection[Any, Any], function: Callable[..., Any], args: tuple[Any, ...]) -> None:
    try:
        pipe.send((True, function(*args)))
    except BaseException:  # noqa: BLE001 - whatever it is belongs to the test
        pipe.send((False, traceback.format_exc()))


class Child:
    """A forked process that runs a coroutine and says what came of it: its result, or the error's text."""

    def __init__(self, work: Callable[[Child], Coroutine[Any, Any, Any]]) -> None:
        self._hear, self._say = os.pipe()
        self._listen, self._tell = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            asyncio._set_running_loop(None)
            try:
                said = {"result": asyncio.run(work(self))}
            except BaseException:  # noqa: BLE001 - told to the parent; the process ends here
                said = {"error": traceback.format_exc()}
            os.write(self._say, json.dumps(said).encode() + b"\n")
            os._exit(0)
        os.close(self._say)
        os.close(self._listen)
        self._pending = b""

    # In the child

    def say(self, word: Any) -> None:
        """Tells the parent."""
        os.write(self._say, json.dumps(word).encode() + b"\n")

    def wait(self) -> None:
        """Stops everything here until the parent says go."""
        assert os.read(self._listen, 1) == b"g"

    def freeze(self) -> None:
        """Stops as a machine under a debugger or a suspended container does, until the parent thaws this process."""
        os.kill(os.getpid(), signal.SIGSTOP)

    # In the parent

    def hear(self) -> Any:
        """The next word of the child."""
        while b"\n" not in self._pending:
            read = os.read(self._hear, 65536)
            assert read, "the child ended without a word"
            self._pending += read
        line, _, self._pending = self._pending.partition(b"\n")
        return json.loads(line)

    def go(self) -> None:
        """Ends the child's wait."""
        os.write(self._tell, b"g")

    def until_frozen(self) -> None:
        """Returns when the child has frozen."""
        assert os.WIFSTOPPED(os.waitpid(self.pid, os.WUNTRACED)[1])

    def thaw(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def kill(self) -> None:
        """SIGKILL; returns when it is dead."""
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)

    def result(self) -> Any:
        """What the child's coroutine returned. Raises AssertionError with its traceback when it raised."""
        said = self.hear()
        os.waitpid(self.pid, 0)
        assert "error" not in said, f"in the child:\n{said.get('error')}"
        return said["result"]


class SharedClock(SystemClock):
    """The machine's clocks with an offset to the time since boot that stands in a file, for all processes at once."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def since_boot(self) -> int:
        passed = int(self._file.read_text()) if self._file.exists() else 0
        return super().since_boot() + passed

    def let_pass(self, microseconds: int) -> None:
        """Makes that much time pass for every process."""
        self._file.write_text(str(microseconds))
