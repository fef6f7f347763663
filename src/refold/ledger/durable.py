"""What makes files last: the one call behind artifacts and backups."""

from __future__ import annotations

import os
from pathlib import Path


def sync(path: Path) -> None:
    """Makes a file's bytes, or a folder's entries, durable. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
