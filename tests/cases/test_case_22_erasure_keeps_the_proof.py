"""Case 22: a person was anonymised on request, and from then on the hash chain counted as broken. Here the chain goes
over digests, so that erased content is `redacted`, by a proof that still notices everything else.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from refold.events.identity import Stream
from refold.ledger.ledger import Ledger
from refold.ledger.maintenance.erasure import erase_run
from refold.ledger.proof import verify_run
from tests.cases.support import LEDGER, edit, in_ledger, look, proven
from tests.invariants.checks import chains
from tests.ledger.maintenance_support import Markers, annex_facts, left_in_files, rebuilt_rows, rich_run, stored_rows

SEED = 22


@pytest.fixture
def erased(tmp_path: Path) -> tuple[Path, str, Markers]:
    """A ledger with a run that was erased on request and one of the same scope that was not."""
    mark = Markers(SEED)

    async def work(ledger: Ledger) -> str:
        scope = ledger.scope("a/b")
        run_id = await rich_run(scope, mark)
        await annex_facts(scope, run_id, mark)
        await rich_run(scope, Markers(SEED + 1))
        before = await verify_run(scope, run_id)
        hashes = await _hashes(ledger, run_id)
        assert before.ok
        assert before.redacted == 0
        await erase_run(scope, run_id, "asked for by user_1", "admin")
        assert (await _hashes(ledger, run_id))[: len(hashes)] == hashes, "the chain is what it was"
        return run_id

    return tmp_path, in_ledger(tmp_path, work), mark


async def _hashes(ledger: Ledger, run_id: str) -> list[bytes]:
    async with ledger.scope("a/b").reader() as reader:
        return [
            row.hash for stream in (Stream.run(run_id), Stream.annex(run_id)) for row in await reader.raw_events(stream)
        ]


def test_case_22_the_content_of_a_person_is_redacted_and_the_chain_is_not_broken(
    erased: tuple[Path, str, Markers],
) -> None:
    folder, run_id, mark = erased
    proof = proven(folder)
    assert proof.first_bad is None
    ((said,),) = look(
        folder,
        "SELECT count(*) FROM events "
        "WHERE stream_no IN (SELECT stream_no FROM stream_heads WHERE stream LIKE ? || '%') "
        "AND content_digest IS NOT NULL AND type <> 'content.erased'",
        run_id,
    )
    assert proof.redacted == said > 10
    assert left_in_files(folder / LEDGER, mark) == {}
    chains.check(folder / LEDGER)  # Recomputed by code of its own, from what is left in the file.
    assert rebuilt_rows(folder / LEDGER) == stored_rows(folder / LEDGER)


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE events SET actor = 'eve' WHERE id = (SELECT min(id) + 3 FROM events)",
        "UPDATE events SET content_digest = zeroblob(32) WHERE id = (SELECT min(id) FROM events)",
        "DELETE FROM events WHERE id = (SELECT min(id) + 4 FROM events)",
        "UPDATE events SET facts = CAST('{}' AS BLOB) WHERE id = (SELECT min(id) FROM events)",
        "UPDATE events SET recorded_at = recorded_at + 1 WHERE id = (SELECT min(id) + 2 FROM events)",
    ],
    ids=["another actor", "another digest", "an event less", "other facts", "another time"],
)
def test_case_22_damage_to_an_erased_run_is_still_broken_and_not_taken_for_redacted(
    erased: tuple[Path, str, Markers], damage: str
) -> None:
    folder, run_id, _ = erased
    assert edit(folder, damage) == 1
    proof = proven(folder)
    assert proof.first_bad is not None
    assert proof.first_bad.stream == run_id


def test_case_22_content_that_is_gone_without_an_erasure_is_broken(tmp_path: Path) -> None:
    run_id = in_ledger(tmp_path, lambda ledger: rich_run(ledger.scope(), Markers(SEED)))
    assert edit(tmp_path, "UPDATE events SET content = NULL WHERE seq = 3") == 1
    proof = proven(tmp_path)
    assert proof.first_bad is not None
    assert (proof.first_bad.stream, proof.first_bad.seq) == (run_id, 3)
    assert "missing" in proof.first_bad.what
