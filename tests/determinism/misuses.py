"""What code of a workflow must not do, and some of what looks as if it must not: each as one small function, with what
comes of it.
"""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
import os
import random
import secrets
import shutil
import socket
import sqlite3
import subprocess
import sys
import threading
import time
import urllib.request
import uuid
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, NamedTuple

import anyio

from refold import App, Run

Verdict = Literal["refused", "drift", "harmless"]
Misdeed = Callable[[Run], Awaitable[Any]]


class Misuse(NamedTuple):
    """`says` is what the error or the divergence says; for what is harmless, why. `processes`: only another process
    does it otherwise.
    """

    what: str
    function: Misdeed
    verdict: Verdict
    says: str
    processes: bool = False


MISUSES: dict[str, Misuse] = {}


def misuse(what: str, verdict: Verdict, says: str, *, processes: bool = False) -> Callable[[Misdeed], Misdeed]:
    def add(function: Misdeed) -> Misdeed:
        name = function.__name__
        MISUSES[name] = Misuse(what, function, verdict, says, processes)
        app.workflow(name=name)(_workflow(function))
        return function

    return add


def _workflow(function: Misdeed) -> Callable[[Run], Awaitable[Any]]:
    async def workflow(run: Run) -> Any:
        found = await function(run)
        await run.step(keep, found)
        await run.signal("go")
        return found

    return workflow


def keep(value: Any) -> Any:
    return value


app = App("misuses")
changing: list[Any] = []
"""A global of the code, which each execution makes longer."""
NOTE = "REFOLD_MISUSE"


def note() -> Path:
    """A file of the folder that this process was given."""
    return Path(os.environ[NOTE])


# What goes outside.


@misuse("a socket (`socket.create_connection`, `requests`, `urllib`)", "refused", "Workflow code used a socket")
async def plain_socket(run: Run) -> None:
    socket.create_connection(("127.0.0.1", 9))


@misuse("a name looked up in blocking code", "refused", "Workflow code used a socket (socket.getaddrinfo)")
async def blocking_request(run: Run) -> None:
    urllib.request.urlopen("http://localhost:9/", timeout=1)


@misuse("a connection of asyncio (`asyncio.open_connection`, `httpx.AsyncClient`)", "refused", "create connection")
async def connection(run: Run) -> None:
    await asyncio.open_connection("127.0.0.1", 9)


@misuse("a connection of anyio", "refused", "NotDeterministic: Workflow code asked its event loop")
async def anyio_connection(run: Run) -> None:
    await anyio.connect_tcp("127.0.0.1", 9)


@misuse("a process (`subprocess`, `os.system`)", "refused", "Workflow code used a process (subprocess.Popen)")
async def process(run: Run) -> None:
    subprocess.run([sys.executable, "-c", ""], check=True)


@misuse("a process of asyncio", "refused", "subprocess exec")
async def asyncio_process(run: Run) -> None:
    await asyncio.create_subprocess_exec(sys.executable, "-c", "")


@misuse("a process of `multiprocessing`", "refused", "Workflow code used a process (os.fork)")
async def forked(run: Run) -> None:
    multiprocessing.get_context("fork").Process(target=int).start()


@misuse("a file written", "refused", "Workflow code used a file opened for writing")
async def file_written(run: Run) -> None:
    note().write_text("more")


@misuse("a file removed or renamed", "refused", "Workflow code used a change of files")
async def file_removed(run: Run) -> None:
    shutil.move(note(), note().with_suffix(".old"))


@misuse("a database file (`sqlite3`)", "refused", "Workflow code used a database (sqlite3.connect)")
async def database(run: Run) -> None:
    sqlite3.connect(note().with_suffix(".db"))


# Threads and loops.


@misuse("a thread", "refused", "Workflow code used a thread")
async def thread(run: Run) -> None:
    threading.Thread(target=int).start()


