"""Rows and events as JSON."""

from __future__ import annotations

from typing import Any

import msgspec

from refold.cli.shapes import moment
from refold.events.envelope import NO_VIEW, Event
from refold.projections.rows import Row


def row_json(row: Row) -> dict[str, Any]:
    """A row as programs get it: times in ISO 8601."""
    return {name: value if value is None or not _is_time(name) else moment(value) for name, value in _items(row)}


def _items(row: Row) -> list[tuple[str, Any]]:
    return [(name, getattr(row, name)) for name in row.__struct_fields__]


def _is_time(name: str) -> bool:
    return name == "at" or name.endswith("_at")


def event_json(event: Event) -> dict[str, Any]:
    """An event as programs get it: facts and view, never exact content."""
    assert event.row is not None  # Read whole, not for folding.
    data = msgspec.to_builtins(event.facts)
    if event.view is not NO_VIEW:
        data["view"] = msgspec.to_builtins(event.view)
    return {
        "seq": event.seq,
        "type": event.type,
        "version": event.row.version,
        "recorded_at": moment(event.recorded_at),
        "step_id": getattr(event.facts, "step_id", None),
        "data": data,
        "hash": event.row.hash.hex(),
    }
