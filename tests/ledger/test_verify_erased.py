"""What was erased on request is redacted; what somebody else took out is missing, before and after an erasure."""

from __future__ import annotations

import asyncio
from pathlib import Path

import apsw
import pytest

from refold.events.catalog import governance
from refold.events.content import seal
from refold.events.identity import Stream
from refold.ledger.drafts import Draft
from refold.ledger.ledger import open_ledger
from refold.ledger.maintenance.erasure import erase_run
from refold.ledger.proof import Proof, verify_all
from refold.ledger.sqlite import heads
from tests.ledger.building import one_of_everything, open_simulated


@pytest.fixture
def erased(tmp_path: Path) -> tuple[Path, str]:
    """A ledger with an erased run, whose annex got one more remark afterwards."""
    path = tmp_path / "ledger.db"

    async def build() -> str:
        async with await open_simulated(path) as ledger:
            scope = ledger.scope()
            run_id = await one_of_everything(scope, turns=2)
            await erase_run(scope, run_id, "on request", "ada")
            async with await scope.writer(Stream.annex(run_id)) as annex:
                facts = governance.FeedbackAdded("fb_later", "person")
                annex.append(Draft(facts, content={"comment": "later"}, input="later"))
            return run_id

    return path, asyncio.run(build())


def prove(path: Path) -> Proof:
    async def run() -> Proof:
        async with await open_ledger(path, create=False) as ledger:
            return await verify_all(ledger)

    return asyncio.run(run())


def test_erased_content_is_redacted_and_the_proof_holds(erased: tuple[Path, str]) -> None:
    proof = prove(erased[0])
    assert proof.ok, proof.first_bad
    assert proof.redacted > 10


@pytest.mark.parametrize("column", ["content", "view"])
def test_what_is_taken_out_of_an_annex_after_an_erasure_is_missing(erased: tuple[Path, str], column: str) -> None:
    path, run_id = erased
    with apsw.Connection(str(path)) as connection:
        connection.execute(f"UPDATE events SET {column} = NULL WHERE type = 'feedback.added' AND {column} IS NOT NULL")
    proof = prove(path)
    assert proof.first_bad is not None
    assert (proof.first_bad.stream, proof.first_bad.seq) == (f"{run_id}/annex", 3)


def forge_erased(connection: apsw.Connection, run_id: str, erased: int) -> None:
    """Sets the mark in a run's head as somebody does who knows how its digest is made."""
    (row,) = connection.execute(f"SELECT {heads.COLUMNS} FROM stream_heads WHERE stream = ?", (run_id,))
    forged = heads.HeadRow(*row)._replace(erased=erased).sealed()
    connection.execute(
        "UPDATE stream_heads SET erased = ?, row_digest = ? WHERE stream = ?", (erased, forged.row_digest, run_id)
    )


@pytest.fixture
def spoken(tmp_path: Path) -> tuple[Path, str]:
    """A ledger with a run that nobody erased."""
    path = tmp_path / "ledger.db"

    async def build() -> str:
        async with await open_simulated(path) as ledger:
            return await one_of_everything(ledger.scope(), turns=2)

    return path, asyncio.run(build())


@pytest.mark.parametrize(
    "taken",
    [
        "UPDATE events SET content = NULL WHERE type = 'tool.answered'",
        "UPDATE events SET content = NULL, view = NULL WHERE id >> 32 = 1",
    ],
)
def test_content_that_was_taken_out_does_not_pass_for_erased(spoken: tuple[Path, str], taken: str) -> None:
    path, run_id = spoken
    with apsw.Connection(str(path)) as connection:
        connection.execute(taken)
        connection.execute("DELETE FROM blobs WHERE id >> 32 = 1")
        forge_erased(connection, run_id, 2)
    bad = prove(path).first_bad
    assert bad is not None
    assert bad.stream == run_id


def test_an_erased_run_says_nothing(erased: tuple[Path, str]) -> None:
    path, run_id = erased
    stored, digest = seal(b"{}", b"s" * 16)
    with apsw.Connection(str(path)) as connection:
        connection.execute(
            "UPDATE events SET content = ?, content_digest = ? WHERE id >> 32 = 1 AND seq = 5", (stored, digest)
        )
    bad = prove(path).first_bad
    assert bad is not None
    assert (bad.stream, bad.seq) == (run_id, 5)
