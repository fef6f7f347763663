"""Sets that are iterated in the order in which their members came.

`asyncio.as_completed` makes a set of the coroutines it is given and starts them in the order of that set; cancel scopes
of anyio keep those within them in one and cancel in its order. Of what has no hash of its own that is the order of
addresses in memory, another one in each execution. While a run's code runs, these modules find `InOrder` under the
name `set`.
"""

from __future__ import annotations

import sys
from asyncio import tasks
from collections.abc import Iterable, Iterator
from importlib import import_module
from typing import Any

_ANYIO = "anyio._backends._asyncio"
_TASKS = tasks.__dict__


class InOrder(set[Any]):
    """A set with an order. What makes another set of it gives a plain one."""

    def __init__(self, members: Iterable[Any] = ()) -> None:
        self._order = dict.fromkeys(members)
        super().__init__(self._order)

    def __iter__(self) -> Iterator[Any]:
        return iter(list(self._order))

    def add(self, member: Any) -> None:
        self._order[member] = None
        super().add(member)

    def update(self, *others: Iterable[Any]) -> None:
        for other in others:
            for member in other:
                self.add(member)

    def discard(self, member: Any) -> None:
        self._order.pop(member, None)
        super().discard(member)

    def remove(self, member: Any) -> None:
        super().remove(member)
        del self._order[member]

    def pop(self) -> Any:
        for member in self._order:
            self.remove(member)
            return member
        raise KeyError("pop from an empty set")

    def clear(self) -> None:
        self._order.clear()
        super().clear()


def begin() -> None:
    """From here on the modules make sets with an order."""
    for each in _modules():
        each["set"] = InOrder


def end() -> None:
    """The modules have the builtin again."""
    for each in _modules():
        each.pop("set", None)


def _modules() -> tuple[dict[str, Any], ...]:
    # anyio loads its module at its first use, which may be in the middle of a turn.
    if "anyio" in sys.modules:
        anyio = sys.modules.get(_ANYIO) or import_module(_ANYIO)
        return _TASKS, anyio.__dict__
    return (_TASKS,)
