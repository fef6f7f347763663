"""Proving a ledger on several processes finds what one process finds."""

from __future__ import annotations

import asyncio
from pathlib import Path

import apsw
import pytest

from refold.events.catalog.run import RunCreated, RunStarted, RunSucceeded
from refold.ledger import proof
from refold.ledger.drafts import Draft
from refold.ledger.ledger import open_ledger
from refold.ledger.proof import Proof, verify_all
from refold.ledger.writer import StreamWriter

RUNS = 7


async def _make(path: Path) -> None:
    async with await open_ledger(path) as ledger:
        for number in range(RUNS):
            scope = ledger.scope(f"tenant-{number % 2}/w")
            writer = await scope.create(Draft(RunCreated(workflow="w", effect_domain="d", lineage_root="r")))
            assert isinstance(writer, StreamWriter)
            writer.append(Draft(RunStarted()))
            writer.append(Draft(RunSucceeded(), content={"output": number}))
            await writer.close()


async def _prove(path: Path, workers: int) -> tuple[Proof, list[tuple[int, int]]]:
    told: list[tuple[int, int]] = []
    async with await open_ledger(path, create=False) as ledger:
        return await verify_all(ledger, lambda done, of: told.append((done, of)), workers), told


@pytest.fixture
def ledger_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(proof, "_CHUNK", 6)  # two runs to a worker at a time
    path = tmp_path / "l.db"
    asyncio.run(_make(path))
    return path


def test_two_workers_prove_every_stream_once_and_tell_how_far_they_are(ledger_file: Path) -> None:
    found, told = asyncio.run(_prove(ledger_file, 2))
    assert found == Proof(RUNS, 3 * RUNS, 0, None)
    assert found == asyncio.run(_prove(ledger_file, 1))[0]
    assert told == [(0, RUNS), (2, RUNS), (4, RUNS), (6, RUNS)]


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE events SET recorded_at = recorded_at + 1 WHERE id IN (4294967296 * 3 + 2, 4294967296 * 6 + 1)",
        "UPDATE stream_heads SET owner = 99 WHERE stream_no IN (2, 5)",
        "UPDATE stream_heads SET seq = 'x' WHERE stream_no = 4",
        "DELETE FROM stream_heads WHERE stream_no = 7",
    ],
    ids=["events", "head", "seq-of-head", "no-head"],
)
def test_two_workers_name_the_same_first_bad_place_as_one(ledger_file: Path, damage: str) -> None:
    connection = apsw.Connection(str(ledger_file))
    connection.execute("PRAGMA foreign_keys = OFF")
    connection.execute(damage)
    connection.close()
    found, _ = asyncio.run(_prove(ledger_file, 2))
    assert not found.ok
    assert found == asyncio.run(_prove(ledger_file, 1))[0]
