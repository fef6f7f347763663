"""The demo as somebody sees it: whole, and killed and begun again."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

DEMO = [sys.executable, "-m", "refold.cli.main", "demo", "--keep"]


def test_killed_and_started_again_the_demo_begins_anew_and_ends_well(tmp_path: Path) -> None:
    first = subprocess.Popen([*DEMO, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert first.stdout is not None
    for line in first.stdout:
        if "killed (pid" in line:
            break
    first.send_signal(signal.SIGKILL)
    first.communicate()
    done = subprocess.run([*DEMO, str(tmp_path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "the payment service's log shows 1 charge" in done.stdout
    charges = [json.loads(line) for line in (tmp_path / "again-1" / "payments.log").read_text().splitlines()]
    assert [line["account"] for line in charges] == ["", "bonus"]
