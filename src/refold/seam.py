"""The one seam: named points of the protocols at which a test may interrupt, fail or count.

The code of refold calls `reach("artifact.rename")` right *before* the operation that the point is named
after. Without a hook, which is always so in production, that costs one look at one name. Nothing else in
refold is hooked, patched or mocked for faults. The idea is that of SQLite's test VFS, kept to one function.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

__all__ = ["Hook", "install", "installed", "reach"]

Hook = Callable[[str], None]
"""Gets the name of the point. It may return (the operation happens), raise (it fails) or never return."""

_hook: Hook | None = None


def reach(point: str) -> None:
    """Say that the operation named `point` is about to happen. Raises whatever the installed hook raises."""
    if _hook is not None:
        _hook(point)


def install(hook: Hook | None) -> Hook | None:
    """Make `hook` the process's only hook (None: no hook) and return the one that it replaces.

    The hook is called by whichever thread reaches a point, so it must be safe for several.
    """
    global _hook
    replaced, _hook = _hook, hook
    return replaced


@contextmanager
def installed(hook: Hook) -> Iterator[None]:
    """`install` for the length of a `with` block; the previous hook comes back afterwards."""
    replaced = install(hook)
    try:
        yield
    finally:
        install(replaced)
