"""The stored form's few fixed points: the reserved key, the limits, and the codecs of plain JSON."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from refold.events.values.errors import UnknownType, ValueDamaged

KEY: Final = "$"
MAX_DEPTH: Final = 200
"""How deep values may nest: containers around a leaf. Fixed, so that what can be recorded does not depend on
the caller's own stack; the deepest stored form (three JSON levels a container) stays below CPython's limit of
1,000."""

SAFE_INTEGER: Final = 2**53 - 1
"""The largest integer that every JSON reader keeps exactly (RFC 7493, section 2.2)."""

_ENCODER: Final = msgspec.json.Encoder()
_DECODER: Final = msgspec.json.Decoder()

dump_json = _ENCODER.encode


def parse(data: bytes) -> Any:
    """The JSON tree of stored bytes. Raises ValueDamaged for other bytes, RecursionError for deep ones."""
    try:
        return _DECODER.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise damaged(f"the bytes are not JSON ({error})") from error


def may_hold_tags(data: bytes) -> bool:
    """False only if no object in these bytes, however it is spaced or escaped, has the reserved key."""
    # One byte is searched for ten times as fast as three; most values hold neither a dollar nor an escape.
    return (b"$" in data and b'"$"' in data) or (b"\\" in data and b"\\u0024" in data)


def body_of(tree: dict[str, Any]) -> list[Any]:
    """What stands under the reserved key: a list that starts with the tag's name."""
    body = tree[KEY]
    if type(body) is not list or not body or type(body[0]) is not str:
        raise damaged("the reserved key does not hold a tag")
    return body


def damaged(reason: str, **facts: Any) -> ValueDamaged:
    return ValueDamaged(f"A stored value cannot be read: {reason}.", reason=reason, **facts)


def too_deep() -> ValueDamaged:
    return damaged(f"it nests deeper than {MAX_DEPTH} levels")


def unknown_tag(name: str) -> UnknownType:
    return UnknownType(f"A stored value has the tag {name[:80]!a}, which this release does not know.", type=name[:80])
