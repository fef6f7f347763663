"""Flag, then environment, then the nearest refold.toml, then the default."""

from __future__ import annotations

from pathlib import Path

import pytest

from refold.cli.failures import BadConfiguration
from refold.cli.settings import load_settings
from tests.cli.conftest import Call, Sample

FLAG = {"ledger": "flag.db", "scope": "flag/flag"}
ENVIRONMENT = {"REFOLD_LEDGER": "env.db", "REFOLD_SCOPE": "env/env"}


@pytest.mark.parametrize(
    ("flags", "environment", "file", "ledger", "source"),
    [
        (FLAG, ENVIRONMENT, True, "flag.db", "flag"),
        ({}, ENVIRONMENT, True, "env.db", "environment REFOLD_LEDGER"),
        ({}, {"REFOLD_LEDGER": ""}, True, "HERE/file.db", "file HERE/refold.toml"),
        ({}, {}, False, "refold.db", "default"),
    ],
)
def test_the_strongest_source_wins_and_is_named(
    tmp_path: Path, flags: dict[str, str | None], environment: dict[str, str], file: bool, ledger: str, source: str
) -> None:
    if file:
        (tmp_path / "refold.toml").write_text('ledger = "file.db"\nscope = "file/file"\n')
    below = tmp_path / "a" / "b"
    below.mkdir(parents=True)
    settings = load_settings(flags, environment, below)
    here = str(tmp_path)
    assert settings.ledger == (ledger.replace("HERE", here), source.replace("HERE", here))


def test_each_setting_is_chosen_by_itself(tmp_path: Path) -> None:
    (tmp_path / "refold.toml").write_text('ledger = "/somewhere/l.db"\n')
    settings = load_settings({"scope": "a/b"}, {}, tmp_path)
    assert settings.ledger == ("/somewhere/l.db", f"file {tmp_path / 'refold.toml'}")
    assert settings.scope == ("a/b", "flag")


@pytest.mark.parametrize("text", ["ledger = 3", "ledgr = 'x'", "ledger = ", "[ledger]\na = 1", "\xff"])
def test_a_file_that_cannot_be_used_is_refused_by_name(tmp_path: Path, text: str) -> None:
    (tmp_path / "refold.toml").write_bytes(text.encode("latin-1"))
    with pytest.raises(BadConfiguration, match=r"refold\.toml"):
        load_settings({}, {}, tmp_path)


def test_the_file_reaches_the_commands(sample: Sample, call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("REFOLD_LEDGER")
    assert call("runs").status == 2
    Path("refold.toml").write_text(f'ledger = "{sample.path}"\n')
    assert call("show", sample.run_id).status == 0
    Path("refold.toml").write_text('scope = "no slash"\nledger = "x.db"\n')
    assert call("--ledger", str(sample.path), "runs").status == 2
    assert call("runs", "--ledger", str(sample.path), "--scope", "default/default").status == 0
