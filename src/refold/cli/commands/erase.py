"""`refold erase`: what a closed run says goes for good; that it happened, and the proof, stay."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from refold.cli.context import ACTOR, Cli, command
from refold.cli.output import Cell

if TYPE_CHECKING:
    from refold.ledger.ledger import ScopedLedger

UNFINISHED = 6
"""The content is gone from every table; its bytes may still be in the file, because somebody else reads it."""


@command("erase")
@click.argument("run")
@click.option("--basis", metavar="TEXT", required=True, help="On whose request, or by which rule; kept in the annex.")
def erase(cli: Cli, run: str, basis: str) -> int:
    """Erase what a closed run says, for good.

    Prompts, arguments, results, artifacts and summaries go; numbers, digests and the chain stay, and the proof too.
    Ends with status 6 while a reader or a migration keeps old bytes in the file: run it again. Backups made before
    still hold everything. An open run is refused: `refold cancel` ends one that nobody drives.
    """

    async def work(scope: ScopedLedger) -> dict[str, Any]:
        from refold.events.identity import BadName
        from refold.ledger.maintenance.erasure import erase_run

        run_id = await scope.resolve_run(run)
        if run != run_id:
            raise BadName(f"{run!r} is the beginning of {run_id}; to erase it, name it whole.", run=run, run_id=run_id)
        return {"run_id": run_id, **(await erase_run(scope, run_id, basis, actor=ACTOR))._asdict()}

    answer = cli.on_scope(work)
    status = 0 if answer["pending"] is None else UNFINISHED
    if cli.as_json:
        cli.out.json(answer)
        return status
    told = "had been erased before" if answer["already"] else "is erased"
    out = cli.out
    out.line(
        Cell(answer["run_id"], "strong"),
        f" {told}: {answer['events']} events, {answer['blobs']} blobs, {answer['files']} files.",
    )
    if answer["pending"] is not None:
        out.line(Cell(f"Not finished: {answer['pending']}. Run the command again when that is over.", "doubt"))
    return status
