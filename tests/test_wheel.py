"""The built wheel is whole: installed in an empty folder it runs the demo."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def _run(*words: str, cwd: Path, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, *words],
        cwd=cwd,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_installed_wheel_runs_the_demo(tmp_path: Path) -> None:
    _run("-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(tmp_path), str(ROOT), cwd=tmp_path)
    (wheel,) = tmp_path.glob("refold-*.whl")
    site, empty = tmp_path / "site", tmp_path / "empty"
    empty.mkdir()
    _run("-m", "pip", "install", "--quiet", "--no-deps", "--target", str(site), str(wheel), cwd=tmp_path)
    # The dependencies are those of this environment; refold itself must come from the wheel.
    place = _run("-c", "import refold; print(refold.__file__)", cwd=empty, PYTHONPATH=str(site))
    assert place.startswith(str(site))
    told = _run("-m", "refold.cli.main", "demo", cwd=empty, PYTHONPATH=str(site))
    assert "Done." in told
    assert "the payment service's log shows 1 charge" in told
    told = _run("-m", "refold.cli.main", "demo", "--session", cwd=empty, PYTHONPATH=str(site))
    assert "the refund is in doubt" in told
    assert list(empty.iterdir()) == [], "the demo leaves nothing behind"
