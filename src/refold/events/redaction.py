"""Redacted views: what tables, streams, exports and screens may show of exact content.

A view is made once, at the write. `Redactor.suspicious` reads the stored bytes and lets clean content pass
in a few microseconds a kilobyte; only then does `Redactor.redact` walk the value. `summary` is the short
text that a view holds of a clean field. All of it is pure: no I/O, no clock, the same answer every time.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from datetime import date, time
from decimal import Decimal
from functools import lru_cache
from typing import Any
from urllib.parse import quote
from uuid import UUID

from refold.events.secret_assignments import named_spans
from refold.events.secret_formats import (
    Span,
    may_hold_format,
    may_hold_url_password,
    opaque_spans,
    url_spans,
)
from refold.events.secret_names import is_secret_key, may_name_secret

SHORTEST_REGISTERED = 6
"""Registered values with fewer characters are ignored: they would blot out ordinary words."""

_ASCII_ESCAPE = re.compile(rb"\\u00[2-7]|\\/")
_MARK = re.compile(r"\[redacted:[a-z_]+\]\Z")
_PLAIN_RUN = re.compile(r"[ !#-\[\]-\x7f]+")
_SHORTEST_TEXT = 6
_RedactText = Callable[[str], tuple[str, int]]
_DIRECTORIES = frozenset({"PWD", "OLDPWD", "pwd"})
_SCHEMA_WORDS = frozenset({"type", "$ref", "anyOf", "oneOf", "allOf", "enum", "const", "description"})


class Redactor:
    """Replaces secrets in JSON-like values by `[redacted:<kind>]`.

    The kind is the name of a known format (`openai`, `jwt`, `assignment`, ...), `key` for a value that
    stands under a secret name, or `registered` for a value given here. Registered values shorter than
    SHORTEST_REGISTERED are ignored; longer ones are found anywhere in a string, also JSON-escaped or
    percent-encoded.
    """

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        registered = {secret for secret in secrets if len(secret) >= SHORTEST_REGISTERED}
        forms = {form for secret in registered for form in _forms(secret)}
        self._registered = sorted(forms, key=lambda form: (-len(form), form))
        self._anchors = sorted({anchor for form in forms for anchor in _anchors(form)})
        self._redact_key = lru_cache(maxsize=4096)(self._redact_text)

    def suspicious(self, data: bytes) -> bool:
        """Whether the stored JSON (UTF-8) of a value may hold a secret.

        False is certain: `redact` of that value would replace nothing, whichever way the JSON was escaped.
        True is a suspicion that costs a walk.
        """
        if b"\\" in data and _ASCII_ESCAPE.search(data):
            return True  # an unusual encoder: terms may be hidden in escapes
        if may_name_secret(data) or may_hold_format(data) or may_hold_url_password(data):
            return True
        return any(anchor in data for anchor in self._anchors)

    def redact(self, value: Any) -> tuple[Any, int]:
        """A copy of the value without its secrets, and how many were replaced.

        Takes dicts with str keys, lists, tuples (returned as lists), str, numbers, None; leaves of other
        types are kept as they are. Nesting may be as deep as memory allows.
        """
        walk = _Walk(self._redact_text, self._redact_key)
        copy = walk.copied(value, False)
        walk.finish()
        return copy, walk.count

    def _redact_text(self, text: str) -> tuple[str, int]:
        if len(text) < _SHORTEST_TEXT or not (spans := sorted(self._spans(text), key=_by_place)):
            return text, 0
        pieces: list[str] = []
        at = count = 0
        for start, end, kind in spans:
            if end <= at:
                continue
            if start >= at:
                pieces.append(text[at:start])
                pieces.append(f"[redacted:{kind}]")
                count += 1
            at = end  # an overlap belongs to the secret before it
        pieces.append(text[at:])
        return "".join(pieces), count

    def _spans(self, text: str) -> Iterator[Span]:
        for secret in self._registered:
            at = text.find(secret)
            while at >= 0:
                yield at, at + len(secret), "registered"
                at = text.find(secret, at + len(secret))
        data = text.encode("utf-8", "surrogatepass")
        formats = may_hold_format(data)
        if formats:
            yield from opaque_spans(text)
        if may_hold_url_password(data):
            yield from url_spans(text)
        if formats or may_name_secret(data):
            yield from named_spans(text)


def _by_place(span: Span) -> tuple[int, int]:
    """First the span that begins first, of those the longest."""
    return span[0], -span[1]


class _Walk:
    """Copies a value without recursion: containers are created empty and filled from a stack."""

    def __init__(self, text: _RedactText, key: _RedactText) -> None:
        self.count = 0
        self._text = text
        self._key = key
        self._open: list[tuple[Any, Any, bool, bool]] = []

    def copied(self, item: Any, secret: bool, schemas: bool = False) -> Any:
        """The copy of a leaf, or an empty container that `finish` fills.

        `secret`: everything in it is to be hidden; `schemas`: it maps names of fields to their JSON Schemas.
        """
        if isinstance(item, str):
            if not secret:
                clean, found = self._text(item)
                self.count += found
                return clean
            hidden = item != "" and not _MARK.match(item)
        elif isinstance(item, dict | list | tuple):
            copy: Any = {} if isinstance(item, dict) else []
            self._open.append((item, copy, secret, schemas))
            return copy
        else:
            hidden = secret and isinstance(item, int | float) and not isinstance(item, bool)
        if not hidden:
            return item
        self.count += 1
        return "[redacted:key]"

    def finish(self) -> None:
        while self._open:
            source, copy, secret, schemas = self._open.pop()
            if isinstance(source, dict):
                self._entries(source, copy, secret, schemas)
            else:
                copy.extend([self.copied(item, secret) for item in source])

    def _entries(self, source: dict[Any, Any], copy: dict[Any, Any], secret: bool, schemas: bool) -> None:
        named = source.get("name", source.get("key"))
        names_value = isinstance(named, str) and is_secret_key(named)
        for key, item in source.items():
            if not isinstance(key, str):
                copy[key] = self.copied(item, secret)
                continue
            hidden = secret or (
                (is_secret_key(key) or (names_value and key == "value"))
                and not _is_innocent(key, item, source, schemas)
            )
            shown, found = self._key(key) if len(key) <= 128 else self._text(key)
            self.count += found
            while found and shown in copy:
                shown += "+"  # two keys that are secrets must not become one entry
            copy[shown] = self.copied(item, hidden, key == "properties")


def _is_innocent(key: str, item: Any, source: dict[Any, Any], schemas: bool) -> bool:
    """What stands under a secret name and is none: a field's schema, a sampled token, a working directory."""
    if isinstance(item, dict):
        return (schemas and not _SCHEMA_WORDS.isdisjoint(item)) or (key == "token" and "logprob" in item)
    if key == "token":
        return "logprob" in source
    return key in _DIRECTORIES and isinstance(item, str) and item.startswith(("/", "~"))