@misuse("`asyncio.to_thread`, `loop.run_in_executor`", "refused", "a thread (run_in_executor, asyncio.to_thread)")
async def to_thread(run: Run) -> None:
    await asyncio.to_thread(int)


@misuse("an executor of one's own", "refused", "Workflow code used a thread")
async def executor(run: Run) -> None:
    ThreadPoolExecutor(1).submit(int)


@misuse("another default executor", "refused", "set default executor")
async def default_executor(run: Run) -> None:
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))


@misuse("a task factory, eager tasks", "refused", "a task factory")
async def task_factory(run: Run) -> None:
    eager: Any = getattr(asyncio, "eager_task_factory", lambda loop, coro, **more: asyncio.Task(coro, loop=loop))
    asyncio.get_running_loop().set_task_factory(eager)


@misuse("`asyncio.run` inside a workflow", "refused", "asyncio.run() cannot be called from a running event loop")
async def loop_in_the_loop(run: Run) -> None:
    with contextlib.closing(asyncio.sleep(0)) as nothing:
        asyncio.run(nothing)


@misuse("`loop.run_until_complete`", "refused", "a loop inside the loop")
async def until_complete(run: Run) -> None:
    asyncio.get_running_loop().run_until_complete(asyncio.get_running_loop().create_future())


@misuse("a signal handler of the loop", "refused", "add signal handler")
async def signal_handler(run: Run) -> None:
    asyncio.get_running_loop().add_signal_handler(10, int)


@misuse("`time.sleep`", "refused", "a sleep that stops the whole process")
async def blocking_sleep(run: Run) -> None:
    time.sleep(0.001)


@misuse("a loop around `asyncio.sleep(0)` that waits for nothing", "refused", "rounds without waiting for anything")
async def spinning(run: Run) -> None:
    while True:
        await asyncio.sleep(0)


@misuse("a future or event that nobody sets", "refused", "no operation is under way that could move it")
async def nobody_sets(run: Run) -> None:
    await asyncio.get_running_loop().create_future()


# Operations in the wrong place.


@app.tool(effect="read")
def look(number: int) -> int:
    return number


@misuse("a tool called in a step", "refused", "look was called inside a tool or a step")
async def tool_in_step(run: Run) -> Any:
    return await run.step(look_twice, 1)


def look_twice(number: int) -> int:
    return look(number)


@misuse("the run used in a step", "refused", "was asked for outside the workflow's own code")
async def run_in_step(run: Run) -> Any:
    async def nested(number: int) -> Any:
        return await run.step(keep, number)

    return await run.step(nested, 1)


@misuse("an argument that cannot be recorded", "refused", "cannot be recorded")
async def unrecordable(run: Run) -> Any:
    return await run.step(keep, object())


@misuse("a checkpoint while something is under way", "refused", "A checkpoint was asked for while")
async def busy_checkpoint(run: Run) -> None:
    sleeping = asyncio.create_task(asyncio.sleep(60))
    try:
        await run.checkpoint(1)
    finally:
        sleeping.cancel()


# What differs from execution to execution.


@misuse("`time.time()`, `time.monotonic()`", "drift", "$[0] was")
async def wall_clock(run: Run) -> float:
    return time.time()


@misuse("`datetime.now()`", "drift", "$[0] was")
async def now(run: Run) -> str:
    return datetime.now(UTC).isoformat()


@misuse("`random.random()`", "drift", "$[0] was")
async def drawn(run: Run) -> float:
    return random.random()


@misuse("`uuid.uuid4()`", "drift", "$[0] was")
async def unique(run: Run) -> str:
    return str(uuid.uuid4())


@misuse("`os.urandom`, `secrets`", "drift", "$[0] was")
async def secret(run: Run) -> str:
    return secrets.token_hex() + os.urandom(8).hex()


@misuse("an environment variable read with `os.environ`, when it changed", "drift", "$[0] was")
async def environment(run: Run) -> str | None:
    return os.environ.get(NOTE)


