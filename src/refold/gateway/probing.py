"""Asking the other side about a call in doubt."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from typing import Any, cast

from refold.clock import Clock
from refold.gateway.resolutions import CannotTell, DidNotHappen, Happened
from refold.gateway.retry import Retry
from refold.gateway.threads import TOOL_THREADS
from refold.gateway.tools import Doubt, Tool

PATIENCE = Retry(attempts=6, first=1.0, factor=3.0, limit=300.0)
"""How often a probe that cannot tell is asked, and when; then it is a person's turn."""


async def probe(
    tool: Tool[Any, Any],
    doubt: Doubt,
    *,
    clock: Clock,
    settles_us: int,
    still_running: Callable[[], bool],
    until: Callable[[int], Awaitable[None]],
    patience: Retry,
) -> Happened | DidNotHappen | None:
    """What the probe says, as soon as that counts; None when it cannot tell and was asked often enough.

    "Did not happen" counts when the answer was asked for after the call had settled, and nothing of it is running here
    any more. `until` waits for a time in microseconds UTC, or less when there is reason to look again.
    """
    asked = 0
    while asked < patience.attempts:
        settled = clock.now() >= settles_us and not still_running()
        answer = await ask(tool, doubt)
        if isinstance(answer, Happened) or (isinstance(answer, DidNotHappen) and settled):
            return answer
        if isinstance(answer, DidNotHappen) and not still_running():
            await until(settles_us)
            continue
        asked += 1
        await until(clock.now() + int(patience.delay(asked) * 1_000_000))
    return None


async def ask(tool: Tool[Any, Any], doubt: Doubt) -> object:
    """One question. A probe that raises, takes too long or returns something else cannot tell."""
    assert tool.probe is not None
    try:
        async with asyncio.timeout(tool.timeout):
            if inspect.iscoroutinefunction(tool.probe):
                return await cast(Awaitable[object], tool.probe(doubt))
            answer = await _in_thread(lambda: cast(Any, tool.probe)(doubt))
            return await answer if inspect.isawaitable(answer) else answer
    except asyncio.CancelledError:
        if cast(asyncio.Task[Any], asyncio.current_task()).cancelling():
            raise  # It is whoever asks that was told to end.
        return CannotTell()
    except KeyboardInterrupt:
        raise
    except BaseException:  # noqa: BLE001 - that it failed says nothing about the call
        return CannotTell()


async def _in_thread(function: Callable[[], object]) -> object:
    loop = asyncio.get_running_loop()
    answered: asyncio.Future[object] = loop.create_future()

    def end(answer: object) -> None:
        if not answered.done():
            answered.set_result(answer)

    def work() -> None:
        try:
            answer = function()
        except BaseException:  # noqa: BLE001 - that it failed says nothing about the call
            answer = CannotTell()
        if not loop.is_closed():
            loop.call_soon_threadsafe(end, answer)

    TOOL_THREADS.submit(work)
    return await answered
