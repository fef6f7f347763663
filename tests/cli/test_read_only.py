"""A ledger that this process may read and not write."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.conftest import Sample
from tests.cli.support import Answer, on_ledger

_NOBODY = 65534
# Every command runs twice: the first time loads modules that, without rights, may be out of reach.
_PROGRAM = f"""
import contextlib, io, json, os, sys
from refold.cli.main import run
def call(args):
    out, err = io.TextIOWrapper(io.BytesIO()), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = run(args)
        out.flush()
    return status, out.buffer.getvalue().decode(), err.getvalue()
commands = json.loads(sys.argv[2])
for args in [*commands, ["runs", "--next", "?"]]:
    call(args)
if os.getuid() == 0:
    os.setgid({_NOBODY})
    os.setuid({_NOBODY})
os.environ["REFOLD_LEDGER"] = sys.argv[1]
json.dump([call(args) for args in commands], sys.stdout)
"""


@pytest.fixture
def read_only(sample: Sample) -> Iterator[Path]:
    """The sample where nobody may write, with the files that its last writer left."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        path = folder / "l.db"
        for file in sample.path.parent.iterdir():
            if file.is_file():
                shutil.copy(file, folder)
        on_ledger(path, _look)
        for file in folder.iterdir():
            file.chmod(0o444)
        folder.chmod(0o555)
        yield path
        folder.chmod(0o755)


async def _look(ledger: object) -> None:
    """Opening is enough: the file's helpers are there afterwards."""


def test_reading_works_and_writing_is_refused(read_only: Path, sample: Sample) -> None:
    before = read_only.read_bytes()
    cancel = ["cancel", sample.run_id, "--basis", "x", "--json"]
    commands = [["runs"], ["show", sample.run_id], ["verify"], cancel]
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    program = [sys.executable, "-c", _PROGRAM, str(read_only), json.dumps(commands)]
    done = subprocess.run(program, env=environ, capture_output=True, timeout=60, check=True)
    *reading, refused = [Answer(*each) for each in json.loads(done.stdout)]
    assert [(answer.status, answer.err) for answer in reading] == [(0, "")] * 3
    assert all(answer.out for answer in reading)
    assert (refused.status, refused.error["code"]) == (2, "ledger_read_only")
    assert read_only.read_bytes() == before
