"""A segment's code from its first line to its last, and what is left of it where it is left."""

from __future__ import annotations

import asyncio
from asyncio import events
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import suppress
from typing import Any

from refold.runtime.loop import RunLoop, RunTask

Main = Callable[[int, Any], Coroutine[Any, Any, Any]]
"""Makes the workflow's coroutine from the number of a segment and its state. Raises UnknownType, ValueDamaged."""

State = Callable[[], Any]
"""Makes the state of a checkpoint again. Raises UnknownType, ValueDamaged."""

_TRIES = 100
"""How often code that goes on waiting in its `finally` is told to end."""


async def whole(loop: RunLoop, code: Coroutine[Any, Any, Any]) -> Any:
    """The workflow's function and what it leaves behind: its tasks are cancelled in the order of their making, its
    generators closed, before the run ends.
    """
    try:
        return await code
    finally:
        me = asyncio.current_task()
        left = [each for each in asyncio.all_tasks(loop) if each is not me and isinstance(each, RunTask)]
        left.sort(key=lambda each: each.number)
        for each in left:
            each.cancel()
        if left:
            await asyncio.gather(*left, return_exceptions=True)
        await loop.shutdown_asyncgens()


async def never_begun() -> None:
    """Stands in for code whose input or state could not be made again."""


def outcome_of(main: RunTask) -> tuple[Any, BaseException | None]:
    """What a segment's code returned, or what it raised."""
    try:
        return main.result(), None
    except BaseException as error:  # noqa: BLE001 - CancelledError too is an end
        return None, error


def discard(loop: RunLoop) -> None:
    """Forgets the code of a segment where it stands. Its operations have nobody left to be delivered to.

    All of it ends here and now, as far as it lets itself be ended: what is left to the collector runs its `finally` in
    the middle of other code. It ends on its own loop, which is closed, and in its own context: what it asks for is
    refused, and neither its callbacks nor its tools reach the host.
    """
    loop.close()
    outer = events._get_running_loop()
    events._set_running_loop(loop)
    try:
        for task in sorted(asyncio.all_tasks(loop), key=hash):
            task._log_destroy_pending = False  # type: ignore[attr-defined]
            coro = task.get_coro()
            if not task.done() and coro is not None and not getattr(coro, "cr_running", False):
                loop.new_context().run(_end, coro)
        for generator in loop.open_generators():
            loop.new_context().run(_end_generator, generator)
    finally:
        events._set_running_loop(outer)
        loop.close()


def _end(waiting: Any) -> None:
    # Not `close()`: where its innermost part waits in a `finally`, the outer parts end and that one stays.
    with suppress(BaseException):  # What it ends with is of no interest any more.
        for _ in range(_TRIES):
            waiting.throw(asyncio.CancelledError())
        waiting.close()


def _end_generator(generator: AsyncGenerator[Any, Any]) -> None:
    closing = generator.aclose()
    with suppress(BaseException):
        closing.send(None)
        _end(closing)
