"""The reducer fingerprint: which code folded a row or a snapshot.

It is a digest of the sources of the folds and of the fact structs they read, without comment lines and blank lines. A
version constant can be forgotten; bytecode differs between Python versions; the source says it all and hashes in
under a millisecond.
"""

from __future__ import annotations

from functools import cache
from hashlib import sha256
from importlib.resources import files

_PACKAGES = ("refold.projections", "refold.events.catalog")


@cache
def fingerprint() -> str:
    """32 hex digits that change whenever a fold, a row or a fact struct changes."""
    digest = sha256()
    for package in _PACKAGES:
        for source in sorted(files(package).iterdir(), key=lambda each: each.name):
            if source.name.endswith(".py"):
                digest.update(source.name.encode())
                for line in source.read_bytes().splitlines():
                    kept = line.strip()
                    if kept and not kept.startswith(b"#"):
                        digest.update(line.rstrip() + b"\n")
    return digest.hexdigest()[:32]
