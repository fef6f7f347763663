"""Bodies of requests: kept so that a conversation which is sent again each turn costs what is new in it, and comes
back byte for byte.

A body is kept as a JSON value only where writing that value out again gives the same bytes. The lists of messages and
tools, and long instructions, become parts of the run, each kept once; everything else stays where it is.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from refold.events import values
from refold.events.content import PartChain, PartList
from refold.ledger.writer import StreamWriter

_FIELDS = {
    "messages": "messages",
    "input": "messages",
    "contents": "messages",
    "tools": "tools",
    "system": "system",
    "instructions": "system",
}
"""Members of a body that become parts, and the field of the event's content that lists them."""
_LONG = 256
"""Characters from which a text among them is a part."""
_STYLES: tuple[tuple[str, str, bool], ...] = (
    (",", ":", False),
    (", ", ": ", True),
    (",", ":", True),
    (", ", ": ", False),
)
"""How programs write JSON: between members, after names, and whether other letters than ASCII are escaped."""

Fields = dict[str, Any]


class Body(NamedTuple):
    """A JSON body: its value, and how it is written."""

    value: Any
    style: tuple[str, str, bool]


def read_body(data: bytes) -> Body | None:
    """A body as JSON; None when it is none, or one that would not be written the same again."""
    try:
        value = json.loads(data)
        values.encode(value)
    except (ValueError, RecursionError, values.NotRecordable):
        return None
    for style in _STYLES:
        if write_body(value, style) == data:
            return Body(value, style)
    return None


def write_body(value: Any, style: Sequence[Any]) -> bytes:
    """The bytes of a JSON body."""
    between, after, ascii_only = style
    return json.dumps(value, separators=(between, after), ensure_ascii=ascii_only).encode("utf-8", "surrogatepass")


def plain(data: bytes) -> str | bytes:
    """Bytes as text where they are text: it is shorter in the ledger, and scanned for secrets."""
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return data


async def keep_body(writer: StreamWriter, data: bytes, body: Body | None) -> tuple[Fields, dict[str, PartList]]:
    """What stands for a body in a request's content, and the parts that it uses by field. `body` is what was read."""
    if body is None:
        return {"body": plain(data)}, {}
    skeleton, found = body.value, {}
    if isinstance(skeleton, dict):
        skeleton = dict(skeleton)
        for key, field in _FIELDS.items():
            if field not in found and _grows(skeleton.get(key)):
                found[field] = key
    pieces: dict[str, list[Any]] = {}
    parts: dict[str, PartList] = {}
    for field, key in found.items():
        value, skeleton[key] = skeleton[key], None
        pieces[field] = [key, isinstance(value, str)]
        parts[field] = await part_list(writer, [value] if isinstance(value, str) else value)
    return {"body": skeleton, "style": list(body.style), "pieces": pieces}, parts


def _grows(value: Any) -> bool:
    return len(value) > _LONG if isinstance(value, str) else isinstance(value, list) and bool(value)


async def part_list(writer: StreamWriter, items: Sequence[Any]) -> PartList:
    """The list of a run's parts that these values are."""
    chain = PartChain()
    for item in items:
        part = await writer.part(item)
        chain.add(part.number, part.leaf)
    return chain.as_list()


def kept_value(fields: Fields, parts: Mapping[str, Sequence[Any]]) -> Any:
    """The value of a body that `keep_body` kept: JSON, text or bytes."""
    value = fields["body"]
    if fields.get("pieces"):
        value = dict(value)
        for field, (key, is_text) in fields["pieces"].items():
            value[key] = parts[field][0] if is_text else list(parts[field])
    return value


def kept_bytes(fields: Fields, parts: Mapping[str, Sequence[Any]]) -> bytes:
    """The body itself."""
    value = kept_value(fields, parts)
    if "style" in fields:
        return write_body(value, fields["style"])
    return value.encode() if isinstance(value, str) else bytes(value)
