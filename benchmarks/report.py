"""The results as JSON and as a table for people."""

from __future__ import annotations

from typing import Any

import msgspec

from benchmarks.harness import Bar, Row


class Machine(msgspec.Struct):
    """What the numbers depend on. Loads are the usual three averages, before and after: above 1 means that
    others worked too.
    """

    at: str
    python: str
    sqlite: str
    system: str
    architecture: str
    cpus: int
    load_before: tuple[float, float, float]
    load_after: tuple[float, float, float] = (0.0, 0.0, 0.0)


class Report(msgspec.Struct):
    """Everything one run found out."""

    machine: Machine
    rows: list[Row]


def as_markdown(report: Report) -> str:
    """A table of bars, and under it what has to be known to read it."""
    machine = report.machine
    lines = [
        f"# Benchmarks, {machine.at}",
        "",
        f"Python {machine.python}, SQLite {machine.sqlite}, {machine.system} {machine.architecture}, "
        f"{machine.cpus} CPUs; load {machine.load_before[0]:.1f} before, {machine.load_after[0]:.1f} after.",
        "Medians; the sides of a row take turns in one run. Raw samples are in the JSON file beside this one.",
        "",
        "| work | measured | | bar | |",
        "|---|---|---|---|---|",
    ]
    for row in report.rows:
        if row.skipped:
            lines.append(f"| {row.work} | SKIPPED | {row.skipped} | | |")
        lines += [_line(row.work if place == 0 else "", bar) for place, bar in enumerate(row.bars)]
    lines += ["", "## How to read it", ""]
    for row in report.rows:
        details = [f"floor: {row.floor}"] * bool(row.floor) + [f"peer: {row.peer}"] * bool(row.peer) + row.notes
        details += [f"{name}: {_shown(value)}" for name, value in row.facts.items()]
        if details:
            lines += [f"**{row.name}**", "", *(f"- {each}" for each in details), ""]
    return "\n".join(lines).rstrip() + "\n"


def _line(work: str, bar: Bar) -> str:
    wanted = "" if bar.limit is None else f"{bar.bound} {_shown(bar.limit)} {bar.unit}"
    verdict = {None: "", True: "met", False: "**missed**"}[bar.met]
    return f"| {work} | {bar.what} | {_shown(bar.value)} {bar.unit} | {wanted} | {verdict} |"


def _shown(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(_shown(each) for each in value)
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
    return f"{value:,}" if isinstance(value, int) else str(value)
