"""Where two JSON trees differ."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

ABSENT: Any = object()
"""Stands where one of two trees has nothing."""


def differences(recorded: Any, attempted: Any, path: str = "$") -> Iterator[tuple[str, Any, Any]]:
    """Where two JSON values differ, in order: the path, and what each has there. `1`, `1.0` and `true` are three."""
    if isinstance(recorded, dict) and isinstance(attempted, dict):
        for name in [*recorded, *(name for name in attempted if name not in recorded)]:
            yield from differences(recorded.get(name, ABSENT), attempted.get(name, ABSENT), f"{path}.{name}")
    elif isinstance(recorded, list) and isinstance(attempted, list):
        for place in range(max(len(recorded), len(attempted))):
            one = recorded[place] if place < len(recorded) else ABSENT
            other = attempted[place] if place < len(attempted) else ABSENT
            yield from differences(one, other, f"{path}[{place}]")
    elif type(recorded) is not type(attempted) or recorded != attempted:
        yield path, recorded, attempted
