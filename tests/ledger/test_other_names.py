"""A ledger's file under other names, and one that is moved or replaced while it is open."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from refold.events.catalog import run
from refold.ledger.artifacts import IN_LEDGER, store_artifact
from refold.ledger.drafts import Draft
from refold.ledger.errors import LedgerLinked, LedgerMoved
from refold.ledger.ledger import open_ledger
from refold.ledger.maintenance.erasure import erase_run
from refold.ledger.proof import verify_all
from refold.ledger.writer import StreamWriter

CREATED = Draft(run.RunCreated("w", "d", "root"))


async def run_with_a_file(path: Path) -> str:
    """A closed run with an artifact that is a file; the id of the run."""
    async with await open_ledger(path) as ledger:
        writer = await ledger.scope().create(CREATED)
        assert isinstance(writer, StreamWriter)
        async with writer:
            data = b"x" * (IN_LEDGER + 1)
            await store_artifact(
                writer, ledger.files, data, artifact_id="art_1", kind="output", type_="binary", mime="x/y"
            )
            writer.append(Draft(run.RunCanceled()))
        return str(writer.stream)


def test_a_symbolic_link_names_the_same_ledger_with_the_same_artifacts(tmp_path: Path) -> None:
    async def use() -> None:
        path, link = tmp_path / "l.db", tmp_path / "elsewhere" / "link.db"
        link.parent.mkdir()
        async with await open_ledger(path):
            pass
        link.symlink_to(path)
        run_id = await run_with_a_file(link)
        async with await open_ledger(path) as ledger:
            proof = await verify_all(ledger)
            assert proof.ok, proof.first_bad
            await erase_run(ledger.scope(), run_id, "on request", "ada")
        assert os.listdir(link.parent) == ["link.db"]
        assert not list(tmp_path.rglob("art_1*"))

    asyncio.run(use())


def test_a_file_with_two_names_is_refused(tmp_path: Path) -> None:
    async def use() -> None:
        path, other = tmp_path / "l.db", tmp_path / "other.db"
        await run_with_a_file(path)
        os.link(path, other)
        for each in (path, other):
            with pytest.raises(LedgerLinked):
                await open_ledger(each)
        other.unlink()
        async with await open_ledger(path) as ledger:
            assert (await verify_all(ledger)).ok

    asyncio.run(use())


@pytest.mark.parametrize("replaced", [False, True])
def test_nothing_is_acknowledged_once_the_file_is_no_longer_at_its_place(replaced: bool, tmp_path: Path) -> None:
    async def use() -> None:
        path, aside = tmp_path / "l.db", tmp_path / "aside.db"
        async with await open_ledger(path) as ledger:
            writer = await ledger.scope().create(CREATED)
            assert isinstance(writer, StreamWriter)
            path.rename(aside)
            if replaced:
                path.write_bytes(b"")
            writer.append(Draft(run.RunStarted()))
            with pytest.raises(LedgerMoved):
                await writer.barrier()
            path.unlink(missing_ok=True)
            aside.rename(path)
        async with await open_ledger(path, create=False) as again:
            proof = await verify_all(again)
            assert (proof.first_bad, proof.events) == (None, 1)

    asyncio.run(use())
