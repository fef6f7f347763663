"""Where a ledger is, and opening it on a loop of one's own."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

from refold.ledger.ledger import Ledger, open_ledger

Place = str | Path | Ledger | Callable[[], Awaitable[Ledger]]
"""Where a ledger is: its file; an open ledger, whose file is then opened once more; or a function that opens one."""


async def open_place(place: Place, *, create: bool = True) -> Ledger:
    """Opens the ledger at a place on this loop."""
    if isinstance(place, Ledger):
        # The ledger of another loop cannot be used on this one; its file can.
        opened = await open_ledger(place.path, create=create, clock=place.clock)
        opened.redactor = place.redactor
        return opened
    if isinstance(place, str | Path):
        return await open_ledger(place, create=create)
    return await place()
