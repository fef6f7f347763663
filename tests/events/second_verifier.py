"""A verifier written from docs/format.md and from nothing else: the standard library, and no code of refold."""

from __future__ import annotations

import hashlib
import hmac
from typing import Any


def keyed(secret: bytes, purpose: str, data: str) -> bytes:
    return hmac.new(secret, purpose.encode() + b"\x00" + data.encode(), hashlib.sha256).digest()[:16]


def header(event: dict[str, Any], before: bytes, scope: bytes, kind: int, ulid: bytes) -> bytes:
    def number(value: int, size: int) -> bytes:
        return value.to_bytes(size, "big", signed=value < 0)

    def digest(name: str) -> bytes:
        return bytes.fromhex(event[name]) if event[name] is not None else bytes(32)

    occurred = -(2**63) if event["occurred_at"] is None else event["occurred_at"]
    texts = [event[name].encode() for name in ("type", "actor", "site", "facts")]
    parts = [number(event["format"], 1), before, scope, number(kind, 1), ulid]
    parts += [number(event["seq"], 8), number(event["version"], 4), number(event["epoch"], 8)]
    parts += [number(event["recorded_at"], 8), number(occurred, 8), number(event["cause"] or 0, 8)]
    parts += [digest("content_digest"), digest("view_digest"), *(number(len(text), 4) for text in texts)]
    return b"".join(parts)


def first_bad(stream: dict[str, Any], scope: bytes) -> int | None:
    """The seq of the first event that is not proven; None when all are."""
    before = bytes(32)
    for seq, event in enumerate(stream["events"], 1):
        for column, name in ((event["content"], "content_digest"), (event["view"], "view_digest")):
            if column is not None and hashlib.sha256(bytes.fromhex(column)).hexdigest() != event[name]:
                return seq
        head = header(event, before, scope, stream["kind"], bytes.fromhex(stream["ulid"]))
        tail = "".join((event["type"], event["actor"], event["site"], event["facts"])).encode()
        before = hashlib.sha256(head + tail).digest()
        if event["seq"] != seq or before.hex() != event["hash"] or event["cause"] == 0:
            return seq
    return None


def leaf(blob: dict[str, Any]) -> bytes:
    digest = bytes.fromhex(blob["digest"])
    if blob["view_digest"] is None:
        return digest
    return hashlib.sha256(digest + bytes.fromhex(blob["view_digest"])).digest()


def list_digest(ranges: list[list[int]], blobs: list[dict[str, Any]]) -> str:
    digest = bytes(32)
    for first, last in ranges:
        for number in range(first, last + 1):
            digest = hashlib.sha256(digest + leaf(blobs[number - 1])).digest()
    return digest.hex()
