"""`refold migrate`: a ledger that other code made or folded, brought up to this code."""

from __future__ import annotations

from refold.cli.context import Cli, command
from refold.cli.output import Cell
from refold.cli.progress import Progress
from refold.cli.shapes import counted


@command("migrate")
def migrate(cli: Cli) -> None:
    """Bring a ledger up to this refold.

    Applies the migrations that it lacks; where the code of its tables changed, folds them again beside the old ones and
    swaps them. Others may read meanwhile. Killed half-way, it is run again.
    """
    import asyncio

    from refold.ledger.maintenance.migration import migrate as bring_up

    with Progress() as progress:
        done = asyncio.run(bring_up(cli.ledger_path, progress=lambda events: progress(f"folded {events} events")))
    answer = {"ledger": str(cli.ledger_path), "applied": list(done.applied), "refolded": done.refolded}
    if cli.as_json:
        cli.out.json(answer)
    elif not done.applied and not done.refolded:
        cli.out.line(Cell("Nothing to do", "good"), ": the ledger fits this refold.")
    else:
        for name in done.applied:
            cli.out.line(f"Applied {name}.")
        cli.out.line(f"Folded again: {counted(done.refolded, 'event')}.")
