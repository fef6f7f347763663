"""`refold demo`: an agent that is killed twice, comes back, and is replayed; and a recorded session, examined.

Every step is a real command on a real ledger in a folder of its own, its answer checked; the first one that is not
what it must be ends the demo with status 1. Killed and started again it begins anew.
"""

from __future__ import annotations

import itertools
import tempfile
from importlib.resources import as_file, files
from pathlib import Path

import click

from refold.cli.context import Cli, command


@command("demo")
@click.option(
    "--keep",
    type=click.Path(path_type=Path),
    metavar="FOLDER",
    help="Where to leave the demo's ledger (a further folder in it each time).",
)
@click.option("--session", is_flag=True, help="Walk through a recorded session instead.")
@click.option("--real-model", is_flag=True, help="With a real model, where one is installed (`make demo-model`).")
def demo(cli: Cli, keep: Path | None, session: bool, real_model: bool) -> None:
    """Watch an agent survive: killed while a charge is on the wire, resumed, its doubts resolved, replayed.

    Payment service and model are processes of their own, on this machine; both are stopped before the replays. With
    --session: the log of an agent that nobody can run again, examined - evidence, a doubt, costs, proof, tampering,
    erasure. Nothing of yours is touched: the demo makes a ledger of its own, in a temporary folder unless --keep names
    one.
    """
    with tempfile.TemporaryDirectory(prefix="refold-demo-") as temporary:
        folder = Path(temporary)
        if keep is not None:
            folder = _room(keep.absolute())
        if session:
            from refold.cli.walks.session import SessionWalk

            with as_file(files("refold.interop.samples").joinpath("demo-session.jsonl")) as log:
                SessionWalk(cli.out, folder, log).run()
        else:
            from refold.cli.walks.survival import SurvivalWalk

            walk = SurvivalWalk(cli.out, folder)
            walk.run_with_real_model() if real_model else walk.run()


def _room(keep: Path) -> Path:
    """A folder that nobody uses: a demo that was killed may have left a command that still reads its ledger."""
    again = (keep / f"again-{number}" for number in itertools.count(1))
    folder = next(each for each in itertools.chain((keep,), again) if not each.exists() or not any(each.iterdir()))
    folder.mkdir(parents=True, exist_ok=True)
    return folder
