"""`refold run`: a run of a workflow, seen through. `refold resume`: a run that was let go, gone on with."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import click

from refold.cli.context import Cli, command
from refold.cli.given import json_text
from refold.cli.output import Output

if TYPE_CHECKING:
    from refold.ledger.ledger import ScopedLedger
    from refold.projections.rows import RunRow
    from refold.runtime.app import App
    from refold.runtime.opened import Refold

Started = Callable[[str], None]


@command("run")
@click.argument("target")
@click.option("--input", "given", metavar="JSON", help="What the workflow gets: JSON, @FILE, or - for standard input.")
@click.option("--key", metavar="KEY", help="Your name for the run: the same again is the same run.")
def run(cli: Cli, target: str, given: str | None, key: str | None) -> int:
    """Run a workflow and see it through.

    TARGET is package.module:workflow, or the name of a workflow of the App that --app, REFOLD_APP or refold.toml names.
    The current folder is importable. Events are told on standard error as they are committed, the result at the end.

    Ends with status 3 when the run failed, was canceled or expired, with 5 when it diverged, and with 4 when only
    somebody else can move it: it waits for a signal or a resolution. Then it is let go, and Ctrl-C lets it go too:
    `refold resume RUN` goes on with it, and so does the same command when it has a --key. A process that is killed
    loses nothing that was recorded.
    """
    from refold.cli.code import load_workflow
    from refold.runtime.inputs import read_input

    app, workflow = load_workflow(target, cli.settings.app)
    value = read_input(workflow, json_text(given, "--input"))

    async def work(rf: Refold, started: Started) -> dict[str, Any]:
        from refold.cli.outcomes import see_through

        handle = await rf.start(workflow, value, key=key)
        started(handle.id)
        after = 0
        if rf.running(handle.id) is None:  # The key named a run that is there.
            after = (await rf.scope.run_head(handle.id)).seq
            row = await handle.row()
            if row.ended_at is None and row.reason != "requested":
                await rf.resume(handle.id)
        return await see_through(rf, handle.id, after=after, tell=not cli.as_json)

    return _drive(cli, app, work, create=True, named=_names(cli, target, app))


@command("resume")
@click.argument("run")
def resume(cli: Cli, run: str) -> int:
    """Go on with a run that was let go.

    A run whose process died, that was paused, that diverged from its code, or whose doubt is settled. What is on record
    is not done again. Needs the App: --app, REFOLD_APP or refold.toml. Where a living process has the run, that one
    goes on, and this command watches. Ends as `refold run` does.
    """
    if not cli.names_app:
        cli.on_scope(lambda scope: _refuse_without_app(scope, run))

    async def work(rf: Refold, started: Started) -> dict[str, Any]:
        from refold.cli.outcomes import see_through

        run_id = await rf.scope.resolve_run(run)
        started(run_id)
        after = (await rf.scope.run_head(run_id)).seq
        if (await run_row(rf.scope, run_id)).ended_at is None:
            await rf.resume(run_id)
        return await see_through(rf, run_id, after=after, tell=not cli.as_json)

    return _drive(cli, cli.app, work, create=False, named=_names(cli, None, cli.app))


def _drive(
    cli: Cli,
    app: App,
    work: Callable[[Refold, Started], Awaitable[dict[str, Any]]],
    *,
    create: bool,
    named: str,
) -> int:
    from refold.cli.outcomes import exit_status, print_standing

    begun: list[str] = []
    try:
        answer = cli.on_app(app, lambda rf: work(rf, begun.append), create=create)
    except KeyboardInterrupt:
        if begun and not cli.as_json:
            out = Output(as_json=False, stream=sys.stderr)
            out.line(f"This command lets go of run {begun[0]}; `refold resume {begun[0]}{named}` goes on with it.")
        raise
    cli.answer(answer, lambda out, answer: print_standing(out, answer, named))
    return exit_status(answer)


def _names(cli: Cli, target: str | None, app: App) -> str:
    """What names the App on the command line that goes on; nothing where the settings do without a flag."""
    setting = cli.settings.app
    if cli.names_app and cli.app is app:
        return f" --app {setting.value}" if setting.source == "flag" else ""
    module = (target or "").partition(":")[0]
    name = next((name for name, each in vars(sys.modules[module]).items() if each is app), "app")
    return f" --app {module}:{name}"


async def run_row(scope: ScopedLedger, run_id: str) -> RunRow:
    """A run's row. Raises NotARun for what no workflow's code made."""
    from refold.projections.rows import RunRow
    from refold.runtime.errors import NotARun

    async with scope.reader() as reader:
        (row,) = await reader.rows(RunRow, {"run_id": run_id})
    if row.origin != "live" or row.subject_kind != "workflow":
        raise NotARun(f"Run {run_id} is {row.origin}, a {row.subject_kind}: it has no code to run.", run=run_id)
    return row


async def _refuse_without_app(scope: ScopedLedger, run: str) -> None:
    from refold.cli.code import AppMissing

    row = await run_row(scope, await scope.resolve_run(run))
    raise AppMissing(
        f"Run {row.run_id} is one of workflow {row.workflow!r}, and no App is named that has its code.",
        run=row.run_id,
        workflow=row.workflow,
    )
