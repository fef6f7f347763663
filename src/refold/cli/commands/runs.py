"""`refold runs`: a scope's runs, the newest first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from refold.cli.context import Cli, shared_options
from refold.cli.output import Cell, Output, status_cell
from refold.cli.shapes import clock, money, page_position, page_token

if TYPE_CHECKING:
    from refold.ledger.ledger import ScopedLedger
    from refold.projections.rows import RunRow
    from refold.replay.money import Charges


_STATUSES = (
    "queued",
    "preparing",
    "running",
    "waiting_input",
    "waiting_approval",
    "paused",
    "retrying",
    "succeeded",
    "failed",
    "canceled",
    "expired",
)


@click.group("runs", invoke_without_command=True)
@shared_options
@click.option(
    "--status",
    type=click.Choice(_STATUSES),
    metavar="STATUS",
    help=f"Only runs of this status: {', '.join(_STATUSES)}.",
)
@click.option("--workflow", metavar="NAME", help="Only runs of this workflow.")
@click.option("--in-doubt", is_flag=True, help="Only runs with a tool call that may or may not have happened.")
@click.option(
    "--limit", type=click.IntRange(1, 1000), metavar="N", default=50, show_default=True, help="Runs on a page."
)
@click.option("--next", "token", metavar="TOKEN", help="The page after the one that ended with this token.")
@click.pass_context
def runs(
    context: click.Context,
    status: str | None,
    workflow: str | None,
    in_doubt: bool,
    limit: int,
    token: str | None,
) -> None:
    """List runs, the newest first.

    A read of the record: nothing runs, costs nothing.
    """
    if context.invoked_subcommand is not None:
        return
    cli: Cli = context.find_object(Cli) or Cli()
    before = None if token is None else page_position(token, "run_")

    async def work(scope: ScopedLedger) -> dict[str, Any]:
        from refold.ledger.sqlite.listing import prices_of, runs_page
        from refold.projections.rows import RunRow
        from refold.replay.money import Charges

        async with scope.reader() as reader:
            listed = await runs_page(
                reader, before=before, status=status, workflow=workflow, in_doubt=in_doubt, limit=limit + 1
            )
            page = listed[:limit]
            charges = {each.run_id: Charges() for each in page}
            async for run_id, currency, amount in prices_of(reader, list(charges)):
                charges[run_id].charge(currency, amount)
            found = []
            for each in page:
                (row,) = await reader.rows(RunRow, {"run_id": each.run_id})
                found.append(_listed(row, each.head_seq, charges[each.run_id]))
        return {"runs": found, "next": page_token(page[-1].run_id) if len(listed) > limit else None}

    answer = cli.on_scope(work)
    cli.answer(answer, lambda out, answer: _print(out, answer, cli.settings.scope.value))


def _listed(row: RunRow, head_seq: int, charges: Charges) -> dict[str, Any]:
    from refold.replay.present import row_json

    shown = row_json(row)
    return {
        **{name: shown[name] for name in ("run_id", "workflow", "status", "reason", "started_at")},
        "head_seq": head_seq,
        **{name: shown[name] for name in ("source_run_id", "attempt_no", "origin", "created_at", "ended_at", "key")},
        "charges": charges.charge_summary(),
        "unpriced": charges.unpriced,
    }


def _print(out: Output, answer: dict[str, Any], scope: str) -> None:
    if not answer["runs"]:
        out.line(f"No runs in scope {scope} that match.")
        return
    out.table(
        ("RUN", "WORKFLOW", "STATUS", "STARTED (UTC)", "EVENTS", "CHARGES"),
        [
            (
                Cell(run["run_id"], "strong"),
                run["workflow"],
                status_cell(run["status"], run["reason"]),
                clock(run["started_at"]),
                str(run["head_seq"]),
                money(run["charges"], run["unpriced"]),
            )
            for run in answer["runs"]
        ],
        right=("EVENTS", "CHARGES"),
    )
    if answer["next"] is not None:
        out.line(f"More: --next {answer['next']}")
