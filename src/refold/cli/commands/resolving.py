"""`refold resolve`: how a call in doubt ended, said by a person or by the tool's probe, on record for good."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import click

from refold.cli.commands.steering import by_option
from refold.cli.context import Cli, command
from refold.cli.given import json_text, json_value
from refold.cli.output import Cell, Output, status_cell
from refold.cli.statuses import ENDED
from refold.cli.terminal import clipped

if TYPE_CHECKING:
    from refold.gateway.resolutions import Decision
    from refold.ledger.ledger import ScopedLedger
    from refold.projections.rows import ToolCallRow

_WAYS = ("--happened", "--did-not-happen", "--probe", "--resend", "--abandon")


class _Asked(NamedTuple):
    """What the command line asks for; one of the first five."""

    happened: bytes | None
    did_not_happen: bool
    probe: bool
    resend: bool
    abandon: bool
    basis: str
    by: str


@command("resolve")
@click.argument("call")
@click.option("--happened", metavar="JSON", help="It happened, and this is what the tool would have returned.")
@click.option("--did-not-happen", is_flag=True, help="It did not, and will not: the call is made again.")
@click.option("--probe", is_flag=True, help="Ask the tool's probe now, and record what it says. Needs the App.")
@click.option("--resend", is_flag=True, help="Send it again under the same key, whether it happened or not.")
@click.option("--acknowledge", is_flag=True, help="With --resend: I know that it may then have been done twice.")
@click.option("--abandon", is_flag=True, help="Nobody will know: the run goes on without an answer.")
@click.option("--basis", metavar="TEXT", help="What you rely on, for the record. Required except with --probe.")
@by_option
def resolve(
    cli: Cli,
    call: str,
    happened: str | None,
    did_not_happen: bool,
    probe: bool,
    resend: bool,
    acknowledge: bool,
    abandon: bool,
    basis: str | None,
    by: str,
) -> None:
    """Settle a call in doubt.

    Say one of --happened, --did-not-happen, --probe, --resend (with --acknowledge) and --abandon. The first decision
    stands; the same again changes nothing. "Did not happen" is refused until the call's deadline has settled.

    With an App the result is read as the tool's annotation says; without one it is recorded as plain JSON. A process
    that has the run goes on at once; else the run goes on when somebody resumes it.
    """
    ways = (happened is not None, did_not_happen, probe, resend, abandon)
    if sum(ways) != 1:
        raise click.UsageError(f"Say one of {', '.join(_WAYS)}.")
    if resend != acknowledge:
        raise click.UsageError("--resend needs --acknowledge, and --acknowledge goes with nothing else.")
    if basis is None and not probe:
        raise click.UsageError("Say what you rely on: --basis TEXT.")
    text = json_text(happened, "--happened")
    asked = _Asked(text, did_not_happen, probe, resend, abandon, basis or "the tool's probe", by)
    if probe:
        cli.app  # noqa: B018 - said before anything is opened, where it is missing
    cli.answer(cli.on_scope(lambda scope: _resolve(cli, scope, call, asked)), _print)


async def _resolve(cli: Cli, scope: ScopedLedger, prefix: str, asked: _Asked) -> dict[str, Any]:
    from refold.gateway.doubt import resolve, taken

    call = await _call(scope, prefix)
    decision, hint = await _decision(cli, scope, call, asked)
    done = await resolve(
        scope,
        call.tool_call_id,
        decision,
        basis=asked.basis,
        by=asked.by,
        types=cli.app.types if hint is not None else None,
        hint=hint,
        via="probe" if asked.probe else "person",
    )
    if done.how == "posted":
        await taken(scope, done)
    return await _answer(scope, call.tool_call_id, done.how)


async def _call(scope: ScopedLedger, prefix: str) -> ToolCallRow:
    """The call whose id begins so. Raises NoSuchCall when none or several do."""
    from refold.gateway.errors import NoSuchCall
    from refold.ledger.sqlite.listing import calls_page
    from refold.projections.rows import ToolCallRow

    beginning = prefix.removeprefix("tc_")
    async with scope.reader() as reader:
        exact = await reader.rows(ToolCallRow, {"tool_call_id": f"tc_{beginning}"})
        if exact:
            return exact[0]
        behind = await calls_page(reader, after=f"tc_{beginning}", limit=2) if beginning else []
        found = [each for each in behind if each.startswith(f"tc_{beginning}")]
        if len(found) == 1:
            return (await reader.rows(ToolCallRow, {"tool_call_id": found[0]}))[0]
    many = "more than one" if found else "no"
    raise NoSuchCall(f"{prefix!r} names {many} tool call in scope {scope.scope}.", tool_call_id=prefix)


async def _decision(cli: Cli, scope: ScopedLedger, call: ToolCallRow, asked: _Asked) -> tuple[Decision, Any]:
    """What is decided, and the annotation of its result where the App has one."""
    from refold.gateway.probe_once import probe_once
    from refold.gateway.resolutions import Abandon, DidNotHappen, Happened, Resend
    from refold.runtime.inputs import read_json

    if asked.probe:
        tool = cli.app.find_tool(call.tool)
        return await probe_once(scope, tool, call.tool_call_id, cli.app.types), tool.parameters.result
    if asked.happened is not None:
        known = cli.app.tools.get(call.tool) if cli.names_app else None
        if known is None:
            return Happened(json_value(asked.happened, "--happened")), None
        result = known.parameters.result
        return Happened(read_json(asked.happened, result, f"The result of {call.tool}")), result
    decision = DidNotHappen() if asked.did_not_happen else Resend() if asked.resend else Abandon()
    return decision, None


async def _answer(scope: ScopedLedger, call_id: str, how: str) -> dict[str, Any]:
    from refold.events.identity import Stream
    from refold.projections.rows import IntentRow, RunRow, ToolCallRow

    async with scope.reader() as reader:
        (call,) = await reader.rows(ToolCallRow, {"tool_call_id": call_id})
        (intent,) = await reader.rows(IntentRow, {"intent_id": call.intent_id})
        (run,) = await reader.rows(RunRow, {"run_id": call.run_id})
    return {
        "id": call_id,
        # What is decided after a run's end stands in its annex and changes the intent, not the run's own rows.
        "status": intent.status if run.ended_at is not None else call.status,
        "resolution": intent.resolution,
        "run_status": run.status,
        "run_reason": run.reason,
        "run_id": run.run_id,
        "tool": call.tool,
        "how": how,
        "owned": await scope.is_written(Stream.run(run.run_id)),
    }


def _print(out: Output, answer: dict[str, Any]) -> None:
    out.line(
        Cell(answer["id"], "strong"), "  ", clipped(answer["tool"], 40), "  ", status_cell(answer["status"]),
        f"  {answer['resolution'] or ''}",
    )  # fmt: skip
    run_id = answer["run_id"]
    if answer["how"] == "already":
        out.line("  It was resolved so before; nothing changed.")
    if answer["run_status"] in ENDED:
        out.line(f"  Its run {run_id} has ended; the decision stands in the annex, for whoever uses the same key.")
    elif answer["owned"]:
        out.line(f"  The process that has its run {run_id} goes on with it.")
    else:
        out.line(f"  Its run goes on when somebody resumes it: `refold resume {run_id}`.")
