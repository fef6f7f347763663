"""`refold backup` and `refold restore`: a live ledger into a folder, and a folder into a new ledger."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from refold.cli.context import Cli, command
from refold.cli.output import Cell
from refold.cli.progress import Progress
from refold.cli.shapes import counted

if TYPE_CHECKING:
    from refold.ledger.ledger import Ledger
    from refold.ledger.maintenance.backup import Backup


@command("backup")
@click.argument("folder", type=click.Path(path_type=Path))
def backup(cli: Cli, folder: Path) -> None:
    """Copy the live ledger into a new folder.

    Nobody has to stop writing. The folder holds the database, the artifact files and a manifest that `refold restore`
    checks. It keeps what is erased from the ledger later.
    """

    async def work(ledger: Ledger) -> Backup:
        from refold.ledger.maintenance.backup import backup as make

        with Progress() as progress:
            return await make(ledger, folder, lambda done, total: progress(f"copied {done} of {total} pages"))

    made = cli.on_ledger(work)
    manifest = made.manifest
    answer = {
        "path": str(made.path),
        "ledger_id": manifest.ledger_id,
        "streams": manifest.streams,
        "bytes": made.size,
        "artifacts": len(manifest.artifacts),
        "unsound": manifest.unsound,
    }
    if cli.as_json:
        cli.out.json(answer)
        return
    cli.out.line(
        Cell(str(made.path), "strong"),
        f": {counted(manifest.streams, 'stream')}, {counted(len(manifest.artifacts), 'artifact file')}, "
        f"{made.size} bytes.",
    )
    _print_unsound(cli, manifest.unsound)


@command("restore")
@click.argument("folder", type=click.Path(path_type=Path))
def restore(cli: Cli, folder: Path) -> None:
    """Make a new ledger from a backup.

    The new ledger is the file that --ledger names; one that exists is refused. The backup is checked against its
    manifest first, and the ledger gets an id of its own.
    """
    from refold.ledger.maintenance.restore import restore as put_back

    restored = put_back(folder, cli.ledger_path)
    answer: dict[str, Any] = {**restored._asdict(), "path": str(restored.path), "unsound": list(restored.unsound)}
    if cli.as_json:
        cli.out.json(answer)
        return
    cli.out.line(
        Cell(str(restored.path), "strong"),
        f": {counted(restored.streams, 'stream')}, {counted(restored.artifacts, 'artifact file')}. "
        "`refold verify` proves it.",
    )
    _print_unsound(cli, answer["unsound"])


def _print_unsound(cli: Cli, unsound: list[str]) -> None:
    for artifact in unsound:
        cli.out.line(Cell(f"  The ledger itself had no whole copy of artifact {artifact}.", "bad"))
