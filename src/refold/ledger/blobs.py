"""Numbered blobs of a run: what proves them in a list."""

from __future__ import annotations

from hashlib import sha256


def leaf(digest: bytes, view_digest: bytes | None) -> bytes:
    """What stands for a blob in part lists and artifact facts: its digest, bound to its view's where it has one."""
    return digest if view_digest is None else sha256(digest + view_digest).digest()