def _forms(secret: str) -> set[str]:
    """A registered value as it appears in text: itself, inside a JSON string, in a URL."""
    url = quote(secret, safe="", errors="surrogatepass")
    return {secret, json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1], url}


def _anchors(secret: str) -> list[bytes]:
    """Bytes of which one must occur in any JSON form of a string that contains the secret."""
    runs = _PLAIN_RUN.findall(secret)
    if runs:
        return [max(runs, key=len).encode()]
    escaped = any(ord(c) < 0x80 for c in secret)
    return [b"\\"] if escaped else [b"\\u", secret.encode("utf-8", "surrogatepass")]


_UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]")
# Numbers with an exponent, or so small that Python writes one: msgspec and the standard library differ in these alone.
_WRITTEN_OTHERWISE = re.compile(rb"[:,\[]-?(?:[0-9.]+e|0\.0000)")
_MARGIN = 16
"""Bytes that tell how a number goes on which begins in the last character of a window."""
_CUT = "…"
_CUT_BYTES = len(_CUT.encode())


def summary(value: Any, limit: int = 256) -> str:
    """A short text for people: a str itself, any other value as compact JSON; at most `limit` bytes of
    UTF-8.

    What does not fit is cut between characters and ends in `…`, which counts. The result is safe to print:
    control characters except newline and tab, and the marks that turn the direction of text or break lines,
    become visible escapes (`\\x1b`, `\\u202e`); a lone surrogate becomes U+FFFD. Reads about `limit`
    characters, however long the value.
    """
    return _safe(value[: limit + 1] if isinstance(value, str) else _json_head(value, limit), limit)


