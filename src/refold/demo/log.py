"""What a service did: one JSON line each, on disk before anybody is told. It outlives the service's death."""

from __future__ import annotations

import fcntl
import json
import logging
import os
from pathlib import Path
from typing import IO, Any

__all__ = ["ActLog", "read_log"]

_logger = logging.getLogger(__name__)


class ActLog:
    """The log of one service. It belongs to one process at a time: another waits here until that one is gone."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("a+b")
        _lock(self._file)
        self.lines = read_log(path)
        # A line that a killed service left half written was told to nobody.
        self._file.truncate(_whole(path.read_bytes()))
        _sync_folder(path.parent)

    def append(self, line: dict[str, Any]) -> dict[str, Any]:
        """Write the line, numbered `n` from 1, and return it when it is on disk."""
        numbered = {"n": len(self.lines) + 1, **line}
        self._file.write(json.dumps(numbered).encode() + b"\n")
        self._file.flush()
        os.fsync(self._file.fileno())
        self.lines.append(numbered)
        return numbered


def _lock(file: IO[bytes]) -> None:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        _logger.warning("waiting for the service that writes %s", file.name)
        fcntl.flock(file, fcntl.LOCK_EX)


def read_log(path: Path) -> list[dict[str, Any]]:
    """The whole lines of a log, also while its service is writing. A log that is not there has none."""
    try:
        found = path.read_bytes()
    except FileNotFoundError:
        return []
    return [json.loads(line) for line in found[: _whole(found)].splitlines()]


def _whole(found: bytes) -> int:
    return found.rfind(b"\n") + 1


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
