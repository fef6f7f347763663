"""`refold tool-calls`: what went out, and what may have."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from refold.cli.context import Cli, command
from refold.cli.output import Cell, Output, status_cell
from refold.cli.shapes import clock, doubt_sentence, page_position, page_token
from refold.cli.terminal import clipped

if TYPE_CHECKING:
    from refold.ledger.ledger import ScopedLedger


_STATUSES = ("claimed", "dispatched", "in_doubt", "succeeded", "failed", "refused", "not_executed")


@command("tool-calls")
@click.option(
    "--status",
    type=click.Choice(_STATUSES),
    metavar="STATUS",
    help=f"Only calls of this status: {', '.join(_STATUSES)}.",
)
@click.option("--run", metavar="RUN", help="Only calls of this run.")
@click.option(
    "--limit", type=click.IntRange(1, 1000), metavar="N", default=100, show_default=True, help="Calls on a page."
)
@click.option("--next", "token", metavar="TOKEN", help="The page after the one that ended with this token.")
def tool_calls(cli: Cli, status: str | None, run: str | None, limit: int, token: str | None) -> None:
    """List tool calls and their doubts.

    Oldest first. --status in_doubt: those that may or may not have happened.

    A read of the record: nothing runs, costs nothing.
    """
    after = None if token is None else page_position(token, "tc_")

    async def work(scope: ScopedLedger) -> dict[str, Any]:
        from refold.ledger.sqlite.listing import calls_page
        from refold.projections.rows import ToolCallRow
        from refold.replay.present import row_json

        run_id = None if run is None else await scope.resolve_run(run)
        async with scope.reader() as reader:
            listed = await calls_page(reader, after=after, status=status, run_id=run_id, limit=limit + 1)
            found = []
            for call_id in listed[:limit]:
                (row,) = await reader.rows(ToolCallRow, {"tool_call_id": call_id})
                found.append({"id": call_id, **row_json(row)})
        return {"tool_calls": found, "next": page_token(listed[limit - 1]) if len(listed) > limit else None}

    answer = cli.on_scope(work)
    cli.answer(answer, lambda out, answer: _print(out, answer, cli.settings.scope.value))


def _print(out: Output, answer: dict[str, Any], scope: str) -> None:
    calls = answer["tool_calls"]
    if not calls:
        out.line(f"No tool calls in scope {scope} that match.")
        return
    out.table(
        ("CALL", "TOOL", "STATUS", "SENT (UTC)", "TRIES", "ARGUMENTS"),
        [
            (
                Cell(call["id"], "strong"),
                clipped(call["tool"], 40),
                status_cell(call["status"]),
                clock(call["dispatched_at"]),
                str(call["attempts"]),
                clipped(call["arguments_summary"] or "", 60),
            )
            for call in calls
        ],
        right=("TRIES",),
    )
    doubts = [call for call in calls if call["status"] == "in_doubt"]
    if doubts:
        out.line(Cell(doubt_sentence(len(doubts)), "doubt"))
    if answer["next"] is not None:
        out.line(f"More: --next {answer['next']}")
