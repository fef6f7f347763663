"""The program `refold`: its commands, and how it ends."""

from __future__ import annotations

import os
import sys
from typing import Any

import click

from refold._version import __version__
from refold.cli import failures
from refold.cli.commands import COMMANDS
from refold.cli.context import Cli, shared_options
from refold.cli.statuses import EXIT_STATUSES

_EPILOG = "\b\nExit status\n" + "\n".join(f"  {status:<3}  {meaning}" for status, meaning in EXIT_STATUSES.items())
_COMPLETE = "_REFOLD_COMPLETE"


class _Commands(click.Group):
    """The commands in the order in which somebody meets them."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)


@click.group(
    cls=_Commands,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=_EPILOG,
)
@shared_options
@click.version_option(__version__, "--version", prog_name="refold", message="%(prog)s %(version)s")
@click.pass_context
def cli(context: click.Context) -> int | None:
    """The ledger and replay engine for AI-agent runtimes.

    Runs may be named by any unique beginning of their id. Settings come from flags, then REFOLD_LEDGER, REFOLD_SCOPE
    and REFOLD_APP, then the nearest refold.toml. Shell completion: eval "$(_REFOLD_COMPLETE=bash_source refold)".
    """
    if context.invoked_subcommand is None:
        click.echo(context.get_help(), err=True)
        return failures.BadUsage.exit_status
    return None


for _command in COMMANDS:
    cli.add_command(_command)


def run(args: list[str]) -> int:
    """Runs one command line and returns its exit status."""
    for stream in (sys.stdout, sys.stderr):
        # A terminal with a small alphabet shows \u2026 instead of ending the command.
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    if _COMPLETE in os.environ:
        cli.main(args, prog_name="refold")  # Answers the shell and ends the process.
    state = Cli()
    try:
        # Not click's own main: it ends the process with 1 for a closed pipe and for Ctrl-C.
        with cli.make_context("refold", list(args), obj=state) as context:
            result: Any = cli.invoke(context)
        sys.stdout.flush()
    except click.exceptions.Exit as ended:
        return ended.exit_code
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - the program's edge: everything becomes a status
        return failures.status_of(error, as_json=state.as_json or "--json" in args)
    return result if isinstance(result, int) else 0


def main() -> None:
    """The entry point of the installed program."""
    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
