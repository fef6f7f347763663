"""A segment's code from its first line to its last, and what is left of it where it is left."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any

from refold.runtime.loop import RunLoop, RunTask


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


def discard(loop: RunLoop) -> None:
    """Forgets the code of a segment where it stands. Its operations have nobody left to be delivered to."""
    for task in sorted(asyncio.all_tasks(loop), key=hash):
        task._log_destroy_pending = False  # type: ignore[attr-defined]
        coro = task.get_coro()
        if not task.done() and coro is not None and not getattr(coro, "cr_running", False):
            with suppress(BaseException):  # Code that refuses to be left: nothing of it can act any more.
                coro.close()
    loop.close()
