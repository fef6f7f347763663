"""Files of backups: written whole, synced, digested on the way."""

from __future__ import annotations

import os
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import ClassVar, NamedTuple

from refold.errors import RefoldError
from refold.ledger.durable import sync

_CHUNK = 1 << 20


class TargetExists(RefoldError):
    """There is something already at the place that a backup or a restored ledger was to get. It was not touched."""

    code: ClassVar[str] = "target_exists"
    exit_status: ClassVar[int] = 6
    remedy = "Name another place, or move away what is there; nothing is ever overwritten."


class Written(NamedTuple):
    """Size and SHA-256 (hex) of a file that was written."""

    size: int
    sha256: str


def copy(source: Path, target: Path) -> Written:
    """Copies a file, syncs the copy, and says what went into it. Folders are made as needed. Raises OSError."""
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    digest, size = sha256(), 0
    with source.open("rb") as reading, open(target, "xb", opener=_private) as writing:
        while chunk := reading.read(_CHUNK):
            digest.update(chunk)
            size += len(chunk)
            writing.write(chunk)
        writing.flush()
        os.fsync(writing.fileno())
    return Written(size, digest.hexdigest())


def digest(path: Path) -> Written:
    """Size and SHA-256 of a file that nobody has open as a database."""
    digest, size = sha256(), 0
    with path.open("rb") as reading:
        while chunk := reading.read(_CHUNK):
            digest.update(chunk)
            size += len(chunk)
    return Written(size, digest.hexdigest())


def write_new(path: Path, data: bytes) -> None:
    """Writes a small file and syncs it."""
    with open(path, "xb", opener=_private) as writing:
        writing.write(data)
        writing.flush()
        os.fsync(writing.fileno())


def sync_folders(root: Path) -> None:
    """Makes the entries of a folder and of all below it durable, the deepest first."""
    for folder in sorted(_folders(root), key=lambda each: len(each.parts), reverse=True):
        sync(folder)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _folders(root: Path) -> Iterator[Path]:
    yield root
    for each in root.rglob("*"):
        if each.is_dir():
            yield each
