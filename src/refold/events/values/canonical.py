"""The canonical form of stored bytes, and digests under a key. Needs no types: it works on tags.

RFC 8785 (the JSON Canonicalization Scheme) formats numbers by the rules of JavaScript, under which 0, 0.0 and
-0.0 are one text, and which cost a formatter of their own. Here floats, and integers beyond 2^53, are written
as tagged strings before that scheme is applied, so that it never formats a number and different values have
different bytes.
"""

from __future__ import annotations

import hmac
from typing import Any, Final

import msgspec

from refold.events.values.scalars import READERS, canonical_float, write_int
from refold.events.values.stack import on_fresh_stack
from refold.events.values.tags import (
    KEY,
    MAX_DEPTH,
    SAFE_INTEGER,
    body_of,
    damaged,
    dump_json,
    parse,
    too_deep,
    unknown_tag,
)

DIGEST_SIZE: Final = 16
"""Bytes of a keyed digest: HMAC-SHA-256 cut to 128 bits, as RFC 2104, section 5 allows. It finds and names
values within one tenant; proof of content is the chain's, with whole digests."""

_dump_sorted = msgspec.json.Encoder(order="sorted").encode
# Code points from U+10000 start with one of these in UTF-8. Only they sort differently in UTF-16.
_ASTRAL_LEADS = (b"\xf0", b"\xf1", b"\xf2", b"\xf3", b"\xf4")


def canonical(data: bytes) -> bytes:
    """The canonical form of what `encode` wrote: equal for equal values, whatever the order of dicts and
    sets.

    `decode` reads it too. Raises ValueDamaged or UnknownType for bytes that are not a stored value.
    """
    try:
        return _canonical(data)
    except RecursionError:
        try:
            return on_fresh_stack(_canonical, data)
        except RecursionError:
            raise too_deep() from None


def keyed_digest(secret: bytes, data: bytes) -> bytes:
    """The address of a value under a tenant's secret: 16 bytes, HMAC-SHA-256 over the canonical form, cut."""
    return hmac.digest(secret, canonical(data), "sha256")[:DIGEST_SIZE]


def _canonical(data: bytes) -> bytes:
    return _dump(_normal(parse(data), 0))


def _dump(tree: Any) -> bytes:
    written = _dump_sorted(tree)
    if written.isascii() or not any(lead in written for lead in _ASTRAL_LEADS):
        return written
    return dump_json(_in_utf16_order(tree))


def _in_utf16_order(tree: Any) -> Any:
    if type(tree) is dict:
        names = sorted(tree, key=lambda name: name.encode("utf-16-be"))
        return {name: _in_utf16_order(tree[name]) for name in names}
    if type(tree) is list:
        return [_in_utf16_order(item) for item in tree]
    return tree


def _normal(tree: Any, depth: int) -> Any:
    """The tree with every number safe and every set in order; changes it in place."""
    kind = type(tree)
    if kind is float:
        return canonical_float(tree)
    if kind is int:
        return write_int(tree)
    if kind is dict:
        if len(tree) == 1 and KEY in tree:
            return {KEY: _normal_tag(body_of(tree), depth)}
        return _normal_fields(tree, depth)
    if kind is list:
        _normal_items(tree, depth)
    return tree


def _normal_fields(tree: dict[str, Any], depth: int) -> dict[str, Any]:
    if depth >= MAX_DEPTH:
        raise too_deep()
    for name, item in tree.items():
        kind = type(item)
        if kind is str:
            continue
        if kind is dict or kind is list or kind is float or (kind is int and not -SAFE_INTEGER <= item <= SAFE_INTEGER):
            tree[name] = _normal(item, depth + 1)
    return tree


def _normal_items(tree: list[Any], depth: int, start: int = 0) -> None:
    if depth >= MAX_DEPTH:
        raise too_deep()
    for index in range(start, len(tree)):
        item = tree[index]
        kind = type(item)
        if kind is str:
            continue
        if kind is dict or kind is list or kind is float or (kind is int and not -SAFE_INTEGER <= item <= SAFE_INTEGER):
            tree[index] = _normal(item, depth + 1)


def _normal_tag(body: list[Any], depth: int) -> list[Any]:
    tag = body[0]
    if tag == "set" or tag == "frozenset":
        _normal_items(body, depth, 1)
        body[1:] = sorted(body[1:], key=_dump)
    elif tag == "map":
        for pair in body[1:]:
            if type(pair) is not list or len(pair) != 2:
                raise damaged("a map does not hold pairs", tag=tag)
            _normal_items(pair, depth)
        body[1:] = sorted(body[1:], key=lambda pair: _dump(pair[0]))
    elif tag == "object":
        # The objects in here are records of fields by name, not values: a field called `$` is no tag.
        for index, part in enumerate(body[2:4]):
            if type(part) is not dict:
                raise damaged("an object does not hold fields", tag=tag)
            _normal_fields(part, depth - index)
    elif tag in READERS or tag == "tuple" or tag == "enum":
        _normal_items(body, depth, 1)
    else:
        raise unknown_tag(tag)
    return body
