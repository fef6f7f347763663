"""How a command ends that cannot do what was asked: one sentence and the way out, or the same as JSON, and a status."""

from __future__ import annotations

import json
import os
import sys
import traceback
from typing import Any

import click

from refold.cli.statuses import INTERRUPTED, PIPE_CLOSED
from refold.cli.terminal import visible
from refold.errors import RefoldError


class BadUsage(RefoldError):
    """The command line itself is wrong: an unknown command or option, a missing argument, a value of the wrong kind."""

    code = "bad_usage"
    exit_status = 2
    remedy = "Run the command with --help."


class BadConfiguration(RefoldError):
    """`refold.toml` or an environment variable holds something that cannot be used."""

    code = "bad_configuration"
    exit_status = 2
    remedy = "Correct the value where the message says that it stands."


class BadToken(RefoldError):
    """--next was given something that is no page token of this command."""

    code = "bad_token"
    exit_status = 2
    remedy = "Pass `next` of the page before, unchanged, or leave --next away to begin at the start."


class Unexpected(RefoldError):
    """refold failed in a way that nobody foresaw: a mistake in refold. What was acknowledged is safe."""

    code = "internal"
    exit_status = 1
    remedy = "Set REFOLD_DEBUG=1 to see where, and report it."


class SystemRefused(RefoldError):
    """The operating system did not read or write a file and says why: no room, no permission, a fault."""

    code = "system_refused"
    exit_status = 1
    remedy = "Remove the reason and run the command again; what was acknowledged is safe."


def status_of(error: BaseException, *, as_json: bool) -> int:
    """Reports an error on standard error and returns the exit status for it."""
    if isinstance(error, KeyboardInterrupt | click.Abort):
        _say("Interrupted.")
        return INTERRUPTED
    if isinstance(error, BrokenPipeError):
        _let_go_of_output()
        return PIPE_CLOSED
    if os.environ.get("REFOLD_DEBUG") == "1":
        _say("".join(traceback.format_exception(error)))
    known = _known(error)
    report(known, as_json=as_json)
    return known.exit_status


def _known(error: BaseException) -> RefoldError:
    if isinstance(error, RefoldError):
        return error
    if isinstance(error, click.ClickException):
        return BadUsage(_sentence(error.format_message()), remedy=_help_of(error))
    if isinstance(error, OSError):
        where = "Reading or writing failed" if error.filename is None else str(error.filename)
        return SystemRefused(f"{where}: {error.strerror or error}.")
    return Unexpected(f"refold failed in a way that it did not expect: {type(error).__name__}: {error}.")


def report(error: RefoldError, *, as_json: bool) -> None:
    """Writes one error to standard error."""
    if as_json:
        _write(json.dumps({"error": error.as_dict()}, default=str) + "\n")
        return
    _say(f"Error: {error.message}")
    if error.remedy:
        _say(error.remedy)


def _say(text: str) -> None:
    _write("\n".join(visible(line) for line in text.splitlines()) + "\n")


def _write(text: str) -> None:
    try:
        sys.stderr.write(text)
        sys.stderr.flush()
    except BrokenPipeError:
        pass  # Nobody is left to be told.


def _sentence(text: str) -> str:
    text = " ".join(text.split())
    return text if text.endswith((".", "?", "!")) else text + "."


def _help_of(error: click.ClickException) -> str:
    context: Any = getattr(error, "ctx", None)
    return f"Run `{context.command_path} --help`." if context is not None else BadUsage.remedy


def _let_go_of_output() -> None:
    # The interpreter flushes standard output at exit and would complain about the closed pipe once more.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
