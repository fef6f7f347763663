"""Where in people's code an operation was asked for."""

from __future__ import annotations

import asyncio
from itertools import islice
from types import CodeType, FrameType

_BETWEEN = ("refold.runtime.", "refold.gateway.", "asyncio.")
"""Modules that stand between the line that asks and whoever notes it."""
_CALLBACK = asyncio.Handle._run.__code__
"""What is below a callback is the loop's, and then the host's."""

Place = tuple[CodeType, int]
"""A code object, and the offset of the instruction in it: which line that is costs too much to find out each time."""


def place_of(frame: FrameType | None) -> Place | None:
    """The nearest place that is neither ours nor asyncio's; None where a loop's callback comes first."""
    while frame is not None:
        code = frame.f_code
        if code is _CALLBACK:
            return None
        if not frame.f_globals.get("__name__", "").startswith(_BETWEEN):
            return code, frame.f_lasti
        frame = frame.f_back
    return None


def line_of(place: Place) -> str:
    """File and line of a place."""
    code, offset = place
    line = next(islice(code.co_positions(), offset // 2, None))[0]
    return f"{code.co_filename}:{line}"
