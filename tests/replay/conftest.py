"""Runs of workflows in every state, made once."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest

from tests.replay.code_runs import called, make

Made = tuple[Path, dict[str, str]]


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """The folder of their ledger, and the runs by name. Nobody changes it."""
    folder = tmp_path_factory.mktemp("states")
    runs = asyncio.run(make(str(folder / "l.db")))
    (folder / "runs").write_bytes(msgspec.json.encode(runs))
    called.clear()
    return folder, runs
