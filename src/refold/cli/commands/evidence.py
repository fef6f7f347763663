"""`refold evidence`: everything recorded about a run, and the thirteen items that say how far it can be relied on."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, BinaryIO

import click

from refold.cli.context import Cli, command
from refold.cli.output import Cell, Output

if TYPE_CHECKING:
    from refold.ledger.ledger import ScopedLedger

_MISSING = 5  # Lines an item; a long run can lack thousands of things.
_STYLE = {"pass": "good", "fail": "bad", "warning": "doubt"}


@command("evidence")
@click.argument("run")
@click.option("--out", "target", type=click.File("wb", lazy=True), help="Write the whole bundle into this file.")
def evidence(cli: Cli, run: str, target: BinaryIO | None) -> None:
    """Show what is recorded about a run.

    Replay kind 1: the thirteen evidence items; with --json or --out the whole bundle as JSON.

    A read of the record: nothing runs, costs nothing.
    """

    async def items(scope: ScopedLedger) -> tuple[str, list[dict[str, Any]]]:
        from refold.replay.items import evidence_items

        run_id = await scope.resolve_run(run)
        async with scope.reader() as reader:
            return run_id, await evidence_items(reader, run_id, scope.ledger.files)

    async def bundle(scope: ScopedLedger) -> None:
        from refold.replay.evidence import write_evidence

        await write_evidence(scope, await scope.resolve_run(run), target or sys.stdout.buffer)

    if cli.as_json or target is not None:
        cli.on_scope(bundle)
    else:
        _print(cli.out, *cli.on_scope(items))


def _print(out: Output, run_id: str, items: list[dict[str, Any]]) -> None:
    out.line(Cell(run_id, "strong"))
    for item in items:
        status = Cell(f"{item['status']:<16}", _STYLE.get(item["status"], "quiet"))
        out.line(f"  {item['rule']:>2}  {item['key']:<19} ", status, item["summary"])
        for missing in item["missing"][:_MISSING]:
            out.line(f"      missing: {missing}")
        if len(item["missing"]) > _MISSING:
            out.line(f"      and {len(item['missing']) - _MISSING} more")
    out.line(
        Cell(
            "--json or --out FILE gives the whole bundle. A read of the record: nothing ran, it cost nothing.", "quiet"
        )
    )
