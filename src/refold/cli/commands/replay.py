"""`refold replay`: a run again, in one of the kinds that exist."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from refold.cli.context import Cli, command
from refold.cli.output import Cell, Output
from refold.cli.shapes import counted
from refold.cli.statuses import UNEQUAL
from refold.cli.terminal import clipped
from refold.errors import RefoldError

if TYPE_CHECKING:
    from refold.events.envelope import Head
    from refold.ledger.ledger import ScopedLedger
    from refold.runtime.app import App

_COMMANDS = {"evidence": "refold evidence RUN", "catch-up": "refold events RUN --after SEQ"}
"""Kinds that are commands of their own."""
_ENGINES = ("projection-only", "inference-skipping", "partial")
_MODES = (*_COMMANDS, "idempotent-reply", "re-execution", *_ENGINES, "full", "simulation")
_SHOWN = 20


class ReplayKindUnavailable(RefoldError):
    """A kind of replay was asked for that this version has no engine for. Nothing ran in its place."""

    code = "replay_kind_unavailable"
    exit_status = 6
    remedy = "Use `refold evidence RUN`, `refold events RUN --after SEQ`, or `refold replay` in a mode that exists."


@command("replay")
@click.argument("run")
@click.option("--mode", type=click.Choice(_MODES), required=True, help="The kind of replay.")
@click.option("--until", type=click.IntRange(1), metavar="SEQ", help="With partial: stop after this event.")
@click.option("--dry-run", is_flag=True, help="Only say what it would execute and what it can cost.")
def replay(cli: Cli, run: str, mode: str, until: int | None, dry_run: bool) -> int:
    """Replay a run in one of the kinds.

    projection-only (kind 5) folds the run's tables again from its events and compares them with the stored ones:
    nothing runs, nothing is written.

    inference-skipping (kind 6) runs the workflow's code against the record: every answer of models, tools, clocks and
    signals is the recorded one, nothing is asked of the outside and nothing is written. partial (kind 7) stops after
    --until SEQ and shows what the code waited for there. Both need the App: --app, REFOLD_APP or refold.toml.

    Each ends with status 5 when something differs. Kinds 1 and 2 are commands of their own, evidence and events. The
    others are refused: this version has no engine for them, and nothing runs in their place.
    """
    if mode in _COMMANDS:
        raise click.BadParameter(f"{mode} is a command of its own, `{_COMMANDS[mode]}`.", param_hint="--mode")
    if mode not in _ENGINES:
        raise ReplayKindUnavailable(
            f"Replay kind {mode} does not exist in this version; evidence, catch-up, {', '.join(_ENGINES)} do.",
            mode=mode,
            available=[*_COMMANDS, *_ENGINES],
        )
    if (mode == "partial") != (until is not None):
        raise click.UsageError("--until SEQ goes with --mode partial, which needs it.")
    runs_code = mode != "projection-only"
    app = cli.app if runs_code and not dry_run else None

    async def work(scope: ScopedLedger) -> dict[str, Any]:
        run_id = await scope.resolve_run(run)
        answer = {"mode": mode, "run_id": run_id, "plan": _plan(mode)}
        if dry_run:
            head = _head(await scope.run_head(run_id))
            return {**answer, **_DRY, "source_head_before": head, "source_head_after": head}
        if app is not None:
            return {**answer, **await _of_code(scope, app, run_id, until)}
        return {**answer, **await _of_projections(scope, run_id)}

    answer = cli.on_scope(work)
    cli.answer(answer, _print)
    return UNEQUAL if answer["result"] == "diverged" else 0


def _plan(mode: str) -> dict[str, Any]:
    from refold.replay.kinds import KINDS

    kind = next(each for each in KINDS if each.name == mode)
    return {**kind.answer(), "needs": kind.needs}


async def _of_projections(scope: ScopedLedger, run_id: str) -> dict[str, Any]:
    from refold.replay.projection_only import replay_projections

    done = await replay_projections(scope, run_id)
    return {
        "source_head_before": _head(done.head_before),
        "source_head_after": _head(done.head_after),
        "result": "equal" if done.equal else "diverged",
        "divergences": [each._asdict() for each in done.divergences],
        "state_digest": done.state_digest,
        "new_run_id": None,
        "events": done.events,
        "rows": done.rows,
    }


async def _of_code(scope: ScopedLedger, app: App, run_id: str, until: int | None) -> dict[str, Any]:
    import msgspec

    from refold.replay.inference_skipping import InferenceSkipping, Partial

    kind = InferenceSkipping() if until is None else Partial(until)
    done = await kind.replay(scope, app, run_id)
    # What the code asked for now is not in the ledger, and nobody has looked through it for secrets yet.
    shown, _ = scope.ledger.redactor.redact(
        {"divergences": [msgspec.to_builtins(each) for each in done.divergences], "state": done.state}
    )
    return {
        "source_head_before": _head(done.head_before),
        "source_head_after": _head(done.head_after),
        "result": "equal" if done.equal else "diverged",
        **shown,
        "state_digest": done.state_digest,
        "new_run_id": None,
        "at_seq": done.at_seq,
    }


_DRY: dict[str, Any] = {"result": None, "divergences": [], "state_digest": None, "new_run_id": None}


def _head(head: Head) -> dict[str, Any]:
    return {"seq": head.seq, "hash": head.hash.hex()}


def _print(out: Output, answer: dict[str, Any]) -> None:
    plan = answer["plan"]
    out.line(Cell(answer["run_id"], "strong"), f"  replay kind {plan['number']}, {plan['kind']}")
    executes = ", ".join(plan["executes"]) or "nothing"
    out.line(f"  executes {executes}; costs {plan['cost']}; needs {plan['needs']}")
    if answer["result"] is None:
        return
    if "state" in answer:
        done, same = f"the code was given events 1 to {answer['at_seq']}", "and asked for what is recorded"
    else:
        done = f"{counted(answer['events'], 'event')} folded into {counted(answer['rows'], 'row')}"
        same = "the same as stored"
    if answer["result"] == "equal":
        out.line(Cell("  Equal", "good"), f": {done}, {same}.")
    else:
        out.line(Cell("  Diverged", "bad"), f": {done}, {counted(len(answer['divergences']), 'difference')}.")
    for each in answer["divergences"][:_SHOWN]:
        out.line(f"    {each['kind']}, seq {each['seq']}: {each['first_difference']}")
        for name in ("at", "remedy"):
            if each.get(name):
                out.line(f"      {each[name]}")
    if len(answer["divergences"]) > _SHOWN:
        out.line(f"    and {len(answer['divergences']) - _SHOWN} more; --json lists all")
    if "state" in answer:
        _print_state(out, answer["state"])
    unmoved = answer["source_head_before"] == answer["source_head_after"]
    moved = "unchanged" if unmoved else "moved: the run was written to meanwhile"
    out.line(f"  state {answer['state_digest'][:16]}  head seq {answer['source_head_after']['seq']}, {moved}")


def _print_state(out: Output, state: dict[str, Any]) -> None:
    from refold.replay.present import to_json

    out.line(f"  the code: segment {state['segment']}, {state['status']}")
    for name in ("output", "error"):
        if name in state:
            out.line(f"    {name} ", clipped(to_json(state[name]).decode(), 160))
    for each in state["waits_for"][:_SHOWN]:
        out.line(f"    waits for {each['site']}  ", clipped(to_json(each["asks"]).decode(), 120))
