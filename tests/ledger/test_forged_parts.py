"""Edits of a conversation's parts by somebody who writes to the file and recomputes what no hash covers."""

from __future__ import annotations

import asyncio
from pathlib import Path

import apsw
import pytest

from refold.events.catalog import inference, run
from refold.events.content import PartChain, seal
from refold.ledger.drafts import Draft
from refold.ledger.ledger import open_ledger
from refold.ledger.proof import Proof, verify_all
from refold.ledger.writer import StreamWriter
from tests.ledger.building import open_simulated


@pytest.fixture(params=[0, 2000], ids=["short", "compressed"])
def conversation(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """A run of one request whose only blobs are its parts."""
    path = tmp_path / "ledger.db"

    async def build() -> None:
        async with await open_simulated(path) as ledger:
            writer = await ledger.scope().create(Draft(run.RunCreated("w", "d", "root")))
            assert isinstance(writer, StreamWriter)
            async with writer:
                chain = PartChain()
                for text in ("pay 10", "paid 10"):
                    part = await writer.part({"role": "user", "content": text})
                    chain.add(part.number, part.leaf)
                writer.append(
                    Draft(
                        inference.InferenceRequested(ledger.ids.new("st"), "m", "p"),
                        content={"messages": chain.as_list(), "tools": "t" * request.param},
                    )
                )

    asyncio.run(build())
    return path


def prove(path: Path) -> Proof:
    async def prove_it() -> Proof:
        async with await open_ledger(path, create=False) as ledger:
            return await verify_all(ledger)

    return asyncio.run(prove_it())


def test_an_untouched_conversation_verifies(conversation: Path) -> None:
    assert prove(conversation).ok


def test_a_forged_part_is_found_also_without_the_digests_by_which_parts_are_looked_up(conversation: Path) -> None:
    stored, digest = seal(b'{"role":"user","content":"pay 99"}', b"s" * 16)
    with apsw.Connection(str(conversation)) as connection:
        connection.execute("UPDATE blobs SET lookup = NULL")
        connection.execute("UPDATE blobs SET bytes = ?, digest = ? WHERE number = 1", (stored, digest))
    bad = prove(conversation).first_bad
    assert bad is not None
    assert bad.seq == 2


def test_parts_that_were_all_taken_away_are_missing(conversation: Path) -> None:
    with apsw.Connection(str(conversation)) as connection:
        connection.execute("DELETE FROM blobs")
    bad = prove(conversation).first_bad
    assert bad is not None
    assert bad.seq == 2
