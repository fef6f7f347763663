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
    from refold.ledger.port import Reader
    from refold.projections.rows import ToolCallRow


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

    Oldest first. --status in_doubt: those that may or may not have happened, also where the process died and nobody has
    put the doubt on record yet.

    A read of the record: nothing runs, costs nothing.
    """
    after = None if token is None else page_position(token, "tc_")

    async def work(scope: ScopedLedger) -> dict[str, Any]:
        from refold.gateway.sweeping import left_out
        from refold.ledger.sqlite.listing import calls_page
        from refold.projections.rows import ToolCallRow

        run_id = None if run is None else await scope.resolve_run(run)
        left = {row.tool_call_id for row in await left_out(scope) if run_id in (None, row.run_id)}
        async with scope.reader() as reader:
            listed = await calls_page(reader, after=after, status=status, run_id=run_id, limit=limit + 1)
            if status == "in_doubt":
                listed = sorted({*listed, *(each for each in left if after is None or each > after)})[: limit + 1]
            elif status == "dispatched":
                listed = [each for each in listed if each not in left]
            found = []
            for call_id in listed[:limit]:
                (row,) = await reader.rows(ToolCallRow, {"tool_call_id": call_id})
                found.append(await _shown(reader, row, call_id in left))
        return {"tool_calls": found, "next": page_token(listed[limit - 1]) if len(listed) > limit else None}

    answer = cli.on_scope(work)
    cli.answer(answer, lambda out, answer: _print(out, answer, cli.settings.scope.value))


async def _shown(reader: Reader, row: ToolCallRow, left: bool) -> dict[str, Any]:
    """A call as programs get it. `recorded_status` is what its row says; one whose process died with it out is in doubt
    all the same. `settles_at`: from when on "did not happen" counts.
    """
    from refold.projections.rows import IntentRow
    from refold.replay.present import iso, row_json

    shown = row_json(row)
    intents = await reader.rows(IntentRow, {"intent_id": row.intent_id}) if row.intent_id else []
    settles_us = intents[0].settles_us if intents else None
    return {
        "id": row.tool_call_id,
        **shown,
        "status": "in_doubt" if left else row.status,
        "recorded_status": row.status,
        "settles_at": None if settles_us is None else iso(settles_us),
    }


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
        for call in doubts:
            if not call["observed"]:
                out.line(f"  {call['id']}: {_why(call)}. Run {call['run_id']}.")
    if answer["next"] is not None:
        out.line(f"More: --next {answer['next']}")


def _why(call: dict[str, Any]) -> str:
    """How a call came into doubt, in words."""
    why = "crash" if call["recorded_status"] == "dispatched" else call["error_code"]
    said = _REASONS.get(why or "", "it is not known how it ended")
    return f"{said}; from {clock(call['settles_at'])} on it may be said that it did not happen"


_REASONS = {
    "crash": "its process died while it was out",
    "timeout": "no answer came in time",
    "connection": "the connection broke",
    "server_error": "the other side said that it failed, not whether it acted",
    "canceled": "it was left while it was out",
    "exception": "the tool's code raised something that says nothing of the other side",
}
