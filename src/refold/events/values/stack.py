"""The caller's own stack must not decide whether a value can be recorded."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")


def on_fresh_stack(work: Callable[..., T], *arguments: Any) -> T:
    """`work(*arguments)` on a thread of its own, with all of the recursion limit before it.

    For the rare value that fits the documented depth but not what is left of the caller's stack: the same
    value must be recordable live and in a replay, which stand at different depths.
    """
    results: list[T] = []
    failures: list[BaseException] = []

    def run() -> None:
        try:
            results.append(work(*arguments))
        except BaseException as error:  # noqa: BLE001 - handed to the caller below, whatever it is
            failures.append(error)

    thread = threading.Thread(target=run, name="refold-values", daemon=True)
    thread.start()
    thread.join()
    if failures:
        raise failures[0]
    return results[0]
