"""`refold show`: a run as it stands, or as it stood at a seq. `refold artifact`: the bytes of one artifact."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from refold.cli.context import Cli, command
from refold.cli.output import Cell, Output, status_cell
from refold.cli.shapes import clock, counted, doubt_sentence, duration, money
from refold.cli.terminal import clipped

if TYPE_CHECKING:
    from refold.ledger.ledger import ScopedLedger


@command("show")
@click.argument("run")
@click.option(
    "--at",
    type=click.IntRange(1),
    metavar="SEQ",
    help="The state after this event instead of the present one.",
)
@click.option(
    "--steps",
    type=click.IntRange(0),
    metavar="N",
    default=40,
    show_default=True,
    help="Lines of the timeline (not with --json).",
)
def show(cli: Cli, run: str, at: int | None, steps: int) -> None:
    """Show a run as it stands or stood.

    Status, doubts, charges, steps; --at SEQ: the state just after that event.

    A read of the record: nothing runs, costs nothing.
    """

    async def work(scope: ScopedLedger) -> dict[str, Any]:
        from refold.events.identity import Stream
        from refold.replay.state import state_at, state_now

        run_id = await scope.resolve_run(run)
        state = await (state_now(scope, run_id) if at is None else state_at(scope, run_id, at))
        async with scope.reader() as reader:
            head = await reader.head(Stream.run(run_id))
        return {**state, "erased": head is not None and head.erased}

    answer = cli.on_scope(work)
    cli.answer(answer, lambda out, answer: _print(out, answer, steps, at))


def _print(out: Output, answer: dict[str, Any], steps: int, at: int | None) -> None:
    run = answer["run"]
    out.line(
        Cell(run["run_id"], "strong"),
        "  ",
        clipped(run["workflow"], 60),
        "  ",
        status_cell(run["status"], run["reason"]),
    )
    if at is not None:
        out.line(Cell(f"as it stood at seq {at}", "quiet"))
    if answer["erased"]:
        out.line(Cell("  What it said was erased on request; `refold events RUN --annex` tells when and why.", "doubt"))
    facts = [
        ("started", clock(run["started_at"])),
        ("ended", clock(run["ended_at"])),
        # An imported run's end is not its session's: it is when it was canceled, or when the file was read.
        ("took", None if run["origin"] == "imported" else duration(run["duration_ms"])),
        ("key", run["key"]),
        ("source run", run["source_run_id"]),
        ("attempt", str(run["attempt_no"])),
        ("input", run["input_summary"]),
        ("output", run["output_summary"]),
        ("error", " ".join(each for each in (run["error_code"], run["error_message"]) if each)),
        ("charges", charges(answer["costs"])),
        ("artifacts", str(len(answer["artifacts"]))),
        ("head", f"seq {answer['head_seq']}  {answer['head_hash'][:16]}"),
    ]
    for name, value in facts:
        if value and value != "-":
            out.line(f"  {name:<11}", clipped(value, 160))
    _print_doubts(out, answer["tool_calls"])
    doubts = {call["run_step_id"] for call in answer["tool_calls"] if call["status"] == "in_doubt"}
    _print_steps(out, [{**step, "doubt": step["step_id"] in doubts} for step in answer["steps"]], steps)
    out.line(Cell("A read of the record: nothing ran, it cost nothing.", "quiet"))


def charges(costs: list[dict[str, Any]]) -> str:
    """The sum of cost rows for people."""
    from refold.replay.money import Charges

    if not costs:
        return "-"
    found = Charges()
    for cost in costs:
        found.charge(cost["currency"], cost["amount"])
    return f"{money(found.charge_summary(), found.unpriced)}  ({counted(len(costs), 'metered call')})"


def _print_doubts(out: Output, calls: list[dict[str, Any]]) -> None:
    doubts = [call for call in calls if call["status"] == "in_doubt"]
    if not doubts:
        return
    out.line(Cell(f"  {'in doubt':<11}{doubt_sentence(len(doubts))}", "doubt"))
    for call in doubts:
        out.line(
            f"    {call['tool_call_id']}  ",
            clipped(call["tool"], 30),
            f"  sent {clock(call['dispatched_at'])}  ",
            clipped(call["arguments_summary"] or "", 80),
        )


def _print_steps(out: Output, steps: list[dict[str, Any]], limit: int) -> None:
    if not steps or not limit:
        return
    out.line(Cell(f"  {counted(len(steps), 'step')}", "strong"))
    first = steps if len(steps) <= limit else steps[: limit - limit // 2]
    last = [] if first is steps else steps[len(steps) - limit // 2 :]
    for step in first:
        _print_step(out, step)
    if first is not steps:
        out.line(Cell(f"    ... {len(steps) - len(first) - len(last)} more; --steps {len(steps)} shows all", "quiet"))
    for step in last:
        _print_step(out, step)


def _print_step(out: Output, step: dict[str, Any]) -> None:
    told = step["error_message"] or step["output_summary"] or step["input_summary"] or ""
    out.line(
        f"    {step['seq']:>6}  ",
        Cell(clock(step["started_at"]), "quiet"),
        f"  {step['type']:<13} ",
        status_cell("in_doubt" if step["doubt"] else step["status"]),
        f"  {duration(step['duration_ms']):>9}  ",
        clipped(step["node"] or "", 30),
        "  ",
        clipped(told, 70),
    )


@command("artifact")
@click.argument("run")
@click.argument("artifact")
def artifact(cli: Cli, run: str, artifact: str) -> None:
    """Write an artifact's exact bytes.

    They are checked against the size and the digests on record. `refold show RUN --json` lists a run's artifacts.

    Refused when standard output is a terminal: what a tool returned is not made safe for one.
    """
    if sys.stdout.isatty():
        raise click.UsageError("An artifact's bytes are not printed on a terminal: redirect them into a file.")

    async def work(scope: ScopedLedger) -> bytes:
        from refold.events.identity import Stream
        from refold.ledger.artifacts import open_artifact
        from refold.ledger.errors import RunNotFound
        from refold.projections.rows import ArtifactRow

        run_id = await scope.resolve_run(run)
        async with scope.reader() as reader:
            rows = await reader.rows(ArtifactRow, {"run_id": run_id, "artifact_id": artifact})
            if not rows:
                raise RunNotFound(
                    f"Run {run_id} has no artifact {artifact}.",
                    remedy="`refold show RUN --json` lists a run's artifacts.",
                    run_id=run_id,
                    artifact_id=artifact,
                )
            blob = await reader.blob(Stream.run(run_id), rows[0].blob)
        return open_artifact(rows[0], blob, scope.ledger.files)

    sys.stdout.buffer.write(cli.on_scope(work))
    sys.stdout.buffer.flush()
