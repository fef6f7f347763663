"""The shop of these tests: its code as edited, its killed run, and what stands in its folder."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from refold.runtime.opened import Refold

SOURCE = Path(__file__).parent / "shop.py"
KEY = "order 7"


def load(folder: Path, edits: list[tuple[str, str]] | tuple[()] = ()) -> ModuleType:
    """The shop's code with these edits, as a module of its own. Each old text stands in it once."""
    source = SOURCE.read_text("utf-8")
    for old, new in edits:
        assert source.count(old) == 1, old
        source = source.replace(old, new)
    path = folder / "edited.py"
    path.write_text(source, "utf-8")
    module = ModuleType("shop")
    module.__file__ = str(path)
    sys.modules["shop"] = module  # Where dataclasses look for the module of a class.
    exec(compile(source, str(path), "exec"), module.__dict__)
    return module


def ledger(folder: Path) -> str:
    return str(folder / "ledger.db")


def effects(folder: Path) -> list[str]:
    """What reached the outside, in order."""
    return (folder / "effects").read_text("utf-8").splitlines()


def line_of(folder: Path, mark: str) -> str:
    """Where the edited code has the mark, as reports name it."""
    path = folder / "edited.py"
    lines = path.read_text("utf-8").splitlines()
    (number,) = [number for number, line in enumerate(lines, 1) if line.endswith(f"# at: {mark}")]
    return f"{path}:{number}"


async def sell(rf: Refold, shop: ModuleType) -> Any:
    """Starts the sale, with the signal that it will wait for."""
    run = await rf.start(shop.sell, shop.Order("7", 42), key=KEY)
    await rf.signal(run.id, "go", True)
    return run


def kill_one(folder: Path) -> str:
    """Runs the sale in a process of its own until it kills itself, and returns the run's id."""
    folder.mkdir()
    environ = {**os.environ, "SHOP": str(folder), "SHOP_HOME": "here"}
    work = [sys.executable, "-m", "tests.runtime.drift.support", str(folder)]
    ended = subprocess.run(work, env=environ, capture_output=True, timeout=60, check=False)
    assert ended.returncode == -signal.SIGKILL, ended.stderr.decode()
    return (folder / "run").read_text("utf-8")


def copy_of(folder: Path, to: Path) -> Path:
    """The killed shop once more, for a process that is not killed."""
    shutil.copytree(folder, to)
    (to / "resumed").touch()
    return to


def watch_looks(rf: Refold) -> asyncio.Queue[None]:
    """Gets something whenever the App looks at what was posted to its runs."""
    looks, posted = asyncio.Queue[None](), rf.scope.posted

    async def watched() -> Any:
        looks.put_nowait(None)
        return await posted()

    rf.scope.posted = watched  # type: ignore[method-assign]
    return looks


async def _first_life(folder: Path) -> None:
    shop = load(folder)
    async with shop.app.open(ledger(folder)) as rf:
        run = await sell(rf, shop)
        (folder / "run").write_text(run.id, "utf-8")
        await run.result()


if __name__ == "__main__":
    asyncio.run(_first_life(Path(sys.argv[1])))
