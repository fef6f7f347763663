"""`refold import`: recorded sessions of other programs become runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from refold.cli.context import Cli, command
from refold.cli.output import Cell, Output
from refold.cli.progress import Progress
from refold.cli.shapes import counted, doubt_sentence, money
from refold.cli.statuses import INCOMPLETE
from refold.cli.terminal import clipped

if TYPE_CHECKING:
    from refold.interop.importers.report import Progress as Done
    from refold.interop.importers.report import Report
    from refold.ledger.ledger import ScopedLedger


def _formats(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    from refold.interop.importers import FORMATS

    return [name for name in sorted(FORMATS) if name.startswith(incomplete)]


@command("import")
@click.argument("format", metavar="FORMAT", shell_complete=_formats)
@click.argument(
    "paths", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False, path_type=Path), metavar="PATH..."
)
def import_(cli: Cli, format: str, paths: tuple[Path, ...]) -> int:
    """Record sessions of other programs.

    FORMAT is `pi` (sessions of the pi coding agent, JSON lines) or `chat` (OpenAI-style chat runs and tau-bench
    results, JSON or JSON lines).

    Makes the ledger where there is none. What was imported before is not imported again, so that an interrupted import,
    and a session that grew, go on where they stopped. Ends with status 8 when a source could not be read to its end.
    """
    from refold.interop.importers import FORMATS, import_paths

    if format not in FORMATS:  # Said before a new ledger is made for nothing.
        raise click.BadParameter(f"{format!r} is none of {', '.join(sorted(FORMATS))}.", param_hint="FORMAT")

    async def work(scope: ScopedLedger) -> Report:
        with Progress() as progress:
            return await import_paths(scope, format, list(paths), lambda done: progress(_done(done)))

    report = cli.on_scope(work, create=True)
    cli.answer(report.as_dict(), lambda out, answer: _print(out, answer, format))
    return 0 if report.complete else INCOMPLETE


def _done(done: Done) -> str:
    share = f"{done.done * 100 // done.total} %" if done.total else f"{done.done} bytes"
    return f"{Path(done.path).name}: {share}, {done.events} events"


def _print(out: Output, report: dict[str, Any], format: str) -> None:
    for run in report["runs"]:
        if run["run_id"]:
            _print_run(out, run)
        else:
            out.line(Cell(f"Nothing could be read as {format}:", "bad"), f"  {clipped(run['source'], 100)}")
        if run["unanswered"]:
            out.line(Cell(f"  {doubt_sentence(run['unanswered'])}", "doubt"))
        for problem in run["errors"]:
            out.line(Cell(f"  Not read to its end: {problem['message']}", "bad"))
    if len(report["runs"]) > 1:
        made = sum(run["created"] for run in report["runs"])
        out.line(f"{counted(len(report['runs']), 'run')}, {made} created.")
    for unknown in report["unknown"]:
        out.line(f"Kept as it is: {unknown['count']} x {unknown['what']} {unknown['name']!r} in {unknown['source']}")
    if any(run["run_id"] for run in report["runs"]):
        out.line(Cell("What such sources cannot tell:", "quiet"))
        for sentence in report["not_told"]:
            out.line(Cell(f"  {sentence}", "quiet"))


def _print_run(out: Output, run: dict[str, Any]) -> None:
    state = "created" if run["created"] else "added to" if run["added"] else "unchanged"
    out.line(Cell(run["run_id"], "strong"), f"  {state}  ", Cell(clipped(run["source"], 100), "quiet"))
    counts = [
        counted(run["events"], "event"),
        counted(run["inferences"], "inference"),
        counted(run["tool_calls"], "tool call"),
    ]
    charged = money(run["charges"], 0) if run["charges"] else "no price known"
    out.line(f"  {', '.join([*counts, charged] if run['inferences'] else counts)}")
