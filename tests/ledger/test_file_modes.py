"""A new ledger's files are for their owner alone, whatever the umask allows."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from tests.ledger.building import one_of_everything, open_simulated


def test_nobody_else_can_read_what_agents_said(tmp_path: Path) -> None:
    async def build() -> dict[str, int]:
        async with await open_simulated(tmp_path / "ledger.db") as ledger:
            await one_of_everything(ledger.scope(), turns=1)
            files = [each for each in tmp_path.rglob("*") if each.is_file()]
            return {each.name: each.stat().st_mode & 0o077 for each in files}

    before = os.umask(0o000)
    try:
        modes = asyncio.run(build())
    finally:
        os.umask(before)
    assert {"ledger.db", "ledger.db-wal", "ledger.db-shm", "ledger.db-lock"} <= set(modes)
    assert set(modes.values()) == {0}, modes
