"""What a command prints: tables and lines for people, JSON for programs."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TextIO

import click

from refold.cli.shapes import clock
from refold.cli.terminal import clipped, visible

if TYPE_CHECKING:
    from refold.events.envelope import Event

_WIDE = 100_000
"""Columns assumed where no terminal cuts the lines: a table in a pipe keeps every character."""

Style = str


class Cell(NamedTuple):
    """A table's cell with a colour for terminals."""

    text: str
    style: Style


class Output:
    """Standard output of one command, or another stream of text. Every text is made safe for terminals."""

    def __init__(self, *, as_json: bool, stream: TextIO | None = None) -> None:
        self.as_json = as_json
        self._stream = stream or sys.stdout
        self.on_terminal = self._stream.isatty()
        self.coloured = self.on_terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"

    def json(self, value: Any) -> None:
        """One JSON document on one line. Nothing in it can move a cursor."""
        from refold.replay.present import to_json

        self.bytes(to_json(value) + b"\n")

    def bytes(self, data: bytes) -> None:
        """Bytes as they are."""
        sys.stdout.flush()
        sys.stdout.buffer.write(data)

    def line(self, *parts: str | Cell) -> None:
        """One line of text."""
        self._stream.write("".join(self._shown(part) for part in parts) + "\n")

    def flush(self) -> None:
        """Hands over what was printed so far to whoever reads it."""
        sys.stdout.flush()
        sys.stdout.buffer.flush()

    def _shown(self, part: str | Cell) -> str:
        if isinstance(part, str):
            return visible(part)
        text = visible(part.text)
        return click.style(text, **_STYLES[part.style]) if self.coloured and part.style else text

    def table(self, columns: Sequence[str], rows: Iterable[Sequence[str | Cell]], *, right: Sequence[str] = ()) -> None:
        """A table; `right` names the columns of numbers. The first column is an id: on a narrow terminal the others
        give way, so that it can be copied whole.
        """
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text

        console = Console(
            file=sys.stdout,
            force_terminal=self.on_terminal,
            color_system="auto" if self.coloured else None,
            width=None if self.on_terminal else _WIDE,
            markup=False,
            highlight=False,
            emoji=False,
        )
        table = Table(box=None, pad_edge=False, header_style="bold" if self.coloured else "")
        for name in columns:
            justify: Literal["right", "left"] = "right" if name in right else "left"
            table.add_column(name, justify=justify, overflow="fold", no_wrap=name == columns[0])
        for row in rows:
            cells = [part if isinstance(part, Cell) else Cell(part, "") for part in row]
            table.add_row(*(Text(visible(cell.text), _RICH.get(cell.style, "")) for cell in cells))
        console.print(table)


_STYLES: dict[str, dict[str, Any]] = {
    "good": {"fg": "green"},
    "bad": {"fg": "red"},
    "doubt": {"fg": "yellow", "bold": True},
    "quiet": {"dim": True},
    "strong": {"bold": True},
}
_RICH = {"good": "green", "bad": "red", "doubt": "bold yellow", "quiet": "dim", "strong": "bold"}

_STATUS_STYLE = {
    "succeeded": "good",
    "failed": "bad",
    "refused": "bad",
    "in_doubt": "doubt",
    "dispatched": "doubt",
}


def status_cell(status: str, reason: str | None = None) -> Cell:
    """A status in its colour; a doubt stands out."""
    doubtful = reason == "in_doubt"
    return Cell(
        status if reason is None else f"{status} ({reason})",
        "doubt" if doubtful else _STATUS_STYLE.get(status, ""),
    )


def event_line(out: Output, event: Event) -> None:
    """One event for people: its seq, when, what, and what its view says."""
    from refold.replay.present import iso

    view = event.view
    told = [text for text in (view.name or _subject(event), view.input, view.output, view.error) if text]
    if event.erased:
        told.append("(erased)")
    out.line(
        f"{event.seq:>7}  ",
        Cell(clock(iso(event.at)), "quiet"),
        "  ",
        Cell(f"{event.type:<20}", "strong"),
        "  ",
        clipped(" | ".join(told), 120),
    )


def _subject(event: Event) -> str | None:
    """What the event is about, where its facts have a name of the App's for it."""
    facts: Any = getattr(event.facts, "claim", None) or event.facts
    named = (getattr(facts, field, None) for field in ("workflow", "tool", "model", "name", "signal", "reason", "why"))
    return next((str(each) for each in named if each and not str(each).startswith("~")), None)
