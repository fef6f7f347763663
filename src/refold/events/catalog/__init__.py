"""The catalogue: one table of event types. Importing this package fills it."""

from refold.events.catalog import governance, inference, run, steps, tool
from refold.events.catalog.base import CATALOG, Catalog, EventType, Facts, Name, SourceRecord, UnknownEvent

__all__ = [
    "CATALOG",
    "Catalog",
    "EventType",
    "Facts",
    "Name",
    "SourceRecord",
    "UnknownEvent",
    "governance",
    "inference",
    "run",
    "steps",
    "tool",
]
