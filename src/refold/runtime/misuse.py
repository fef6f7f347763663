"""What Python itself can tell about code that must be deterministic: an audit hook that listens while a run's code
runs on this thread, and while a pure step runs that is watched.

Python's audit hooks cannot be removed again. This one costs a look at a thread's number when nothing is watched.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from types import ModuleType
from typing import Any

from refold.runtime.errors import NotDeterministic

_SOCKETS = ("socket.connect", "socket.bind", "socket.sendto", "socket.sendmsg", "socket.getaddrinfo")
_PROCESSES = (
    "subprocess.Popen",
    "os.system",
    "os.fork",
    "os.forkpty",
    "os.exec",
    "os.posix_spawn",
    "os.spawn",
    "pty.spawn",
)
_THREADS = ("_thread.start_new_thread", "_thread.start_joinable_thread")
_FILES = ("os.remove", "os.rename", "os.mkdir", "os.rmdir", "os.truncate", "os.link", "os.symlink", "shutil.rmtree")
_DATABASES = ("sqlite3.connect",)
_WAITS = ("time.sleep",)

_WHAT: dict[str, str] = {
    **dict.fromkeys(_SOCKETS, "a socket"),
    **dict.fromkeys(_PROCESSES, "a process"),
    **dict.fromkeys(_THREADS, "a thread"),
    **dict.fromkeys(_FILES, "a change of files"),
    **dict.fromkeys(_DATABASES, "a database"),
    **dict.fromkeys(_WAITS, "a sleep that stops the whole process"),
}

_SILENT: list[tuple[ModuleType, str, str]] = []
"""Functions that this Python calls without a word to its audit hooks: module, name, and the event of later versions."""
if sys.version_info < (3, 12):
    _SILENT.append((threading, "_start_new_thread", "_thread.start_new_thread"))
if sys.version_info < (3, 13):
    _SILENT.append((time, "sleep", "time.sleep"))

_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND

Watcher = Callable[[str, str], None]
"""Gets what it was (a socket, a process, ...) and the event's name; may raise."""

_watching: dict[int, Watcher] = {}
_installed = False


def enter() -> None:
    """From here on this thread runs the code of a run."""
    _install()
    _watching[threading.get_ident()] = _refuse


def leave() -> None:
    """This thread is the host's again."""
    _watching.pop(threading.get_ident(), None)


@contextmanager
def watched(watcher: Watcher) -> Iterator[None]:
    """Tells `watcher` of each socket, process, thread and file change of this thread."""
    _install()
    me = threading.get_ident()
    outer = _watching.get(me)
    _watching[me] = watcher
    try:
        yield
    finally:
        if outer is None:
            _watching.pop(me, None)
        else:
            _watching[me] = outer


@contextmanager
def suspended() -> Iterator[None]:
    """What the runtime itself does in the middle of a run's code."""
    me = threading.get_ident()
    outer = _watching.pop(me, None)
    try:
        yield
    finally:
        if outer is not None:
            _watching[me] = outer


def _install() -> None:
    global _installed
    if not _installed:
        _installed = True
        sys.addaudithook(_hook)
        for module, name, event in _SILENT:
            setattr(module, name, _telling(getattr(module, name), event))


def _telling(function: Callable[..., Any], event: str) -> Callable[..., Any]:
    @wraps(function)
    def telling(*args: Any) -> Any:
        _hook(event, args)
        return function(*args)

    return telling


def _hook(event: str, args: tuple[Any, ...]) -> None:
    if not _watching:
        return
    what = _WHAT.get(event)
    if what is None and event != "open":
        return
    watcher = _watching.get(threading.get_ident())
    if watcher is None:
        return
    if event == "open":
        if not _writes(args):
            return
        what = "a file opened for writing"
    assert what is not None
    watcher(what, event)


def _writes(args: tuple[Any, ...]) -> bool:
    path, mode, flags = args
    # An import writes the compiled module beside it; that is Python's business and says nothing to the code.
    if isinstance(path, str) and (f"{os.sep}__pycache__{os.sep}" in path or path == os.devnull):
        return False
    if isinstance(mode, str):
        return any(letter in mode for letter in "wax+")
    return bool(isinstance(flags, int) and flags & _WRITING)


def _refuse(what: str, event: str) -> None:
    said = f"Workflow code used {what} ({event}), which no replay can give again: make it a step or a tool."
    raise NotDeterministic(said, event=event)
