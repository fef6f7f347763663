"""Memory does not grow with the session: the short form of `benchmarks/import_large.py`, which takes a gigabyte."""

from __future__ import annotations

from typing import Any

from benchmarks.import_large import ALLOWED, prove


def test_a_large_session_is_imported_in_bounded_memory_though_the_process_is_killed() -> None:
    said: list[Any] = []
    assert prove(12_000_000, 1, said.append), said
    assert max(each["peak"] for each in said if isinstance(each, dict)) < ALLOWED / 2
