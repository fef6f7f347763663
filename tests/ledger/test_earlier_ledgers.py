"""Ledgers that earlier releases wrote: kept as the statements that make them, and never edited."""

from __future__ import annotations

import asyncio
from pathlib import Path

import apsw
import pytest

from refold.events.catalog.tool import ToolAnswered
from refold.events.identity import Stream
from refold.ledger.drafts import Draft
from refold.ledger.errors import SchemaOutdated
from refold.ledger.ledger import open_ledger
from refold.ledger.maintenance.migration import migrate
from refold.ledger.proof import verify_all
from refold.projections.rows import IntentRow
from tests.invariants.checks import check_all
from tests.ledger.maintenance_support import rebuilt_rows, stored_rows

LEDGERS = sorted((Path(__file__).parent / "ledgers").glob("*.sql"))
OPEN = "run_01HF7YAT000000000MV3SX9SRH"


def written_by(release: Path, path: Path) -> None:
    connection = apsw.Connection(str(path))
    connection.execute("PRAGMA page_size = 8192")
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute(release.read_text(encoding="utf-8"))
    connection.close()


@pytest.mark.parametrize("release", LEDGERS, ids=lambda release: release.stem)
def test_a_ledger_of_an_earlier_release_is_migrated_and_goes_on(release: Path, tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    written_by(release, path)

    async def outdated() -> None:
        async with await open_ledger(path) as ledger:
            assert (await verify_all(ledger)).first_bad is None
            with pytest.raises(SchemaOutdated):
                await ledger.scope("acme/main").writer(Stream.run(OPEN))

    async def go_on() -> None:
        async with await open_ledger(path) as ledger:
            scope = ledger.scope("acme/main")
            assert [row.run_id for row in await scope.unowned_runs()] == [OPEN]
            async with scope.reader() as reader:
                (intent,) = await reader.rows(IntentRow, {"effect_domain": "domain", "fingerprint": "ab" * 16})
            async with await scope.writer(Stream.run(OPEN)) as writer:
                assert writer.intent(intent.intent_id) == intent
                writer.append(
                    Draft(
                        ToolAnswered(intent_id=intent.intent_id, tool_call_id="tc_7", revision=2, result_bytes=1),
                        content={"result": 1},
                        output=1,
                    )
                )
            assert (await verify_all(ledger)).first_bad is None

    asyncio.run(outdated())
    assert asyncio.run(migrate(path)).refolded > 0
    assert stored_rows(path) == rebuilt_rows(path)
    asyncio.run(go_on())
    check_all(path)
