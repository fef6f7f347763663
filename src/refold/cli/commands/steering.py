"""`refold pause`, `signal`, `cancel`: what a person tells a run, whether or not a process has it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from refold.cli.commands.running import run_row
from refold.cli.context import ACTOR, Cli, command
from refold.cli.given import json_text, json_value
from refold.cli.output import Cell, Output, status_cell
from refold.cli.statuses import ENDED

if TYPE_CHECKING:
    from refold.ledger.ledger import ScopedLedger
    from refold.projections.rows import RunRow
    from refold.runtime.opened import Refold

_PATIENCE = 10
"""Seconds that a command waits for the run's owner to do what it was told."""

by_option = click.option("--by", metavar="NAME", default=ACTOR, show_default=True, help="Who says so, for the record.")


@command("pause")
@click.argument("run")
@click.option("--basis", metavar="TEXT", default="", help="Why, for the record.")
@by_option
def pause(cli: Cli, run: str, basis: str, by: str) -> None:
    """Pause a run until somebody resumes it.

    It begins nothing new; what is under way is still recorded. Where no process has the run it is paused at once.
    """

    async def work(scope: ScopedLedger) -> dict[str, Any]:
        from refold.runtime.posting import pause

        run_id = await scope.resolve_run(run)
        done = await pause(scope, run_id, basis, by)
        if not done:
            done = await _becomes(scope, run_id, lambda row: row.reason == "requested" or row.ended_at is not None)
        return {**await _told(scope, run_id), "taken": done}

    cli.answer(cli.on_scope(work), _print)


@command("signal")
@click.argument("run")
@click.argument("name")
@click.option("--value", "given", metavar="JSON", help="What it carries: JSON, @FILE, or - for standard input.")
@click.option("--id", "id_", metavar="ID", help="Sent again under the same id, it counts once.")
@by_option
def signal(cli: Cli, run: str, name: str, given: str | None, id_: str | None, by: str) -> None:
    """Send a signal to a run.

    It is durable when the command ends, and taken once: by the process that has the run, or by the next that has it.
    """
    value = json_value(json_text(given, "--value"), "--value")

    async def work(scope: ScopedLedger) -> dict[str, Any]:
        from refold.events.values import encode
        from refold.runtime.posting import post_signal

        run_id = await scope.resolve_run(run)
        await post_signal(scope, run_id, name, encode(value), by=by, id=id_)
        return {**await _told(scope, run_id), "signal": name}

    cli.answer(cli.on_scope(work), _print)


@command("cancel")
@click.argument("run")
@click.option("--basis", metavar="TEXT", required=True, help="Why, for the record.")
@click.option("--without-code", is_flag=True, help="Close a workflow's run although its code does not get to clean up.")
@by_option
def cancel(cli: Cli, run: str, basis: str, without_code: bool, by: str) -> None:
    """Cancel a run.

    A workflow's code is told to stop, as asyncio cancels a task: what it has sent is waited for, and it may clean up.
    Where no process has the run, it is run here to that end if an App is named, and else by whoever resumes it. A
    session that was imported, and a run given up with --without-code, is closed at once, unless a call is in doubt. A
    closed run can be erased.
    """

    async def work(scope: ScopedLedger) -> dict[str, Any]:
        from refold.events.identity import Stream
        from refold.ledger.closing import end_without_code
        from refold.projections.rows import RunRow
        from refold.runtime.posting import post_cancel

        run_id = await scope.resolve_run(run)
        async with scope.reader() as reader:
            (row,) = await reader.rows(RunRow, {"run_id": run_id})
        if without_code or row.origin != "live" or row.subject_kind != "workflow":
            await end_without_code(scope, run_id, basis, actor=by)
            return await _told(scope, run_id)
        await post_cancel(scope, run_id, basis, by)
        if await scope.is_written(Stream.run(run_id)):
            await _becomes(scope, run_id, lambda row: row.ended_at is not None)
        return await _told(scope, run_id)

    answer = cli.on_scope(work)
    if cli.names_app and answer["status"] != "canceled" and not answer["owned"]:
        answer = cli.on_app(cli.app, lambda rf: _stopped(rf, answer["run_id"]))
    cli.answer(answer, _print)


async def _stopped(rf: Refold, run_id: str) -> dict[str, Any]:
    """Runs the code of a run that is to stop, to its end or to a doubt."""
    from refold.cli.outcomes import see_through

    await rf.resume(run_id)
    await see_through(rf, run_id, after=0, tell=False)
    return {**await _told(rf.scope, run_id), "owned": False}


async def _becomes(scope: ScopedLedger, run_id: str, wanted: Callable[[RunRow], bool]) -> bool:
    """Whether a run's row becomes what is wanted, as long as that may take its owner."""
    clock = scope.ledger.clock
    until = clock.monotonic() + _PATIENCE * 1_000_000_000
    while not wanted(await run_row(scope, run_id)):
        if clock.monotonic() > until:
            return False
        await scope.ledger.store.changed()
    return True


async def _told(scope: ScopedLedger, run_id: str) -> dict[str, Any]:
    """{run_id, status, reason, head_seq, head_hash, owned}: how the run stands, and whether a living process has it."""
    from refold.cli.outcomes import standing
    from refold.events.identity import Stream

    stands = await standing(scope, run_id)
    shown = {name: stands[name] for name in ("run_id", "status", "reason", "head_seq", "head_hash")}
    return {**shown, "owned": await scope.is_written(Stream.run(run_id))}


def _print(out: Output, answer: dict[str, Any]) -> None:
    run_id = answer["run_id"]
    if answer["status"] in ENDED:
        closed = f" is {answer['status']}; its stream is closed at seq {answer['head_seq']}."
        out.line(Cell(run_id, "strong"), closed)
        return
    out.line(Cell(run_id, "strong"), "  ", status_cell(answer["status"], answer["reason"]))
    if answer["owned"]:
        out.line("  A living process has it and does what it was told.")
    elif answer["reason"] == "requested":
        out.line(f"  `refold resume {run_id}` goes on with it.")
    elif answer["reason"] == "in_doubt":
        out.line("  It stops when its doubt is settled: `refold tool-calls --status in_doubt`.")
    else:
        out.line(f"  No process has it: it is told as soon as somebody resumes it, `refold resume {run_id}`.")
