"""The invariants hold for a ledger with every event type, and each of them notices when it is broken."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import ModuleType

import apsw
import pytest

from refold.ledger.ledger import Ledger
from refold.ledger.maintenance.erasure import erase_run
from tests.invariants.checks import ALL, chains, check_all, folds, gapless, heads, independent
from tests.replay.support import doubtful, every_event, with_ledger


async def _fill(ledger: Ledger) -> None:
    scope = ledger.scope()
    await every_event(scope)
    await doubtful(scope)
    erased = await every_event(scope)
    await erase_run(scope, erased.run_id, "asked to", "ann")
    await every_event(ledger.scope("other/space"), finish=False)
    check_all(ledger.path)  # While its writers are open.


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("filled")
    with_ledger(folder, _fill)
    return folder


@pytest.fixture
def ledger(filled: Path, tmp_path: Path) -> Path:
    return shutil.copytree(filled, tmp_path / "copy") / "ledger.db"


def test_every_invariant_holds_for_a_ledger_with_every_event_type_and_an_erased_run(ledger: Path) -> None:
    check_all(ledger)


@pytest.mark.parametrize(
    ("invariant", "damage"),
    [
        (gapless, "DELETE FROM events WHERE seq = 7 AND id >> 32 = 1"),
        (gapless, "DELETE FROM stream_heads WHERE stream_no = 2"),
        (heads, "UPDATE stream_heads SET seq = seq - 1 WHERE stream_no = 1"),
        (heads, "UPDATE stream_heads SET closed = 0 WHERE stream_no = 1"),
        (chains, "UPDATE events SET actor = 'eve' WHERE seq = 5 AND id >> 32 = 1"),
        (chains, "UPDATE events SET content = CAST(content || x'00' AS BLOB) WHERE seq = 3 AND id >> 32 = 1"),
        (folds, "UPDATE run_steps SET node = 'other' WHERE type = 'retrieval'"),
        (folds, "UPDATE tool_intents SET revision = revision + 1"),
        (folds, "DELETE FROM audit WHERE seq = 2"),
        (independent, "UPDATE runs SET status = 'failed' WHERE status = 'succeeded'"),
        (independent, "UPDATE run_step_tool_calls SET status = 'in_doubt' WHERE status = 'refused'"),
        (independent, "UPDATE run_cost_entries SET amount = '0.000000000000000002' WHERE amount LIKE '0.00000%'"),
        (independent, "DELETE FROM run_cost_entries WHERE amount IS NULL"),
    ],
    ids=lambda value: value.__name__.rpartition(".")[2] if isinstance(value, ModuleType) else value[:40],
)
def test_a_broken_invariant_is_noticed(ledger: Path, invariant: ModuleType, damage: str) -> None:
    connection = apsw.Connection(str(ledger))
    connection.execute(damage)
    assert connection.changes() > 0
    connection.close()
    with pytest.raises(AssertionError):
        invariant.check(ledger)


def test_the_list_of_all_invariants_is_complete() -> None:
    folder = Path(__file__).parent / "checks"
    modules = {file.stem for file in folder.glob("*.py")} - {"__init__", "reading"}
    assert modules == {module.__name__.rpartition(".")[2] for module in ALL}
