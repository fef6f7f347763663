"""A process that races another for the same keys, and does what a runtime does when it loses a commit to it."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

from refold.gateway.tools import Tool
from refold.ledger.errors import KeyConflict
from refold.ledger.ledger import open_ledger
from tests.gateway.support import start


def race(folder: Path, me: int, rounds: int) -> tuple[list[str], int]:
    """Calls one tool under `rounds` keys in a run of its own, each together with the other process. Returns the
    results, and how many commits it lost to the other.
    """

    async def act(number: int) -> str:
        descriptor = os.open(folder / "truth", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.write(descriptor, f"{number}\n".encode())
        os.close(descriptor)
        return f"{number} by {me}"

    async def work() -> tuple[list[str], int]:
        tool = Tool(act, key="act:{number}")
        results: list[str] = []
        lost = 0
        async with await open_ledger(folder / "ledger.db") as ledger:
            run = await start(ledger.scope())
            for number in range(rounds):
                together(folder, me, number)
                while True:
                    try:
                        results.append(await run.make(tool, number))
                        break
                    except KeyConflict:
                        lost += 1
                        run.gateway.close()
                        run = await run.resume()
            await run.end()
        return results, lost

    return asyncio.run(work())


def together(folder: Path, me: int, number: int) -> None:
    """Returns when the other process has come here too."""
    (folder / f"{number}-{me}").touch()
    while not (folder / f"{number}-{1 - me}").exists():
        time.sleep(0)
