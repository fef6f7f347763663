"""The thread that writes: whoever waits for it is answered, cancelled or told, and never left."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import CancelledError

import pytest

from refold.interop.record.bridge import Bridge
from refold.interop.record.errors import ClientMissing, RecordingOver
from refold.interop.record.transports import package


@pytest.fixture
def bridge() -> Iterator[Bridge]:
    made = Bridge()
    yield made
    made.stop()


async def _answer() -> int:
    return 42


def test_work_is_done_for_callers_with_and_without_a_loop(bridge: Bridge) -> None:
    assert bridge.call(_answer()) == 42
    assert asyncio.run(bridge.acall(_answer())) == 42


def test_what_the_work_raises_is_the_caller_s(bridge: Bridge) -> None:
    async def fails() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        bridge.call(fails())
    with pytest.raises(ZeroDivisionError):
        asyncio.run(bridge.acall(fails()))


def test_a_cancellation_waits_for_the_work_and_does_not_reach_it(bridge: Bridge) -> None:
    begun, go_on, done = threading.Event(), threading.Event(), []

    async def work() -> None:
        begun.set()
        while not go_on.is_set():
            await asyncio.sleep(0.001)
        done.append(True)

    async def caller() -> None:
        task = asyncio.create_task(bridge.acall(work()))
        while not begun.is_set():
            await asyncio.sleep(0.001)
        for _ in range(3):  # Impatient ones cancel again.
            task.cancel()
            await asyncio.sleep(0)
            assert not task.done()
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert done

    asyncio.run(caller())


def test_who_still_waits_when_it_ends_is_told() -> None:
    bridge = Bridge()
    begun = threading.Event()
    told: list[BaseException] = []

    async def for_ever() -> None:
        begun.set()
        await asyncio.Event().wait()

    def wait() -> None:
        try:
            bridge.call(for_ever())
        except CancelledError as error:
            told.append(error)

    waiting = threading.Thread(target=wait)
    waiting.start()
    begun.wait()
    bridge.stop()
    waiting.join()
    assert told
    with pytest.raises(RecordingOver):
        bridge.call(_answer())


def test_a_forked_child_is_told_that_the_thread_is_not_its_own(bridge: Bridge) -> None:
    child = os.fork()
    if child == 0:
        status = 1
        try:
            bridge.call(_answer())
        except RecordingOver:
            bridge.stop()
            status = 0
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    assert bridge.call(_answer()) == 42


def test_recording_loads_no_http_package_before_a_client_is_asked_for() -> None:
    code = "import sys, refold; refold.record; refold.replay_recording; print(*sorted(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "refold.interop.record.recording" in done.stdout
    assert not {"httpx", "httpx2", "openai", "anthropic", "pydantic"} & set(done.stdout.split())


def test_a_package_that_is_not_there_is_named() -> None:
    with pytest.raises(ClientMissing, match="no nothing_like_it in this Python"):
        package("nothing_like_it")
