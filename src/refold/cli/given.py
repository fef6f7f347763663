"""Values that are given on the command line: JSON, `@FILE`, or `-` for standard input."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click


def json_text(given: str | None, option: str) -> bytes | None:
    """The JSON text that an option was given; None when it was not given. It is not read yet."""
    if given is None:
        return None
    if given == "-":
        return sys.stdin.buffer.read()
    if given.startswith("@"):
        try:
            return Path(given[1:]).read_bytes()
        except OSError as error:
            raise click.BadParameter(f"{given[1:]}: {error.strerror}.", param_hint=option) from error
    return given.encode("utf-8", "surrogateescape")


def json_value(data: bytes | None, option: str) -> Any:
    """A JSON text read; None when there is none."""
    import msgspec

    if data is None:
        return None
    try:
        return msgspec.json.decode(data)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise click.BadParameter(f"it is no JSON: {error}.", param_hint=option) from error
