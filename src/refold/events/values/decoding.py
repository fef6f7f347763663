"""From stored bytes back to the value."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, Flag
from typing import Any

from refold.events.values.canonical import canonical
from refold.events.values.encoding import Lowering
from refold.events.values.errors import ShapeChanged
from refold.events.values.registry import Names, Registry
from refold.events.values.scalars import READERS, Refused, read_scalar
from refold.events.values.shapes import shape_of
from refold.events.values.stack import on_fresh_stack
from refold.events.values.tags import (
    KEY,
    MAX_DEPTH,
    body_of,
    damaged,
    dump_json,
    may_hold_tags,
    parse,
    too_deep,
    unknown_tag,
)


def decode(data: bytes, hint: Any = Any, *, types: Registry | None = None) -> Any:
    """The value that was encoded, equal and of the same type; `hint` and `types` as they were for `encode`.

    Raises UnknownType for a class or tag that is not known, ShapeChanged when a class no longer fits what was
    recorded, ValueDamaged for bytes that `encode` did not write. There is never a substitute.
    """
    try:
        return _decode(data, hint, types)
    except RecursionError:
        try:
            return on_fresh_stack(_decode, data, hint, types)
        except RecursionError:
            raise too_deep() from None


def _decode(data: bytes, hint: Any, types: Registry | None) -> Any:
    tree = parse(data)
    if may_hold_tags(data):
        return Raising(Names(types, hint)).raise_(tree, 0)
    if data.count(b"[") + data.count(b"{") > MAX_DEPTH:
        _check_depth(tree)
    return tree


def _check_depth(tree: Any) -> None:
    level = [tree]
    for _ in range(MAX_DEPTH):
        parts = (node.values() if type(node) is dict else node for node in level if type(node) in (dict, list))
        level = [item for part in parts for item in part if type(item) is dict or type(item) is list]
        if not level:
            return
    raise too_deep()


class Raising:
    """One walk from a tagged tree to the value; changes the tree in place."""

    def __init__(self, names: Names) -> None:
        self._names = names
        self._tags: dict[str, Callable[[list[Any], int], Any]] = {
            "tuple": lambda body, depth: tuple(self._items(body, depth, 1)[1:]),
            "set": lambda body, depth: self._members(set, body, depth),
            "frozenset": lambda body, depth: self._members(frozenset, body, depth),
            "map": self._map,
            "enum": self._enum,
            "object": self._object,
        }

    def raise_(self, tree: Any, depth: int) -> Any:
        """The value of one tree inside `depth` containers."""
        kind = type(tree)
        if kind is list:
            return self._items(tree, depth + 1)
        if kind is not dict:
            return tree
        if len(tree) != 1 or KEY not in tree:
            return self._fields(tree, depth + 1)
        body = body_of(tree)
        if body[0] in READERS:
            return read_scalar(body)
        build = self._tags.get(body[0])
        if build is None:
            raise unknown_tag(body[0])
        return build(body, depth + 1)

    def _items(self, items: list[Any], depth: int, start: int = 0) -> list[Any]:
        if depth > MAX_DEPTH:
            raise too_deep()
        for index in range(start, len(items)):
            item = items[index]
            if type(item) is dict or type(item) is list:
                items[index] = self.raise_(item, depth)
        return items

    def _fields(self, fields: dict[str, Any], depth: int) -> dict[str, Any]:
        if depth > MAX_DEPTH:
            raise too_deep()
        for name, item in fields.items():
            if type(item) is dict or type(item) is list:
                fields[name] = self.raise_(item, depth)
        return fields

    def _members(self, kind: type, body: list[Any], depth: int) -> Any:
        members = self._items(body, depth, 1)[1:]
        try:
            value = kind(members)
        except TypeError as error:
            raise damaged(f"a member of a {body[0]} cannot be hashed", tag=body[0]) from error
        if len(value) != len(members):
            raise damaged(f"a {body[0]} holds a member twice", tag=body[0])
        return value

    def _map(self, body: list[Any], depth: int) -> dict[Any, Any]:
        value: dict[Any, Any] = {}
        for pair in body[1:]:
            if type(pair) is not list or len(pair) != 2:
                raise damaged("a map does not hold pairs", tag="map")
            name, item = self._items(pair, depth)
            try:
                value[name] = item
            except TypeError as error:
                raise damaged("a key of a map cannot be hashed", tag="map") from error
        if len(value) != len(body) - 1:
            raise damaged("a map holds a key twice", tag="map")
        return value

    def _enum(self, body: list[Any], depth: int) -> Enum:
        if len(body) not in (3, 4) or type(body[1]) is not str or type(body[2]) not in (str, type(None)):
            raise damaged("an Enum's member is a class, a name and a value", tag="enum")
        name, member_name, *stored = body[1:]
        cls = self._names.class_of(name)
        if not issubclass(cls, Enum):
            raise _changed(name, "it is no longer an Enum")
        if member_name is None:
            return self._flag(cls, name, stored, depth)
        member = cls.__members__.get(member_name)
        if member is None:
            raise _changed(name, f"it has no member {member_name[:80]!a}")
        if stored and not self._is_value(member, stored[0], depth):
            raise _changed(name, f"its member {member.name} has another value")
        return member

    def _flag(self, cls: type[Enum], name: str, stored: list[Any], depth: int) -> Enum:
        value = self.raise_(stored[0], depth) if stored else None
        if type(value) is not int:
            raise damaged("a Flag is not a number", tag="enum")
        if not issubclass(cls, Flag):
            raise _changed(name, "it is no longer a Flag")
        try:
            member = cls(value)
        except ValueError as error:
            raise _changed(name, "it does not know all of the flags") from error
        if type(member) is not cls or member.value != value:
            raise _changed(name, "it does not know all of the flags")
        return member

    def _is_value(self, member: Enum, stored: Any, depth: int) -> bool:
        value = member.value
        if type(value) is type(stored) and type(value) in (str, int):
            return bool(value == stored)
        try:
            lowered = Lowering(self._names).lower(value, depth)
        except Refused:
            return False
        return canonical(dump_json(lowered)) == canonical(dump_json(stored))

    def _object(self, body: list[Any], depth: int) -> Any:
        name, parts = body[1] if len(body) > 1 else None, body[2:]
        if type(name) is not str or len(parts) not in (1, 2) or any(type(part) is not dict for part in parts):
            raise damaged("an object is a class and its fields", tag="object")
        cls = self._names.class_of(name)
        shape = shape_of(cls)
        if shape is None:
            raise _changed(name, "it is no longer a class with fields")
        if parts[0].keys() != shape.fields:
            raise _changed(name, _difference(shape.fields, parts[0].keys()))
        fields = self._fields(parts[0], depth)
        more = self._fields(parts[1], depth - 1) if len(parts) > 1 else {}
        try:
            return shape.put_together(fields, more)
        except Exception as error:  # a Struct's __post_init__ is somebody's code
            raise _changed(name, f"it could not be put together ({type(error).__name__})") from error


def _difference(wanted: frozenset[str], recorded: Any) -> str:
    gone = sorted(recorded - wanted)
    new = sorted(wanted - set(recorded))
    sides = [
        f"{label} {', '.join(names)[:200]!a}" for label, names in (("no longer has", gone), ("now has", new)) if names
    ]
    return "it " + " and ".join(sides)


def _changed(name: str, reason: str) -> ShapeChanged:
    return ShapeChanged(
        f"A recorded {name[:80]!a} does not fit the class of that name: {reason}.",
        type=name[:80],
        reason=reason,
    )
