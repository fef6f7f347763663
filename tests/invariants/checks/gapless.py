"""Every stream's events are numbered from 1 without a gap, and belong to a stream that has a head."""

from __future__ import annotations

from pathlib import Path

from tests.invariants.checks.reading import HEADS, reading, rows


def check(path: Path) -> None:
    with reading(path) as connection:
        found = rows(connection, "SELECT id >> 32, count(*), min(seq), max(seq) FROM events GROUP BY id >> 32")
        streams = {row[0]: row[3] for row in rows(connection, HEADS)}
    for number, count, first, last in found:
        assert number in streams, f"events of stream number {number}, which has no head"
        assert (first, last) == (1, count), f"{streams[number]}: {count} events from {first} to {last}"
