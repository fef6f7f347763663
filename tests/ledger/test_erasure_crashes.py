"""An erasure that is killed anywhere: nothing happened, or it happened whole and is finished by whoever writes next."""

from __future__ import annotations

import asyncio
import shutil
from functools import partial
from pathlib import Path

import apsw
import pytest

from refold.events.identity import Stream
from refold.ledger.ledger import open_ledger
from refold.ledger.maintenance.erasure import erase_run
from refold.testing import crash, faults
from tests.ledger.maintenance_support import Markers, annex_facts, left_in_files, rebuilt_rows, rich_run, stored_rows
from tests.ledger.test_erasure import left_in_values, proven

SEED = 11


def a_ledger(under: Path, mark: Markers) -> str:
    async def write() -> str:
        async with await open_ledger(under / "l.db") as ledger:
            run_id = await rich_run(ledger.scope(), mark)
            await annex_facts(ledger.scope(), run_id, mark)
            return run_id

    under.mkdir()
    return asyncio.run(write())


def erase_a_copy(template: Path, run_id: str, directory: Path, ack: crash.Ack) -> None:
    async def erase() -> None:
        async with await open_ledger(directory / "l.db", vfs=faults.register()) as ledger:
            erasure = await erase_run(ledger.scope(), run_id, "basis", "admin")
            assert erasure.pending is None
            ack("erased")

    shutil.copytree(template, directory, dirs_exist_ok=True)
    asyncio.run(erase())


def whole_or_not_at_all(template: Path, run_id: str, mark: Markers, directory: Path, acks: list[str]) -> None:
    path = directory / "l.db"
    connection = apsw.Connection(str(path))
    (erased,) = connection.execute("SELECT erased FROM stream_heads WHERE stream = ?", (run_id,)).fetchall()[0]
    connection.close()
    if acks:
        assert erased == 2
        assert left_in_files(path, mark) == {}
    elif erased:
        assert left_in_values(path, mark) == []
    else:
        assert stored_rows(path) == stored_rows(template / "l.db")
    assert rebuilt_rows(path) == stored_rows(path)

    async def finish() -> None:
        async with await open_ledger(path) as ledger:
            if erased:
                await (await ledger.scope().writer(Stream.annex(run_id))).close()
            else:
                assert await proven(ledger.scope(), run_id) == 0
                await erase_run(ledger.scope(), run_id, "basis", "admin")
            assert await proven(ledger.scope(), run_id) > 0

    asyncio.run(finish())
    assert left_in_files(path, mark) == {}
    assert rebuilt_rows(path) == stored_rows(path)


# Nothing changes for others between two of these points; the long form strikes at each write as well.
@pytest.mark.parametrize(
    ("fault", "at"),
    [
        pytest.param(faults.kill, "artifact.unlink", id="killed at unlink"),
        pytest.param(faults.kill, "vfs.sync:*", id="killed at sync"),
        pytest.param(faults.kill, "vfs.truncate:*", id="killed at truncate"),
        pytest.param(faults.power_cut, "vfs.sync:*", id="power cut at sync"),
        pytest.param(faults.kill, "*", id="killed anywhere", marks=pytest.mark.soak),
        pytest.param(faults.power_cut, "*", id="power cut anywhere", marks=pytest.mark.soak),
    ],
)
def test_an_erasure_that_ends_anywhere_is_whole_or_not_at_all(tmp_path: Path, fault: faults.Fault, at: str) -> None:
    mark = Markers(SEED)
    template = tmp_path / "template"
    run_id = a_ledger(template, mark)
    report = crash.fault_at_each(
        partial(erase_a_copy, template, run_id),
        partial(whole_or_not_at_all, template, run_id, mark),
        fault,
        under=tmp_path / "runs",
        at=at,
    )
    assert report.struck
