"""A ledger with one run in it, and the command line pointed at it."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from refold.cli.main import run
from tests.cli.support import HOSTILE, Answer, on_ledger, record_run

Call = Callable[..., Answer]


class Sample(NamedTuple):
    """A ledger's file and the run in it."""

    path: Path
    run_id: str


@pytest.fixture(scope="session")
def _template(tmp_path_factory: pytest.TempPathFactory) -> Sample:
    path = tmp_path_factory.mktemp("template") / "l.db"
    return Sample(path, on_ledger(path, lambda ledger: record_run(ledger, key="first", text=HOSTILE)))


@pytest.fixture
def sample(_template: Sample, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Sample:
    """A copy of the ledger for one test, named by REFOLD_LEDGER."""
    folder = tmp_path / "ledger"
    shutil.copytree(_template.path.parent, folder)
    path = folder / "l.db"
    monkeypatch.setenv("REFOLD_LEDGER", str(path))
    return Sample(path, _template.run_id)


@pytest.fixture(autouse=True)
def _no_app_of_the_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("REFOLD_APP", raising=False)


@pytest.fixture
def call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Call:
    """Runs a command line in this process, in an empty folder and without the caller's settings."""
    for name in ("REFOLD_SCOPE", "REFOLD_DEBUG", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    empty = tmp_path / "cwd"
    empty.mkdir()
    monkeypatch.chdir(empty)

    def call(*args: str) -> Answer:
        capfd.readouterr()
        status = run(list(args))
        return Answer(status, *capfd.readouterr())

    return call
