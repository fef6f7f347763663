"""Run the long campaigns and keep what they printed in soak/<date>.txt: `python tools/soak.py`.

`python tools/soak.py NAME PATH...` runs those of some tests alone, into soak/<date>-NAME.txt.

Kills at every point with more processes and seeds, tens of thousands of flipped bits, a gigabyte imported and
interrupted. Short forms of all of them are in `make test`; nothing here is needed to pass, everything here was needed
to believe.
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import apsw

ROOT = Path(__file__).resolve().parent.parent
CAMPAIGNS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("tests marked soak", ("-m", "pytest", "-m", "soak", "-s", "-v", "--durations=0", "-p", "no:xdist")),
    ("a gigabyte, interrupted and continued", ("-m", "benchmarks.import_large", "1000000000", "3")),
)


def main() -> int:
    name, *paths = sys.argv[1:] or [""]
    campaigns = CAMPAIGNS
    if paths:
        marked, arguments = CAMPAIGNS[0]
        campaigns = ((f"{marked}, of {name}", (*arguments, *paths)),)
    target = ROOT / "soak" / f"{datetime.now(UTC):%Y-%m-%d}{f'-{name}' if name else ''}.txt"
    target.parent.mkdir(exist_ok=True)
    failed = []
    with target.open("w", encoding="utf-8") as report:

        def tell(line: str) -> None:
            print(line, flush=True)
            report.write(line.rstrip() + "\n")
            report.flush()

        tell(f"refold soak, {datetime.now(UTC):%Y-%m-%d %H:%M} UTC")
        tell(f"Python {platform.python_version()}, SQLite {apsw.sqlite_lib_version()}, {os.cpu_count()} processors")
        for name, arguments in campaigns:
            tell(f"\n== {name}: python {' '.join(arguments)}")
            started = datetime.now(UTC)
            status = 0
            for line in _lines(arguments):
                if isinstance(line, int):
                    status = line
                else:
                    tell(line)
            tell(f"== {name}: {'ok' if status == 0 else f'FAILED ({status})'} after {datetime.now(UTC) - started}")
            if status:
                failed.append(name)
        tell(f"\n{len(campaigns) - len(failed)} campaigns ok, {len(failed)} failed")
    return 1 if failed else 0


def _lines(arguments: tuple[str, ...]) -> Iterator[str | int]:
    """What a campaign prints, line by line, and at last its exit status. Folders of this machine are not told."""
    command = [sys.executable, *arguments]
    hide = {str(ROOT): ".", str(Path.home()): "~"}
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            for folder, name in hide.items():
                line = line.replace(folder, name)
            yield line.rstrip("\n")
    yield process.returncode


if __name__ == "__main__":
    sys.exit(main())
