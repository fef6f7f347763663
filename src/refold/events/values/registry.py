"""Names of classes: from the App's registry and from annotations, never from an import.

A registered class is recorded under its registered name. Any other is recorded under its own name, if the
annotation of the value leads to it: through unions, containers, and the annotated fields of the classes
found.
"""

from __future__ import annotations

import functools
import typing
from collections.abc import Mapping
from enum import Enum
from typing import Any, TypeVar

from refold.events.values.errors import NotRecordable, TypeNameTaken, UnknownType
from refold.events.values.scalars import Refused
from refold.events.values.shapes import is_recordable_class

C = TypeVar("C", bound=type)


def own_name(cls: type) -> str:
    """The name without the module and the functions around the class: these move more often than names."""
    return cls.__qualname__.rpartition("<locals>.")[2]


class Registry:
    """The classes whose objects may be recorded, each under one name for ever. Filled by the App."""

    def __init__(self, classes: Mapping[str, type] | None = None) -> None:
        self._classes: dict[str, type] = {}
        self._names: dict[type, str] = {}
        for name, cls in (classes or {}).items():
            self.register(cls, name=name)

    def register(self, cls: C, *, name: str | None = None) -> C:
        """Record objects of `cls` under `name` (default: its own). Returns `cls`, so that it decorates.

        Raises NotRecordable for a class of no recordable kind, TypeNameTaken when name or class is taken.
        """
        chosen = own_name(cls) if name is None else name
        if not is_recordable_class(cls):
            raise NotRecordable(
                f"{cls.__qualname__} cannot be registered: it is no dataclass, NamedTuple, Enum, pydantic "
                "model or msgspec Struct, or it extends a built-in class.",
                path="$",
                type=cls.__qualname__,
                reason="not a recordable kind of class",
            )
        if self._classes.get(chosen, cls) is not cls or self._names.get(cls, chosen) != chosen:
            raise TypeNameTaken(f"The name {chosen!a} or the class {cls.__qualname__} is already taken.", type=chosen)
        self._classes[chosen] = cls
        self._names[cls] = chosen
        return cls

    def name_of(self, cls: type) -> str | None:
        """The name under which a class is registered."""
        return self._names.get(cls)

    def class_of(self, name: str) -> type | None:
        """The class that is registered under a name."""
        return self._classes.get(name)


_NO_TYPES = Registry()


class Names:
    """The classes that one value may hold: those of the registry and those its annotation leads to."""

    __slots__ = ("_hint", "_registry")

    def __init__(self, registry: Registry | None, hint: Any) -> None:
        self._registry = registry or _NO_TYPES
        self._hint = hint

    def name_of(self, cls: type) -> str:
        """Raises Refused when there is no name by which `cls` would be found again."""
        registered = self._registry.name_of(cls)
        if registered is not None:
            return registered
        name = own_name(cls)
        annotated = classes_in(self._hint)
        if cls not in annotated.get(name, ()):
            raise Refused(f"its class {name} is neither registered with the App nor in the annotation", cls)
        if len(annotated[name]) > 1 or self._registry.class_of(name) is not None:
            raise Refused(f"another class is called {name} too; register both, under two names", cls)
        return name

    def class_of(self, name: str) -> type:
        """Raises UnknownType when there is not exactly one class of this name."""
        found = set(classes_in(self._hint).get(name, ()))
        registered = self._registry.class_of(name)
        if registered is not None:
            found.add(registered)
        if len(found) == 1:
            return found.pop()
        problem = "more than one class has this name" if found else "it is neither registered nor in the annotation"
        raise UnknownType(f"A recorded value is of type {name[:80]!a}, but {problem}.", type=name[:80])


def classes_in(hint: Any) -> Mapping[str, frozenset[type]]:
    """The recordable classes to which an annotation leads, by their own names."""
    if hint is Any:
        return {}
    try:
        return _remembered(hint)
    except TypeError:  # an annotation with unhashable metadata
        return _search(hint)


def _search(hint: Any) -> Mapping[str, frozenset[type]]:
    found: dict[str, frozenset[type]] = {}
    waiting: list[Any] = [hint]
    seen: set[int] = set()
    alive: list[Any] = []
    while waiting:
        part = waiting.pop()
        if id(part) in seen:
            continue
        seen.add(id(part))
        alive.append(part)  # an id counts only while its object lives
        if isinstance(part, type):
            if is_recordable_class(part):
                found[own_name(part)] = found.get(own_name(part), frozenset()) | {part}
                waiting.extend(_fields_of(part))
            elif typing.is_typeddict(part):
                waiting.extend(_fields_of(part))
        else:
            waiting.extend(_parts_of(part))
    return found


_remembered = functools.lru_cache(maxsize=1024)(_search)


def _parts_of(hint: Any) -> list[Any]:
    if isinstance(hint, list):  # the parameters of a Callable
        return hint
    if isinstance(hint, Enum):  # in a Literal
        return [type(hint)]
    if isinstance(hint, TypeVar):
        return [hint.__bound__, *hint.__constraints__]
    inner = getattr(hint, "__supertype__", None) or getattr(hint, "__value__", None)  # NewType; `type X = ...`
    return [typing.get_origin(hint), *typing.get_args(hint), inner]


def _fields_of(cls: Any) -> list[Any]:
    try:
        annotations = typing.get_type_hints(cls, include_extras=True)
    except (NameError, TypeError, AttributeError, SyntaxError):
        # Written for the type checker only: the classes behind it have to be registered.
        annotations = {k: v for c in cls.__mro__ for k, v in vars(c).get("__annotations__", {}).items()}
    resolved = [field.annotation for field in getattr(cls, "model_fields", {}).values()]
    return [*annotations.values(), *resolved]
