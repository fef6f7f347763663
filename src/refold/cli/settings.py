"""Where a command's settings come from: flag, environment, the nearest `refold.toml`, default - in this order."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from refold.cli.failures import BadConfiguration

FILE = "refold.toml"
ENVIRONMENT = {"ledger": "REFOLD_LEDGER", "scope": "REFOLD_SCOPE", "app": "REFOLD_APP"}
DEFAULTS = {"ledger": "refold.db", "scope": "default/default", "app": ""}


class Setting(NamedTuple):
    """One value, and what gave it: `flag`, `environment REFOLD_...`, `file ...` or `default`."""

    value: str
    source: str

    @property
    def file(self) -> Path | None:
        """The file that gave it, if one did."""
        return Path(self.source.removeprefix("file ")) if self.source.startswith("file ") else None


class Settings(NamedTuple):
    """Everything that a command can be configured with."""

    ledger: Setting
    scope: Setting
    app: Setting
    """The code that runs: `package.module:app`. Empty when none is named."""

    def as_dict(self) -> dict[str, dict[str, str]]:
        return {name: setting._asdict() for name, setting in self._asdict().items()}


def load_settings(flags: Mapping[str, str | None], environment: Mapping[str, str], folder: Path) -> Settings:
    """The settings of a command started in `folder`. Raises BadConfiguration.

    A relative ledger in a file is meant relative to that file, so that it is the same ledger from every folder below.
    """
    file = _nearest(folder)
    in_file = _read(file) if file is not None else {}
    return Settings(*(_choose(name, flags, environment, file, in_file) for name in Settings._fields))


def _choose(
    name: str,
    flags: Mapping[str, str | None],
    environment: Mapping[str, str],
    file: Path | None,
    in_file: Mapping[str, str],
) -> Setting:
    flag = flags.get(name)
    if flag is not None:
        return Setting(flag, "flag")
    variable = ENVIRONMENT[name]
    if environment.get(variable):
        return Setting(environment[variable], f"environment {variable}")
    if file is not None and name in in_file:
        value = in_file[name]
        if name == "ledger" and not value.startswith("sqlite:///"):
            value = str(file.parent / value)
        return Setting(value, f"file {file}")
    return Setting(DEFAULTS[name], "default")


def _nearest(folder: Path) -> Path | None:
    for place in (folder, *folder.parents):
        file = place / FILE
        if file.is_file():
            return file
    return None


def _read(file: Path) -> dict[str, str]:
    try:
        with file.open("rb") as stream:
            found: dict[str, Any] = tomllib.load(stream)
    except (OSError, ValueError) as error:
        raise BadConfiguration(f"{file} cannot be read: {error}.", file=str(file)) from error
    for name, value in found.items():
        if name not in DEFAULTS:
            raise BadConfiguration(
                f"{file} sets {name!r}, which is not a setting ({', '.join(DEFAULTS)}).",
                file=str(file),
                setting=name,
            )
        if not isinstance(value, str):
            raise BadConfiguration(
                f"{file} sets {name} to something that is not a string.", file=str(file), setting=name
            )
    return found
