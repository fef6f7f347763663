"""Where in people's code an operation was asked for."""

from __future__ import annotations

import asyncio
from types import FrameType
from typing import NamedTuple

_BETWEEN = ("refold.runtime.", "refold.gateway.", "asyncio.")
"""Modules that stand between the line that asks and whoever notes it."""
_CALLBACK = asyncio.Handle._run.__code__
"""What is below a callback is the loop's, and then the host's."""


class Place(NamedTuple):
    """A line of code."""

    file: str
    line: int


def place_of(frame: FrameType | None) -> Place | None:
    """The nearest line that is neither ours nor asyncio's; None where a loop's callback comes first."""
    while frame is not None:
        if frame.f_code is _CALLBACK:
            return None
        if not frame.f_globals.get("__name__", "").startswith(_BETWEEN):
            return Place(frame.f_code.co_filename, frame.f_lineno)
        frame = frame.f_back
    return None
