"""Documentation pages as programs: their fenced blocks, and running them in one folder, from top to bottom.

A `python` block is executed; `await` may stand at its top level, and names live on in the page's later blocks. One
that begins with `# name.py` is that file, and is not executed. A `text` block right after a block is what it prints. In
a `console` block a line `$ refold ...` goes through the real command line, any other `$` line through a shell; the
lines below are what both print. In a folder with Python files every command is a process of its own, since a module is
imported once. Ids, hashes and times that differ from run to run are matched by place: an id may be used in later
commands of the page. A line `...` stands for any lines, and `[...]` at a line's end for the rest of it. The folder is
shown as `/srv/agent`.
"""

from __future__ import annotations

import ast
import asyncio
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any, NamedTuple

from refold.cli.main import run

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])

_BLOCK = re.compile(r"^```(\w+)[ \t]*\n(.*?)^```[ \t]*$", re.MULTILINE | re.DOTALL)
_FILE = re.compile(r"# ([a-z_]+\.(?:py|toml))\n")
_ID = re.compile(r"\b(?:run|st|tc|int|art|cost|apr|fb)_[0-9A-HJKMNP-TV-Z]{26}\b")
_VARYING = re.compile(
    r"\b[0-9a-f]{16,}\b"  # hashes and digests
    r"|\b2\d{3}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:\.\d+)?Z?"
    r"|\b\d+(?:\.\d+)? (?:bytes|KiB|MiB|GiB)\b"
)
REST = "[...]"
FOLDER = "/srv/agent"


class Block(NamedTuple):
    """A fenced block: its language, its text, and the line of the page on which its text begins."""

    language: str
    text: str
    line: int
    follows: bool
    """Whether nothing but blank lines stands between it and the block before."""


def blocks(page: str) -> list[Block]:
    """All fenced blocks of a page, in order."""
    found: list[Block] = []
    end = 0
    for match in _BLOCK.finditer(page):
        between = page[end : match.start()]
        found.append(Block(match[1], match[2], page.count("\n", 0, match.start()) + 2, not between.strip()))
        end = match.end()
    return found


class Mismatch(AssertionError):
    """A block does not print what the page says."""


class PageRun:
    """One page being run in the present folder. `read` takes what was printed since it was last called."""

    def __init__(self, name: str, read: Callable[[], str]) -> None:
        self._name = name
        self._read = read
        self._names: dict[str, Any] = {"__name__": "__main__"}
        self._ids: dict[str, str] = {}
        self._status = 0
        self._runner = asyncio.Runner()

    def run(self, page: str) -> int:
        """Runs the page's blocks and returns how many there were. Raises Mismatch, or what a block raises."""
        count = 0
        printed: str | None = None
        try:
            for block in blocks(page):
                if block.language in ("python", "toml") and (named := _FILE.match(block.text)) is not None:
                    Path(named[1]).write_text(block.text, "utf-8")
                    printed = None
                elif block.language == "python":
                    printed = self._python(block)
                elif block.language == "console":
                    self._console(block)
                elif block.language == "text" and block.follows and printed is not None:
                    self._compare(block.line, block.text.splitlines(), printed.splitlines())
                else:
                    printed = None
                    continue
                printed = printed if block.language == "python" else None
                count += 1
        finally:
            self._runner.close()
        return count

    def _python(self, block: Block) -> str:
        # Padded, so that a traceback names the page's own line.
        code = compile("\n" * (block.line - 1) + block.text, self._name, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        with redirect_stdout(StringIO()) as out:
            result = eval(code, self._names)
            if result is not None:
                self._runner.run(result)
        return out.getvalue()

    def _console(self, block: Block) -> None:
        command: str | None = None
        expected: list[str] = []
        at = block.line
        for number, line in enumerate([*block.text.splitlines(), "$ "], block.line):
            if not line.startswith("$ "):
                expected.append(line)
                continue
            if command is not None:
                self._compare(at, expected, self._command(command).splitlines())
            command, expected, at = line[2:], [], number

    def _command(self, line: str) -> str:
        for shown, real in self._ids.items():
            line = line.replace(shown, real)
        words = shlex.split(line, comments=True)
        self._read()
        if words == ["echo", "$?"]:
            return f"{self._status}\n"
        if words[0] == "refold" and not {"|", ">"} & set(words) and not any(Path.cwd().glob("*.py")):
            self._status = run(words[1:])
            return self._read().replace(str(Path.cwd()), FOLDER)
        python = shlex.quote(sys.executable)
        shell = re.sub(r"\bpython(?= )", python, line)
        shell = re.sub(r"\brefold(?= )", f"{python} -m refold.cli.main", shell)
        out, merged = subprocess.PIPE, subprocess.STDOUT
        done = subprocess.run(["sh", "-c", shell], stdout=out, stderr=merged, text=True, check=False)
        # Of a process that was killed, a shell says 128 and the signal.
        self._status = done.returncode if done.returncode >= 0 else 128 - done.returncode
        return done.stdout.replace(str(Path.cwd()), FOLDER)

    def _compare(self, line: int, expected: list[str], actual: list[str]) -> None:
        rest = list(actual)
        skipping = False
        for number, want in enumerate(expected, line):
            if want == "...":
                skipping = True
                continue
            while rest and skipping and not self._matches(want, rest[0]):
                rest.pop(0)
            if not rest or not self._matches(want, rest[0]):
                self._fail(number, want, actual)
            rest.pop(0)
            skipping = False
        if rest and not skipping:
            self._fail(line + len(expected), "(the end)", actual)

    def _matches(self, want: str, got: str) -> bool:
        if want.endswith(REST):
            want = want.removesuffix(REST)
            got = got[: len(want)]
        if _shape(want) != _shape(got):
            return False
        pairs = list(zip(_ID.findall(want), _ID.findall(got), strict=True))
        known = {**self._ids}
        for shown, real in pairs:
            if known.setdefault(shown, real) != real:
                return False
        if len(set(known.values())) < len(known):
            return False
        self._ids = known
        return True

    def _fail(self, line: int, want: str, actual: list[str]) -> None:
        printed = "\n".join(f"    {each}" for each in actual)
        raise Mismatch(f"{self._name}:{line} says\n    {want}\nand this was printed:\n{printed}")


def _shape(line: str) -> str:
    line = _VARYING.sub("~", _ID.sub(lambda found: found[0].partition("_")[0] + "_~", line))
    return line.rstrip()
