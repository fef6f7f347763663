"""What it costs to have refold: importing it, and installing it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from benchmarks.harness import Bar, Row, Sample, Side, interleave, timed, wall
from benchmarks.workload import Sizes

_ROOT = Path(__file__).parent.parent
_IMPORTS = {
    "interpreter": "pass",
    "refold": "import refold",
    "ledger": "import refold.ledger.ledger",
    "eventsourcing": "import eventsourcing.application, eventsourcing.sqlite",
}


def measure(folder: Path, sizes: Sizes) -> list[Row]:
    """The row of spec 9, in two."""
    return [_import(sizes), _install(folder) if sizes.packages else _no_install()]


def _import(sizes: Sizes) -> Row:
    samples = interleave(sizes.starts, {name: _start(code) for name, code in _IMPORTS.items()})
    bare = wall(samples["interpreter"])
    return Row(
        "import",
        "`import refold`, and the ledger with it, in a new process",
        [
            Bar(
                "import refold, over the interpreter",
                1000 * (wall(samples["refold"]) - bare),
                "ms",
                "<=",
                100,
            ),
            Bar(
                "import refold.ledger.ledger, over the interpreter",
                1000 * (wall(samples["ledger"]) - bare),
                "ms",
                "<=",
                100,
            ),
            Bar(
                "eventsourcing with SQLite, over the interpreter",
                1000 * (wall(samples["eventsourcing"]) - bare),
                "ms",
            ),
        ],
        samples,
        floor="the interpreter alone, which is subtracted",
        notes=["Of several passes the first fills the file cache and the bytecode; the median is of warm ones."],
    )


def _start(code: str) -> Side:
    def side() -> Sample:
        with timed() as sample:
            subprocess.run([sys.executable, "-c", code], check=True)
        return sample

    return side


def _no_install() -> Row:
    return Row("install", "base install", skipped="it needs the package index; a full run does it")


def _install(folder: Path) -> Row:
    wheels, packed, target = folder / "wheel", folder / "packed", folder / "installed"
    try:
        _pip("wheel", "--no-deps", "--wheel-dir", str(wheels), str(_ROOT))
        wheel = next(wheels.glob("refold-*.whl"))
        _pip("download", "--dest", str(packed), str(wheel))
        _pip("install", "--target", str(target), str(wheel))
    except subprocess.CalledProcessError as error:
        return Row("install", "base install", skipped=f"pip failed: {error.stderr.decode(errors='replace')[-300:]}")
    return Row(
        "install",
        "base install into an empty folder, all dependencies counted",
        [
            Bar("downloaded", _bytes(packed) / 1e6, "MB", "<=", 10),
            Bar("installed, with bytecode", _bytes(target) / 1e6, "MB", "<=", 35),
        ],
        facts={"packages": sorted(each.name for each in packed.iterdir())},
    )


def _pip(*arguments: str) -> None:
    command = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", *arguments]
    subprocess.run(command, check=True, capture_output=True)


def _bytes(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