def summary_of_json(encoded: bytes, limit: int = 256) -> str | None:
    """The `summary` of a dict or list, cut from its compact JSON. None where that writes a number otherwise, and for
    what is neither.
    """
    window = encoded[: limit + _MARGIN]
    if not window.isascii():
        window = encoded[: 4 * limit + _MARGIN]
    if not window.startswith((b"{", b"[")) or _WRITTEN_OTHERWISE.search(window):
        return None
    return _safe(window.decode("utf-8", "ignore")[: limit + 1], limit)


def _safe(head: str, limit: int) -> str:
    if not _UNSAFE.search(head):
        encoded = head.encode()
        if len(encoded) <= limit:
            return head
        room = limit - _CUT_BYTES
        return encoded[:room].decode("utf-8", "ignore") + _CUT if room >= 0 else ""
    pieces = [_visible(c) for c in head]
    sizes = [len(piece.encode()) for piece in pieces]
    if sum(sizes) <= limit:
        return "".join(pieces)
    room = limit - _CUT_BYTES
    kept: list[str] = []
    for piece, size in zip(pieces, sizes, strict=True):
        room -= size
        if room < 0:
            break
        kept.append(piece)
    return "".join(kept) + _CUT if limit >= _CUT_BYTES else ""


def _visible(character: str) -> str:
    if not _UNSAFE.match(character):
        return character
    code = ord(character)
    if 0xD800 <= code <= 0xDFFF:
        return "\ufffd"
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def _json_head(value: Any, limit: int) -> str:
    """The first characters of the compact JSON of a value, at least limit + 1 of them where there are so
    many.

    Written by hand because an encoder would first write all of a value that is 100 MB long or 100,000
    levels deep.
    """
    pieces: list[str] = []
    size = 0
    stack: list[Iterator[Any]] = [iter((value,))]
    closers: list[str] = []
    first = True
    while stack and size <= limit:
        step: Any = next(stack[-1], _END)
        if step is _END:
            stack.pop()
            piece = closers.pop() if closers else ""
            first = False
        else:
            item = step
            piece = "" if first else ","
            if closers and closers[-1] == "}":
                key, item = step
                piece += _text_head(str(key), limit) + ":"
            first = False
            if isinstance(item, dict):
                piece += "{"
                stack.append(iter(item.items()))
                closers.append("}")
                first = True
            elif isinstance(item, list | tuple):
                piece += "["
                stack.append(iter(item))
                closers.append("]")
                first = True
            else:
                piece += _leaf_head(item, limit)
        pieces.append(piece)
        size += len(piece)
    return "".join(pieces)[: limit + 1]


_END = object()
_dump = json.JSONEncoder(ensure_ascii=False).encode
_LONGEST_INTEGER_BITS = 4096


def _leaf_head(item: Any, limit: int) -> str:
    if isinstance(item, str):
        return _text_head(item, limit)
    if item is None or isinstance(item, bool | float):
        return _dump(item)
    if isinstance(item, int):
        # Python refuses decimal texts of huge integers, and writing them takes quadratic time.
        bits = item.bit_length()
        return str(int(item)) if bits <= _LONGEST_INTEGER_BITS else f"(integer of {bits} bits)"
    if isinstance(item, Decimal | UUID | date | time):
        return _dump(str(item))
    return f"({type(item).__name__})"


def _text_head(text: str, limit: int) -> str:
    return _dump(text[: limit + 1])
