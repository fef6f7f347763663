"""Deliberate misuses of workflow code: refused with a sentence that helps, found as drift when the run is resumed, or
harmless. `docs/determinism.md` shows the same pool.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.determinism.misuses import MISUSES, NOTE
from tests.determinism.page import PAGE, rendered
from tests.determinism.trying import first, second

IN_PROCESS = [name for name, each in MISUSES.items() if not each.processes]
BETWEEN = [name for name, each in MISUSES.items() if each.processes]


@pytest.fixture
def note(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "note"
    path.write_text("first")
    monkeypatch.setenv(NOTE, str(path))
    return path


@pytest.mark.parametrize("name", IN_PROCESS)
async def test_a_misuse_is_refused_found_or_harmless(
    name: str, tmp_path: Path, note: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = str(tmp_path / "l.db")
    said = await first(ledger, name)
    assert note.read_text() == "first"
    assert {each.name for each in tmp_path.iterdir()} <= {"note", "l.db", "l.db-wal", "l.db-shm", "l.db-lock"}
    if MISUSES[name].verdict == "refused":
        check(name, said)
        return
    assert said == "waits"
    other = note.with_name("other note")
    other.write_text("second")
    monkeypatch.setenv(NOTE, str(other))
    check(name, await second(ledger, name))


@pytest.mark.parametrize("name", BETWEEN)
def test_a_misuse_that_another_process_shows_is_found_or_harmless(name: str, tmp_path: Path, note: Path) -> None:
    ledger = str(tmp_path / "l.db")
    assert in_process("first", ledger, name, hash_seed=1) == "waits"
    check(name, in_process("second", ledger, name, hash_seed=2))


def in_process(half: str, ledger: str, name: str, hash_seed: int) -> str:
    command = [sys.executable, "-m", "tests.determinism.trying", half, ledger, name]
    environment = {**os.environ, "PYTHONHASHSEED": str(hash_seed)}
    said: str = json.loads(subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True).stdout)
    return said


def check(name: str, said: str) -> None:
    misuse = MISUSES[name]
    if misuse.verdict == "harmless":
        assert said == "harmless"
    else:
        assert said.startswith("drift: ") == (misuse.verdict == "drift"), said
        assert misuse.says in said


def test_the_page_shows_the_pool() -> None:
    assert PAGE.read_text(encoding="utf-8") == rendered(), "run `python -m tests.determinism.page`"
