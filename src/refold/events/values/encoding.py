"""From a value to stored bytes: plain JSON as it is, everything else as tags."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import Enum, Flag
from types import NoneType
from typing import Any, Final

from refold.events.values.canonical import canonical
from refold.events.values.errors import NotRecordable
from refold.events.values.registry import Names, Registry
from refold.events.values.scalars import WRITERS, Refused
from refold.events.values.shapes import shape_of
from refold.events.values.stack import on_fresh_stack
from refold.events.values.tags import KEY, MAX_DEPTH, dump_json

_TAG_START: Final = b'{"$":'
_PATH_SHOWN: Final = 12


def encode(value: Any, *, types: Registry | None = None, hint: Any = Any) -> bytes:
    """The stored form of a value: UTF-8 JSON from which `decode` makes an equal value of the same type.

    `types` and `hint` (the annotation) name the classes that may occur. Raises NotRecordable, naming the path
    of the first part that would not come back, before anything is stored.
    """
    try:
        return _encode(value, types, hint)
    except RecursionError:
        try:
            return on_fresh_stack(_encode, value, types, hint)
        except RecursionError:
            raise _not_recordable(Refused("reading its parts recurses without end", type(value))) from None


def _encode(value: Any, types: Registry | None, hint: Any) -> bytes:
    # msgspec writes tuples, sets, Decimals and NaN without a word as something else: only what was seen to be
    # plain may take the short way.
    if _is_plain(value):
        try:
            written = dump_json(value)
        except UnicodeEncodeError:
            pass  # a lone surrogate
        else:
            if b"$" not in written or _TAG_START not in written:
                return written
    try:
        return dump_json(Lowering(Names(types, hint)).lower(value, 0))
    except Refused as refused:
        raise _not_recordable(refused) from None


def _is_plain(value: Any) -> bool:
    """True for JSON without tags, strings unseen."""
    kind = type(value)
    if kind is dict:
        return _is_plain_dict(value, 1)
    if kind is list:
        return _are_plain(value, 1)
    return kind is str or _are_plain((value,), 0)


def _is_plain_dict(fields: dict[Any, Any], depth: int) -> bool:
    for name in fields:
        if type(name) is not str:
            return False
    return _are_plain(fields.values(), depth)


def _are_plain(items: Iterable[Any], depth: int) -> bool:
    # Most of what encoding costs: literals instead of names, and no call for a leaf.
    if depth > MAX_DEPTH:
        return False
    for item in items:
        kind = type(item)
        if kind is str or kind is bool or item is None:
            continue
        if kind is int:
            if not -0x1F_FFFF_FFFF_FFFF <= item <= 0x1F_FFFF_FFFF_FFFF:
                return False
        elif kind is float:
            if not -1.7976931348623157e308 <= item <= 1.7976931348623157e308:
                return False
        elif kind is dict:
            if not _is_plain_dict(item, depth + 1):
                return False
        elif kind is not list or not _are_plain(item, depth + 1):
            return False
    return True


class Lowering:
    """One walk from a value to its tagged tree."""

    def __init__(self, names: Names) -> None:
        self._names = names
        self._containers: dict[type, Callable[[Any, int], Any]] = {
            list: self._list,
            dict: self._dict,
            tuple: lambda value, depth: {KEY: ["tuple", *self._list(value, depth)]},
            set: lambda value, depth: {KEY: ["set", *self._members(value, depth)]},
            frozenset: lambda value, depth: {KEY: ["frozenset", *self._members(value, depth)]},
        }

    def lower(self, value: Any, depth: int) -> Any:
        """The tree of one value inside `depth` containers. Raises Refused."""
        kind = type(value)
        if kind is bool or kind is NoneType:
            return value
        write = WRITERS.get(kind)
        if write is not None:
            return write(value)
        if depth >= MAX_DEPTH:
            raise Refused(f"it nests deeper than {MAX_DEPTH} levels", kind)
        container = self._containers.get(kind)
        try:
            if container is not None:
                return container(value, depth + 1)
            if isinstance(value, Enum):
                return self._enum(value, depth + 1)
            return self._object(value, depth + 1)
        except Refused as refused:
            refused.holders.append(id(value))
            raise

    def _list(self, value: Any, depth: int) -> list[Any]:
        lowered: list[Any] = []
        try:
            for item in value:
                lowered.append(self.lower(item, depth))
        except Refused as refused:
            refused.path.append(f"[{len(lowered)}]")
            raise
        return lowered

    def _members(self, value: Any, depth: int) -> list[Any]:
        lowered: list[Any] = []
        for item in value:
            try:
                lowered.append(self.lower(item, depth))
            except Refused as refused:
                refused.path.append(f"{{{_shown(item)}}}")
                raise
        # The order of a set changes with the process; its bytes must not.
        return sorted(lowered, key=lambda tree: canonical(dump_json(tree)))

    def _dict(self, value: dict[Any, Any], depth: int) -> Any:
        lowered: dict[str, Any] = {}
        pairs: list[list[Any]] = []
        plain_names = not (len(value) == 1 and KEY in value)
        for name, item in value.items():
            try:
                tree = self.lower(item, depth)
            except Refused as refused:
                refused.path.append(_step(name))
                raise
            try:
                key = self.lower(name, depth)
            except Refused as refused:
                refused.path.append(f"{{key {_shown(name)}}}")
                raise
            plain_names = plain_names and type(key) is str
            pairs.append([key, tree])
            if plain_names:
                lowered[key] = tree
        return lowered if plain_names else {KEY: ["map", *pairs]}

    def _enum(self, value: Enum, depth: int) -> Any:
        name = self._names.name_of(type(value))
        if isinstance(value, Flag):
            return {KEY: ["enum", name, None, self.lower(value.value, depth)]}
        try:
            return {KEY: ["enum", name, value.name, self.lower(value.value, depth)]}
        except Refused:
            # The name alone says which member it is; the value only lets a later change be noticed.
            return {KEY: ["enum", name, value.name]}

    def _object(self, value: Any, depth: int) -> Any:
        cls = type(value)
        shape = shape_of(cls)
        if shape is None:
            raise Refused(f"{cls.__qualname__} is not a class whose objects can be recorded", cls)
        name = self._names.name_of(cls)
        fields, more = shape.take_apart(value)
        body: list[Any] = ["object", name, self._fields(fields, depth)]
        if more:
            try:
                # What stands in there stands beside the fields, not inside another container.
                body.append(self._fields(more, depth - 1))
            except Refused as refused:
                del refused.path[-1]
                raise
        return {KEY: body}

    def _fields(self, fields: dict[str, Any], depth: int) -> dict[str, Any]:
        lowered: dict[str, Any] = {}
        for name, item in fields.items():
            try:
                lowered[name] = self.lower(item, depth)
            except Refused as refused:
                refused.path.append(_step(name))
                raise
        return lowered


def _step(name: Any) -> str:
    if type(name) is str and name.isascii() and name.isidentifier():
        return f".{name}"
    return f"[{_shown(name)}]"


def _shown(part: Any) -> str:
    """A key for an error's path: runs nobody's code, and holds no character that a terminal obeys."""
    if type(part) is str:
        return ascii(part if len(part) <= 40 else part[:40] + "...")
    if type(part) in (int, float, bool, NoneType) and not (type(part) is int and part.bit_length() > 128):
        return repr(part)
    return type(part).__qualname__


def _not_recordable(refused: Refused) -> NotRecordable:
    holders = refused.holders[::-1]
    steps = refused.path[::-1]
    reason = refused.reason
    seen: set[int] = set()
    for index, holder in enumerate(holders):
        if holder in seen:
            reason = "it contains itself"
            steps = steps[:index]
            break
        seen.add(holder)
    if len(steps) > _PATH_SHOWN:
        steps = [*steps[:_PATH_SHOWN], "..."]
    path = "$" + "".join(steps)
    kind = refused.kind.__qualname__
    return NotRecordable(f"The value at {path} cannot be recorded: {reason}.", path=path, type=kind, reason=reason)
