"""Case 29: the code that folds had changed, an old snapshot was still used, and the state was silently wrong. Here
snapshots and tables carry the fingerprint of the code that folded them: other code passes the snapshot over, does not
write until the ledger is migrated, and has then what its own full fold gives.

The other code is real: a copy of the package, one of whose folds was edited, in a process of its own.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from refold import projections
from refold.events.catalog.inference import InferenceRequested
from refold.ledger.drafts import Draft
from refold.ledger.errors import SchemaOutdated
from refold.ledger.ledger import Ledger
from refold.ledger.snapshots import take_snapshot
from refold.projections.fingerprint import fingerprint
from tests.cases import other_code
from tests.cases.support import LEDGER, add_step, begin, in_ledger, look

SOURCE = Path(projections.__file__).parents[1]


def _edited_copy(folder: Path, old: str, new: str) -> Path:
    """A copy of the package in which one line of one fold says something else."""
    copy = folder / "other" / "refold"
    shutil.copytree(SOURCE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    edited = [file for file in (copy / "projections").glob("*.py") if old in file.read_text()]
    assert edited, f"no fold says {old!r}"
    for file in edited:
        file.write_text(file.read_text().replace(old, new))
    return copy.parent


def _run(package: Path, *args: str) -> Any:
    environment = {**os.environ, "PYTHONPATH": str(package), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [sys.executable, other_code.__file__, *args], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


async def _with_a_snapshot(ledger: Ledger) -> str:
    """A run with steps that are open, and a snapshot of them by today's code."""
    writer = await begin(ledger.scope())
    for number in range(3):
        writer.append(Draft(InferenceRequested(f"st_open_{number}", "m", "p")))
    await writer.barrier()
    add_step(writer, 9)
    batch = writer.take_batch()
    assert batch is not None
    taken = take_snapshot(writer.state, writer.head, fingerprint())
    (outcome,) = await ledger.store.commit([batch._replace(snapshot=taken)])
    writer.settle(outcome)
    add_step(writer, 10)
    await writer.close()
    return writer.stream.run_id


def test_case_29_other_folds_pass_old_snapshots_over_and_write_only_after_a_migration(tmp_path: Path) -> None:
    run_id = in_ledger(tmp_path, _with_a_snapshot)
    assert look(tmp_path, "SELECT seq, fingerprint FROM snapshots") == [(6, fingerprint())]
    package = _edited_copy(tmp_path, "node=named(facts.model, view.name)", 'node="other:" + facts.model')
    said = _run(package, str(tmp_path / LEDGER), run_id)

    assert said["fingerprint"] != fingerprint()
    before, after = said["before"], said["after"]
    # Reading is right before the migration already, since the snapshot is not used; the tables are still the old ones.
    assert before["events"] == 7
    assert before["loaded equals folded"]
    assert before["open nodes"] == ["other:m"] * 3
    assert before["nodes in the table"] == ["m", "m", "m", "score", "score"]
    assert before["writer"] == "schema_outdated"
    assert any("folded by other code" in each for each in said["heard"])
    assert said["refolded"] == 7
    assert after["loaded equals folded"]
    assert after["nodes in the table"] == ["other:m", "other:m", "other:m", "score", "score"]
    assert after["writer"] is None
    assert said["rebuilt equal"]


def test_case_29_a_process_that_still_runs_the_old_folds_is_refused_after_the_migration(tmp_path: Path) -> None:
    run_id = in_ledger(tmp_path, _with_a_snapshot)
    package = _edited_copy(tmp_path, "node=named(facts.model, view.name)", 'node="other:" + facts.model')

    async def work(ledger: Ledger) -> None:
        writer = await begin(ledger.scope())
        await writer.barrier()
        _run(package, str(tmp_path / LEDGER), run_id)
        add_step(writer, 3)
        with pytest.raises(SchemaOutdated):
            await writer.barrier()
        assert [event.seq async for event in ledger.scope().read(writer.stream)] == [1, 2], "nothing half-written"

    in_ledger(tmp_path, work)


@pytest.mark.parametrize(
    ("what", "changes"),
    [
        ("def requested(", True),
        ("# Runs are made of these", False),
    ],
    ids=["a line of code", "a comment"],
)
def test_case_29_the_fingerprint_follows_the_folds_and_nothing_else(tmp_path: Path, what: str, changes: bool) -> None:
    new = what.replace("requested", "asked_for") if changes else "# Other words"
    package = _edited_copy(tmp_path, what, new)
    code = "from refold.projections.fingerprint import fingerprint; print(fingerprint())"
    environment = {**os.environ, "PYTHONPATH": str(package), "PYTHONDONTWRITEBYTECODE": "1"}
    printed = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    ).stdout.strip()
    assert (printed != fingerprint()) == changes
