"""How far a long command has come: one line on a terminal that changes, a line every few seconds elsewhere."""

from __future__ import annotations

import sys
import time

from refold.cli.terminal import visible

_REDRAW = 0.1
_SAY_AGAIN = 5.0


class Progress:
    """Tells standard error how far the work is. Call it as often as you like; `done` clears the line.

    Nothing is written in the first moments, so that quick work stays silent.
    """

    def __init__(self) -> None:
        self._terminal = sys.stderr.isatty()
        self._every = _REDRAW if self._terminal else _SAY_AGAIN
        self._next = time.monotonic() + (0.3 if self._terminal else _SAY_AGAIN)
        self._drawn = False

    def __call__(self, text: str) -> None:
        now = time.monotonic()
        if now < self._next:
            return
        self._next = now + self._every
        shown = visible(text)
        sys.stderr.write(f"\r\x1b[2K{shown}" if self._terminal else f"{shown}\n")
        sys.stderr.flush()
        self._drawn = self._terminal

    def done(self) -> None:
        if self._drawn:
            sys.stderr.write("\r\x1b[2K")
            sys.stderr.flush()
            self._drawn = False

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *exc: object) -> None:
        self.done()
