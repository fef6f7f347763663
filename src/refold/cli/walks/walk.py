"""Walking through commands that anybody has: each one really run, its answer checked."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from refold.cli.output import Cell, Output
from refold.errors import RefoldError


class DemoFailed(RefoldError):
    """A step of the demo did not show what it must show."""

    code = "demo_failed"
    exit_status = 1
    remedy = "Report it with the output above: what the demo shows is what refold promises."


class Walk:
    """A story in steps, in a folder of its own. `environment` goes to every command."""

    def __init__(self, out: Output, folder: Path) -> None:
        self._out = out
        self._folder = folder
        self._step = 0
        self.environment: dict[str, str] = {}

    def _title(self, text: str) -> None:
        self._step += 1
        self._out.line()
        self._out.line(Cell(f"{self._step}. {text}", "strong"))

    def _say(self, text: str) -> None:
        self._out.line(f"   {text}")

    def _check(self, holds: bool, what: str) -> None:
        if not holds:
            raise DemoFailed(f"Step {self._step} of the demo does not show this: {what}.", step=self._step)
        self._out.line(Cell("   checked: ", "good"), what)

    def _show(self, *words: str, ledger: Path | None = None, status: int = 0) -> Any:
        """Runs a command as a person would, prints what it prints, and returns what it answers programs."""
        self._print(words, ledger, status)
        return json.loads(self._call((*words, "--json"), ledger, status))

    def _print(self, words: tuple[str, ...], ledger: Path | None, status: int) -> None:
        shown = " ".join(word if " " not in word else f'"{word}"' for word in words)
        where = "" if ledger is None else f"--ledger {ledger.relative_to(self._folder)} "
        self._out.line(f"   $ refold {where}{self._named(shown)}")
        for line in self._call(words, ledger, status).splitlines():
            self._out.line(f"     {self._named(line)}")

    def _named(self, text: str) -> str:
        """Text as it is shown: without places that mean nothing elsewhere."""
        return text

    def _ask(self, *words: str) -> Any:
        return json.loads(self._call((*words, "--json"), None, 0))

    def _lines(self, *words: str) -> list[Any]:
        return [json.loads(line) for line in self._call((*words, "--json"), None, 0).splitlines()]

    def _call(self, words: tuple[str, ...], ledger: Path | None, status: int) -> str:
        place = ledger or self._folder / "demo.db"
        command_line = [sys.executable, "-m", "refold.cli.main", "--ledger", str(place), *words]
        environment = {**os.environ, **self.environment}
        done = subprocess.run(
            command_line,
            capture_output=True,
            text=True,
            encoding="utf-8",
            check=False,
            env=environment,
            cwd=self._folder,
        )
        if done.returncode != status:
            raise DemoFailed(
                f"`refold {words[0]}` ended with {done.returncode} and not with {status}: {done.stderr.strip()}",
                step=self._step,
            )
        return done.stdout
