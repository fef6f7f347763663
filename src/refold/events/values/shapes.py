"""Objects of people's own classes: which fields make one up, and how it is put together again.

An object is restored as it was, field by field, the way `copy` would: without its `__init__`, validators or
`__post_init__`, which might reject, change or do things a second time. (msgspec offers no such door: a Struct
is constructed, and then given exactly the recorded fields.)
"""

from __future__ import annotations

import dataclasses
import functools
import sys
from collections.abc import Callable
from enum import Enum
from typing import Any, Protocol

import msgspec

from refold.events.values.scalars import Refused

_HEAP_TYPE = 1 << 9


class Shape(Protocol):
    """The fields of one class."""

    fields: frozenset[str]

    def take_apart(self, value: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        """The fields in order, and what else belongs to the object (only pydantic models have such)."""
        ...

    def put_together(self, fields: dict[str, Any], more: dict[str, Any]) -> Any:
        """The object. Raises TypeError or ValueError where it does not fit."""
        ...


class _Dataclass:
    def __init__(self, cls: Any) -> None:
        self.cls = cls
        self.names = tuple(field.name for field in dataclasses.fields(cls))
        self.fields = frozenset(self.names)

    def take_apart(self, value: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        fields = _read_fields(value, self.names)
        _refuse_strays(value, self.fields)
        return fields, {}

    def put_together(self, fields: dict[str, Any], more: dict[str, Any]) -> Any:
        _refuse_more(more)
        value: Any = object.__new__(self.cls)
        for name, item in fields.items():
            object.__setattr__(value, name, item)
        return value


class _Struct:
    def __init__(self, cls: Any) -> None:
        self.cls = cls
        self.names: tuple[str, ...] = cls.__struct_fields__
        self.fields = frozenset(self.names)

    def take_apart(self, value: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        fields = _read_fields(value, self.names)
        _refuse_strays(value, self.fields)
        return fields, {}

    def put_together(self, fields: dict[str, Any], more: dict[str, Any]) -> Any:
        _refuse_more(more)
        value = self.cls(**fields)
        for name, item in fields.items():
            msgspec.structs.force_setattr(value, name, item)
        return value


class _NamedTuple:
    def __init__(self, cls: Any) -> None:
        self.cls = cls
        self.names: tuple[str, ...] = cls._fields
        self.fields = frozenset(self.names)

    def take_apart(self, value: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        if len(value) != len(self.names):
            raise Refused(f"it has {len(value)} items for {len(self.names)} names", self.cls)
        _refuse_strays(value, frozenset())
        return dict(zip(self.names, value, strict=True)), {}

    def put_together(self, fields: dict[str, Any], more: dict[str, Any]) -> Any:
        _refuse_more(more)
        return tuple.__new__(self.cls, [fields[name] for name in self.names])


class _PydanticModel:
    def __init__(self, cls: Any) -> None:
        self.cls = cls
        self.names: tuple[str, ...] = tuple(cls.model_fields)
        self.fields = frozenset(self.names)

    def take_apart(self, value: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        state = value.__dict__
        absent = [name for name in self.names if name not in state]
        if absent:
            raise Refused(f"its field {absent[0]} was never set", self.cls)
        _refuse_strays(value, self.fields)
        more: dict[str, Any] = {}
        if value.__pydantic_fields_set__ != self.fields:
            more["set"] = sorted(value.__pydantic_fields_set__)
        if value.__pydantic_extra__ is not None:
            more["extra"] = value.__pydantic_extra__
        if value.__pydantic_private__ is not None:
            more["private"] = value.__pydantic_private__
        return {name: item for name, item in state.items() if name in self.fields}, more

    def put_together(self, fields: dict[str, Any], more: dict[str, Any]) -> Any:
        if not more.keys() <= {"set", "extra", "private"}:
            raise ValueError("unknown facts beside a model")
        value = self.cls.__new__(self.cls)
        value.__setstate__(
            {
                "__dict__": fields,
                "__pydantic_fields_set__": set(more.get("set", self.fields)),
                "__pydantic_extra__": more.get("extra"),
                "__pydantic_private__": more.get("private"),
            }
        )
        return value


def _find_shape(cls: type) -> Shape | None:
    if issubclass(cls, msgspec.Struct):
        return _Struct(cls)
    # pydantic is looked up and never imported: an object of a model cannot exist before its users imported
    # it.
    pydantic = sys.modules.get("pydantic")
    if pydantic is not None and issubclass(cls, pydantic.BaseModel):
        return _PydanticModel(cls)
    if issubclass(cls, tuple) and cls is not tuple and hasattr(cls, "_fields") and hasattr(cls, "_make"):
        return _NamedTuple(cls)
    # Below a class of the interpreter's (an exception, a list) there is state that no field shows.
    if all(base.__flags__ & _HEAP_TYPE for base in cls.__mro__[:-1]) and dataclasses.is_dataclass(cls):
        return _Dataclass(cls)
    return None


shape_of: Callable[[type], Shape | None] = functools.lru_cache(maxsize=4096)(_find_shape)
"""How objects of exactly this class are recorded; None for a class of no known kind."""


def is_recordable_class(cls: type) -> bool:
    """True for the classes that need a name: Enums and those with a shape."""
    return issubclass(cls, Enum) or shape_of(cls) is not None


def _read_fields(value: Any, names: tuple[str, ...]) -> dict[str, Any]:
    try:
        return {name: getattr(value, name) for name in names}
    except AttributeError as error:
        raise Refused(f"its field {error.name} was never set", type(value)) from None


def _refuse_strays(value: Any, fields: frozenset[str]) -> None:
    """What is kept beside the fields would be lost; what can be computed again may be."""
    state = getattr(value, "__dict__", None)
    if not state or state.keys() <= fields:
        return
    for name in state.keys() - fields:
        computed = isinstance(getattr(type(value), name, None), functools.cached_property)
        # typing notes the parameters on instances of generic classes; they are no part of the value.
        if not computed and name != "__orig_class__":
            raise Refused(f"its attribute {name} is not a field and would be lost", type(value))


def _refuse_more(more: dict[str, Any]) -> None:
    if more:
        raise ValueError("facts beside the fields")
