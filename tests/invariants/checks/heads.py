"""Every head says what its stream's last event is, and is closed exactly when that event ends the run."""

from __future__ import annotations

from pathlib import Path

from tests.invariants.checks.reading import HEADS, reading, rows

_ENDS = ("run.succeeded", "run.failed", "run.canceled", "run.expired")


def check(path: Path) -> None:
    last = "SELECT seq, hash, type FROM events WHERE id > ?1 << 32 AND id < (?1 + 1) << 32 ORDER BY id DESC LIMIT 1"
    with reading(path) as connection:
        for number, _, _, stream, seq, hash_, closed in rows(connection, HEADS):
            event = rows(connection, last, number)
            if not event:
                assert (seq, hash_, closed) == (0, bytes(32), 0), f"the head of {stream} stands at {seq} without events"
                continue
            assert (seq, hash_) == event[0][:2], f"the head of {stream} at {seq} is not its last event {event[0][0]}"
            assert bool(closed) == (event[0][2] in _ENDS), f"{stream} is closed={closed} and ends with {event[0][2]}"
