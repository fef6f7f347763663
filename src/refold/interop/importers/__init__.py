"""Importers: recorded agent sessions of other programs become runs of the ledger."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from refold.interop.importers import chat, pi
from refold.interop.importers.report import (
    ImportConflict,
    OnProgress,
    Problem,
    Progress,
    Report,
    RunReport,
    SourceUnreadable,
    UnknownFormat,
)
from refold.ledger.ledger import ScopedLedger

ImportFile = Callable[[ScopedLedger, Path, Report, Callable[[int, int], Awaitable[None]]], Awaitable[None]]


class Format(NamedTuple):
    """A kind of source: how one file of it is brought in, and what such files cannot tell."""

    title: str
    import_file: ImportFile
    not_told: tuple[str, ...]


FORMATS: Mapping[str, Format] = {
    "pi": Format("pi coding-agent sessions (JSON lines)", pi.import_file, pi.NOT_TOLD),
    "chat": Format("OpenAI-style chat runs, tau-bench results (JSON, JSON lines)", chat.import_file, chat.NOT_TOLD),
}
"""The formats that `import_paths` knows, by name."""


async def import_paths(
    scope: ScopedLedger, format_: str, paths: Iterable[Path | str], progress: OnProgress | None = None
) -> Report:
    """Brings files of one format into a scope, one after the other, and reports.

    Importing a file again changes nothing; one that has grown is continued; one that was cut keeps what came before,
    and the report names the line. Raises UnknownFormat, SourceUnreadable (before anything is written),
    ImportConflict.
    """
    chosen = FORMATS.get(format_)
    if chosen is None:
        known = ", ".join(sorted(FORMATS))
        raise UnknownFormat(
            f"There is no importer for {format_!r}; there are {known}.", format=format_, known=sorted(FORMATS)
        )
    files = [_readable(Path(path)) for path in paths]
    report = Report(scope.ledger.redactor, chosen.not_told)
    written = 0
    for path in files:
        total = path.stat().st_size
        before = written

        async def on_commit(
            done: int, events: int, path: Path = path, total: int = total, before: int = before
        ) -> None:
            if progress is not None:
                progress(Progress(str(path), done, max(total, done), before + events))
            await asyncio.sleep(0)  # Others on this loop get their turn between batches.

        known_runs = len(report.runs)
        await chosen.import_file(scope, path, report, on_commit)
        added = sum(run.added for run in report.runs[known_runs:])
        written += added
        await on_commit(total, added)
    return report


def _readable(path: Path) -> Path:
    try:
        with path.open("rb"):
            return path
    except OSError as error:
        raise SourceUnreadable(f"{path} cannot be read: {error.strerror}.", path=str(path)) from error


__all__ = [
    "FORMATS",
    "Format",
    "ImportConflict",
    "OnProgress",
    "Problem",
    "Progress",
    "Report",
    "RunReport",
    "SourceUnreadable",
    "UnknownFormat",
    "import_paths",
]
