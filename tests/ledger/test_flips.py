"""One bit flipped anywhere in what is stored, tails cut, events swapped: verify names a bad place, every time."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import pytest

from refold.errors import RefoldError
from refold.events.identity import Scope
from refold.ledger.ledger import open_ledger
from refold.ledger.proof import Proof, verify_all
from refold.testing import damage
from tests.ledger.building import one_of_everything, open_simulated

TABLES = ["events", "stream_heads", "blobs"]
SEED = 20261129
FLIPS = 3600


@pytest.fixture(scope="module")
def ledger_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("flips") / "ledger.db"

    async def build() -> None:
        async with await open_simulated(path) as ledger:
            await one_of_everything(ledger.scope(), turns=5)
            await one_of_everything(ledger.scope("acme/lab"), turns=2)

    asyncio.run(build())
    return path


def prove(path: Path) -> Proof | RefoldError:
    """What a person who runs verify is told."""

    async def run() -> Proof:
        async with await open_ledger(path, create=False) as ledger:
            return await verify_all(ledger)

    try:
        return asyncio.run(run())
    except RefoldError as error:
        return error


def is_found(result: Proof | RefoldError) -> bool:
    return isinstance(result, RefoldError) or result.first_bad is not None


def test_an_intact_ledger_verifies(ledger_path: Path) -> None:
    proof = prove(ledger_path)
    assert isinstance(proof, Proof)
    assert proof.ok, proof.first_bad
    assert proof.streams == 4
    assert proof.redacted == 0


@pytest.mark.parametrize(
    ("count", "seed"),
    [(FLIPS, SEED), pytest.param(10 * FLIPS, SEED + 7, marks=pytest.mark.soak, id="long")],
)
def test_every_flip_in_events_heads_and_blobs_is_found(ledger_path: Path, count: int, seed: int) -> None:
    print(f"seed {seed}")
    whole = damage.logical_digest(ledger_path, TABLES)
    outcomes: Counter[str] = Counter()
    missed = []
    for flip in damage.flips(ledger_path, TABLES, count, seed):
        with flip.applied():
            found = is_found(prove(ledger_path))
            if not found and damage.logical_digest(ledger_path, TABLES) != whole:
                missed.append(flip)
        outcomes["found" if found else "slack"] += 1
    print(dict(outcomes))
    assert not missed
    assert outcomes["found"] >= count * 2000 // FLIPS
    assert not is_found(prove(ledger_path)), "the flips were taken back"


def test_every_flip_in_an_artifact_file_is_found(ledger_path: Path) -> None:
    files = [each for each in ledger_path.with_name("ledger.db-artifacts").rglob("art_*") if each.is_file()]
    assert len(files) == 2
    for flip in damage.file_flips(files, 60, SEED):
        with flip.applied():
            result = prove(ledger_path)
        assert isinstance(result, Proof)
        assert result.first_bad is not None
        assert "file of artifact" in result.first_bad.what


def test_the_first_bad_place_is_named(ledger_path: Path) -> None:
    flips = [flip for flip in damage.flips(ledger_path, ["events"], 400, SEED + 1) if "leaf" in flip.where]
    named = Counter[bool]()
    for flip in flips[:100]:
        with flip.applied():
            result = prove(ledger_path)
        if isinstance(result, Proof) and result.first_bad is not None:
            named[bool(result.first_bad.stream) and result.first_bad.seq > 0] += 1
    assert named[True] > 50
    assert Scope().tenant


def test_cut_tails_and_swapped_events_are_found(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"

    async def build() -> str:
        async with await open_simulated(path) as ledger:
            return await one_of_everything(ledger.scope(), turns=2)

    run_id = asyncio.run(build())
    import apsw

    connection = apsw.Connection(str(path))
    last = connection.execute("SELECT max(id) FROM events WHERE stream_no = 1").fetchall()[0][0]
    connection.execute("PRAGMA foreign_keys = OFF")
    connection.execute("BEGIN")
    connection.execute("DELETE FROM events WHERE id = ?", (last,))
    connection.execute("COMMIT")
    connection.close()
    result = prove(path)
    assert isinstance(result, Proof)
    assert result.first_bad is not None
    assert (result.first_bad.stream, result.first_bad.seq) == (run_id, last & 0xFFFFFFFF)


def test_two_swapped_events_are_found_at_the_first(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"

    async def build() -> str:
        async with await open_simulated(path) as ledger:
            return await one_of_everything(ledger.scope(), turns=2)

    run_id = asyncio.run(build())
    damage.swap_rows(path, "events", {"id": (1 << 32) + 5}, {"id": (1 << 32) + 6})
    result = prove(path)
    assert isinstance(result, Proof)
    assert result.first_bad is not None
    assert (result.first_bad.stream, result.first_bad.seq) == (run_id, 5)


def test_a_file_cut_short_is_found(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"

    async def build() -> None:
        async with await open_simulated(path) as ledger:
            await one_of_everything(ledger.scope())

    asyncio.run(build())
    for size in (1, 100, 8192, 20000):
        damage.cut_tail(path, size)
        assert is_found(prove(path))
