"""`refold verify`: whether the record is still what was written."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from refold.cli.context import Cli, command
from refold.cli.output import Cell, Output
from refold.cli.progress import Progress
from refold.cli.shapes import counted
from refold.cli.statuses import PROOF_BROKEN

if TYPE_CHECKING:
    from refold.ledger.ledger import Ledger
    from refold.ledger.proof import Proof


@command("verify")
@click.argument("run", required=False)
@click.option("--all", "everything", is_flag=True, help="Every stream of every scope (also without RUN).")
@click.option(
    "--workers",
    type=click.IntRange(1, 64),
    metavar="N",
    default=1,
    show_default=True,
    help="Processes that share the streams of a large ledger.",
)
def verify(cli: Cli, run: str | None, everything: bool, workers: int) -> int:
    """Prove that nothing was changed.

    A run with its annex, or the whole ledger: order, hashes, content, artifacts.

    Ends with status 7 and the first bad place when it is not.
    """
    if run is not None and everything:
        raise click.UsageError("Name a run, or say --all; not both.")

    async def work(ledger: Ledger) -> Proof:
        from refold.ledger.proof import verify_all, verify_run

        if run is not None:
            scope = ledger.scope(cli.settings.scope.value)
            # A whole id is taken as it is: the table that would resolve a prefix may be what is damaged.
            whole = run.startswith("run_") and len(run) == _ID_LENGTH
            return await verify_run(scope, run if whole else await scope.resolve_run(run))
        with Progress() as progress:
            return await verify_all(
                ledger, lambda done, total: progress(f"verified {done} of {total} streams"), workers
            )

    proof = cli.on_ledger(work)
    answer = {**proof._asdict(), "ok": proof.ok, "first_bad": proof.first_bad and proof.first_bad._asdict()}
    cli.answer(answer, _print)
    return 0 if proof.ok else PROOF_BROKEN


_ID_LENGTH = len("run_") + 26


def _print(out: Output, answer: dict[str, Any]) -> None:
    if answer["ok"]:
        out.line(Cell("Intact", "good"), f": {_checked(answer)}.")
    else:
        bad = answer["first_bad"]
        out.line(Cell("Broken", "bad"), f" at seq {bad['seq']} of {bad['stream'] or 'the ledger'}: {bad['what']}.")
        out.line(f"Checked {_checked(answer)}.")
    if answer["redacted"]:
        out.line(f"Erased on request: {counted(answer['redacted'], 'content')}. Their place in the chain is proven.")


def _checked(answer: dict[str, Any]) -> str:
    return f"{counted(answer['streams'], 'stream')}, {counted(answer['events'], 'event')}"
