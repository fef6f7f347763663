"""`refold replay`: a run again, in one of the kinds that exist."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from refold.cli.context import Cli, command
from refold.cli.output import Cell, Output
from refold.cli.shapes import counted
from refold.cli.statuses import UNEQUAL
from refold.errors import RefoldError

if TYPE_CHECKING:
    from refold.events.envelope import Head
    from refold.ledger.ledger import ScopedLedger

_AVAILABLE = "projection-only"
_COMMANDS = {"evidence": "refold evidence RUN", "catch-up": "refold events RUN --after SEQ"}
"""Kinds that are commands of their own."""
_MODES = (
    *_COMMANDS,
    "idempotent-reply",
    "re-execution",
    _AVAILABLE,
    "inference-skipping",
    "partial",
    "full",
    "simulation",
)
_SHOWN = 20


class ReplayKindUnavailable(RefoldError):
    """A kind of replay was asked for that this version has no engine for. Nothing ran in its place."""

    code = "replay_kind_unavailable"
    exit_status = 6
    remedy = "Use `refold evidence RUN`, `refold events RUN --after SEQ` or `refold replay RUN --mode projection-only`."


@command("replay")
@click.argument("run")
@click.option("--mode", type=click.Choice(_MODES), required=True, help="The kind of replay.")
@click.option("--dry-run", is_flag=True, help="Only say what it would execute and what it can cost.")
def replay(cli: Cli, run: str, mode: str, dry_run: bool) -> int:
    """Replay a run in one of the kinds.

    projection-only (kind 5) folds the run's tables again from its events and compares them with the stored ones:
    nothing runs, nothing is written. Ends with status 5 when they differ.

    Kinds 1 and 2 are commands of their own, evidence and events. The others are refused: this version has no engine for
    them, and nothing runs in their place.
    """
    if mode in _COMMANDS:
        raise click.BadParameter(f"{mode} is a command of its own, `{_COMMANDS[mode]}`.", param_hint="--mode")
    if mode != _AVAILABLE:
        raise ReplayKindUnavailable(
            f"Replay kind {mode} does not exist in this version; evidence, catch-up and projection-only do.",
            mode=mode,
            available=["evidence", "catch-up", _AVAILABLE],
        )

    async def work(scope: ScopedLedger) -> dict[str, Any]:
        from refold.replay.kinds import PROJECTION_ONLY
        from refold.replay.projection_only import replay_projections

        run_id = await scope.resolve_run(run)
        answer: dict[str, Any] = {"mode": mode, "run_id": run_id}
        plan = {**PROJECTION_ONLY.answer(), "needs": PROJECTION_ONLY.needs}
        if dry_run:
            head = _head(await scope.run_head(run_id))
            return {**answer, **_DRY, "source_head_before": head, "source_head_after": head, "plan": plan}
        done = await replay_projections(scope, run_id)
        return {
            **answer,
            "source_head_before": _head(done.head_before),
            "source_head_after": _head(done.head_after),
            "result": "equal" if done.equal else "diverged",
            "divergences": [each._asdict() for each in done.divergences],
            "state_digest": done.state_digest,
            "new_run_id": None,
            "plan": plan,
            "events": done.events,
            "rows": done.rows,
        }

    answer = cli.on_scope(work)
    cli.answer(answer, _print)
    return UNEQUAL if answer["result"] == "diverged" else 0


_DRY: dict[str, Any] = {"result": None, "divergences": [], "state_digest": None, "new_run_id": None}


def _head(head: Head) -> dict[str, Any]:
    return {"seq": head.seq, "hash": head.hash.hex()}


def _print(out: Output, answer: dict[str, Any]) -> None:
    plan = answer["plan"]
    out.line(Cell(answer["run_id"], "strong"), f"  replay kind {plan['number']}, {plan['kind']}")
    out.line(f"  executes nothing; costs {plan['cost']}; needs {plan['needs']}")
    if answer["result"] is None:
        return
    folded = f"{counted(answer['events'], 'event')} folded into {counted(answer['rows'], 'row')}"
    if answer["result"] == "equal":
        out.line(Cell("  Equal", "good"), f": {folded}, the same as stored.")
    else:
        out.line(Cell("  Diverged", "bad"), f": {folded}, {counted(len(answer['divergences']), 'difference')}.")
    for each in answer["divergences"][:_SHOWN]:
        out.line(f"    {each['kind']}, seq {each['seq']}: {each['first_difference']}")
    if len(answer["divergences"]) > _SHOWN:
        out.line(f"    and {len(answer['divergences']) - _SHOWN} more; --json lists all")
    same = answer["source_head_before"] == answer["source_head_after"]
    moved = "unchanged" if same else "moved: the run was written to meanwhile"
    out.line(f"  state {answer['state_digest'][:16]}  head seq {answer['source_head_after']['seq']}, {moved}")
