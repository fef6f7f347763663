"""Sites: where an operation stands in the code's own structure. They are the same in every execution of the same code.

    site = segment : path of scopes / operation # ordinal

A task is a scope below the one it was created in: its explicit name, else the qualified name of its coroutine, and an
ordinal among those of the same name. Never "Task-7": a library that starts a task of its own must not shift other
people's sites. Ordinals of operations count per scope and operation name.
"""

from __future__ import annotations

import re
from contextvars import ContextVar
from functools import lru_cache
from typing import Any

_NUMBERED = re.compile(r"Task-\d+\Z")
_RESERVED = re.compile(r"[/#~%:\x00-\x20\x7f-\uffff]")


class SiteScope:
    """One scope: the run's, a task's, or that of an `async with run.scope(name)`."""

    __slots__ = ("_children", "_name", "_names", "_ordinals", "_parent", "_path", "_unnamed", "task")

    def __init__(self, parent: SiteScope | None, name: str = "") -> None:
        self._parent = parent
        self._name = name
        self._path: str | None = None if parent is not None else name
        self._ordinals: dict[str, int] = {}
        self._names: dict[str, int] = {}
        self._unnamed: list[SiteScope] = []
        self.task: Any = None
        """The task whose scope this is. Its name may be set after it was made (so does Python 3.11)."""

    def child(self, name: str) -> SiteScope:
        """A scope below this one. Its ordinal counts those of the same name in order of their making."""
        scope = SiteScope(self, name)
        self._unnamed.append(scope)
        return scope

    def site(self, operation: str) -> str:
        """The site of the next operation of this name here."""
        number = self._ordinals[operation] = self._ordinals.get(operation, 0) + 1
        return f"{self.path}/{operation}#{number}"

    @property
    def path(self) -> str:
        path = self._path
        if path is None:
            assert self._parent is not None
            self._parent._name_children()
            path = self._path
            assert path is not None
        return path

    def _name_children(self) -> None:
        # In order of their making, whoever asks first: a name must not depend on which task was the first to act.
        path = self.path
        for each in self._unnamed:
            name = each._called()
            number = self._names[name] = self._names.get(name, 0) + 1
            each._path = f"{path}/{name}" if number == 1 else f"{path}/{name}~{number}"
        self._unnamed.clear()

    def _called(self) -> str:
        given = self.task.get_name() if self.task is not None else ""
        return escaped(given) if given and not _NUMBERED.match(given) else self._name


@lru_cache(maxsize=4096)
def escaped(name: str) -> str:
    """A name as a part of a path: plain ASCII in which `/`, `#`, `~`, `:` and `%` stand for nothing else."""
    return _RESERVED.sub(_percent, name)[:200]


def _percent(found: re.Match[str]) -> str:
    return "".join(f"%{byte:02X}" for byte in found[0].encode("utf-8", "surrogatepass"))


current_scope: ContextVar[SiteScope] = ContextVar("refold_scope")
"""The scope of the code that runs; set in every context of a run's loop."""
