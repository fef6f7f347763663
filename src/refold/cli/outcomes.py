"""How a run stands after a command has let it go: the answer for programs, lines for people, and the exit status."""

from __future__ import annotations

from contextlib import nullcontext, suppress
from typing import TYPE_CHECKING, Any

from refold.cli.output import Cell, Output, status_cell
from refold.cli.shapes import doubt_sentence
from refold.cli.statuses import ENDED, NOT_SUCCEEDED, UNEQUAL, WAITING
from refold.cli.terminal import clipped
from refold.cli.watching import watched

if TYPE_CHECKING:
    from refold.ledger.ledger import ScopedLedger
    from refold.ledger.port import Reader
    from refold.projections.rows import RunRow
    from refold.runtime.opened import Refold
    from refold.runtime.waiting import Wait

_SHOWN = 5


async def see_through(rf: Refold, run_id: str, *, after: int, tell: bool) -> dict[str, Any]:
    """Waits until a run has ended, or until nothing here can move it, and returns how it stands.

    Raises what keeps this process from going on with it.
    """
    from refold.runtime.errors import RunEnded, RunPaused
    from refold.runtime.waiting import result_or_let_go, waits_of

    async with watched(rf, run_id, after) if tell else nullcontext():
        with suppress(RunEnded, RunPaused):
            await result_or_let_go(rf, run_id)
    running = rf.running(run_id)
    waits = [] if running is None or running.over else waits_of(running)
    return {**await standing(rf.scope, run_id), "waits_for": [_shown(each) for each in waits]}


def _shown(wait: Wait) -> dict[str, Any]:
    from refold.replay.present import iso

    shown = wait._asdict()
    due_us = shown.pop("due_us")
    return {**shown, "due_at": None if due_us is None else iso(due_us)}


async def standing(scope: ScopedLedger, run_id: str) -> dict[str, Any]:
    """A run as its record says: {run_id, key, status, reason, output, head_seq, head_hash, workflow, error, doubts,
    divergences}.
    """
    from refold.ledger.lookups import run_head
    from refold.projections.rows import RunRow, ToolCallRow

    async with scope.reader() as reader:
        (row,) = await reader.rows(RunRow, {"run_id": run_id})
        head = (await run_head(reader, run_id)).head
        doubts = await reader.rows(ToolCallRow, {"run_id": run_id, "status": "in_doubt"})
        said = await _said(reader, row, head.seq)
    failed = row.error_code is not None
    return {
        "run_id": run_id,
        "key": row.key,
        "status": row.status,
        "reason": row.reason,
        "output": said.get("output") if row.status == "succeeded" else None,
        "head_seq": head.seq,
        "head_hash": head.hash.hex(),
        "workflow": row.workflow,
        "error": {"code": row.error_code, "message": row.error_message} if failed else None,
        "doubts": [{"id": each.tool_call_id, "tool": each.tool, "why": each.error_code} for each in doubts],
        "divergences": said.get("divergences", []) if row.reason == "diverged" else [],
    }


async def _said(reader: Reader, row: RunRow, seq: int) -> dict[str, Any]:
    """What the event says by which the run stands as it does."""
    from refold.events.identity import Stream
    from refold.ledger.lookups import last_event
    from refold.replay.present import content_json

    wanted = {"succeeded": "run.succeeded", "paused": "run.paused"}.get(row.status)
    event = None if wanted is None else await last_event(reader, Stream.run(row.run_id), wanted, seq)
    content = None if event is None else content_json(event)
    return content if isinstance(content, dict) else {}


def exit_status(answer: dict[str, Any]) -> int:
    """The status that `run` and `resume` end with."""
    if answer["status"] in ENDED:
        return 0 if answer["status"] == "succeeded" else NOT_SUCCEEDED
    return UNEQUAL if answer["reason"] == "diverged" else WAITING


def print_standing(out: Output, answer: dict[str, Any], app: str) -> None:
    """How a run stands and how it goes on, for people. `app`: the words that name its code on a command line."""
    from refold.replay.present import to_json

    run_id = answer["run_id"]
    out.line(
        Cell(run_id, "strong"),
        "  ",
        clipped(answer["workflow"], 60),
        "  ",
        status_cell(answer["status"], answer["reason"]),
    )
    if answer["status"] == "succeeded":
        out.line("  output     ", to_json(answer["output"]).decode())
    if answer["error"] is not None:
        out.line("  error      ", Cell(" ".join(each for each in answer["error"].values() if each), "bad"))
    out.line(f"  head       seq {answer['head_seq']}  {answer['head_hash'][:16]}")
    if answer["status"] in ENDED:
        return
    for wait in answer.get("waits_for", ()):
        if not wait["in_doubt"]:
            child = f" ({wait['child']})" if wait["child"] else ""
            out.line("  waits for  ", f"{wait['kind']} {wait['name']}{child}")
    _print_doubts(out, answer["doubts"])
    for each in answer["divergences"][:_SHOWN]:
        out.line(Cell("  diverged   ", "bad"), f"seq {each['seq']}, {each['step']}: {each['first_difference']}")
        out.line("             ", each.get("remedy", ""))
    for wait in answer.get("waits_for", ()):
        if wait["kind"] == "signal":
            out.line(f"  `refold signal {run_id} {wait['name']} --value JSON` sends it what it waits for.")
    out.line(f"  `refold resume {run_id}{app}` goes on with it.")


def _print_doubts(out: Output, doubts: list[dict[str, Any]]) -> None:
    if not doubts:
        return
    out.line(Cell(f"  in doubt   {doubt_sentence(len(doubts))}", "doubt"))
    for each in doubts:
        out.line(f"    {each['id']}  ", clipped(each["tool"], 40), f"  {each['why'] or ''}")
    out.line(
        "  `refold resolve CALL` settles one: --happened JSON, --did-not-happen, --probe, --resend --acknowledge or",
        " --abandon, with --basis TEXT.",
    )