@misuse("a global that executions change", "drift", "$[0] was")
async def changing_global(run: Run) -> int:
    changing.append(object())
    return len(changing)


@misuse("a file read, when it changed", "drift", "$[0] was")
async def file_read(run: Run) -> str:
    return note().read_text()


@misuse("`id()` of an object", "drift", "$[0] was")
async def address(run: Run) -> int:
    changing.append(object())
    return id(changing[-1])


@misuse("the order of a set of strings", "drift", "$[0][0] was", processes=True)
async def order_of_strings(run: Run) -> list[str]:
    return list({"ada", "bob", "cleo", "dan", "eve", "fay", "gus", "hal"})


@misuse("`hash()` of a text", "drift", "$[0].$[1] was", processes=True)
async def hash_of_text(run: Run) -> int:
    return hash("ada")


@misuse("a sleep of random length", "drift", "a timer of")
async def random_sleep(run: Run) -> None:
    await asyncio.sleep(random.uniform(0.0001, 0.001))


@misuse("an operation asked for depending on a clock", "drift", "the record has a step here")
async def depending(run: Run) -> None:
    changing.append(object())
    await run.step(keep if len(changing) % 2 else str, 1)


# What looks wrong and is not.


@misuse("the order of a set of tasks", "harmless", "tasks are ordered by their making")
async def order_of_tasks(run: Run) -> list[int]:
    tasks = {asyncio.create_task(run.step(keep, each)) for each in range(8)}
    done, _ = await asyncio.wait(tasks)
    return [each.result() for each in done]


@misuse("the order of a dict", "harmless", "a dict has the order of its making", processes=True)
async def order_of_dict(run: Run) -> list[str]:
    return list(dict.fromkeys(["ada", "bob", "cleo", "dan"]))


@misuse("a set of strings as a value", "harmless", "recorded sets are compared as sets", processes=True)
async def set_as_value(run: Run) -> set[str]:
    return await run.step(keep, {"ada", "bob", "cleo", "dan", "eve", "fay", "gus", "hal"})  # type: ignore[no-any-return]


@misuse("the loop's `time()`, `run.now()`, `run.random()`, `run.uuid()`", "harmless", "they come from the record")
async def recorded_sources(run: Run) -> list[Any]:
    await asyncio.sleep(0.001)
    drawn = run.random().random()
    return [asyncio.get_running_loop().time(), run.now().isoformat(), drawn, str(run.uuid()), await run.env(NOTE)]


@misuse("an argument changed after it was handed over", "harmless", "what was asked is recorded at once")
async def changed_argument(run: Run) -> list[int]:
    given = [1]
    asked = asyncio.ensure_future(run.step(keep, given))
    await asyncio.sleep(0)
    given.append(2)
    return await asked  # type: ignore[no-any-return]


@misuse("a result changed by the code", "harmless", "each execution gets one of its own")
async def changed_result(run: Run) -> list[int]:
    got: list[int] = await run.step(keep, [1])
    got.append(2)
    return got


@misuse("a module imported for the first time", "harmless", "reading code is no effect")
async def late_import(run: Run) -> str:
    import colorsys

    return colorsys.__name__


@misuse("something printed or logged", "harmless", "it is said once in each execution")
async def printed(run: Run) -> None:
    print("here", file=sys.stderr)


@misuse("an asynchronous generator left unfinished", "harmless", "it is closed at the run's end, in order")
async def unfinished_generator(run: Run) -> int:
    async def numbers() -> Any:
        try:
            yield 1
            yield 2
        finally:
            await run.step(keep, 3)

    async for each in numbers():
        return int(each)
    return 0


@misuse("a refusal that the code catches", "harmless", "it is refused in every execution")
async def caught(run: Run) -> str:
    try:
        time.sleep(1)
    except Exception as error:  # noqa: BLE001 - the misuse
        return type(error).__name__
    return "slept"
