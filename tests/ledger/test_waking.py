"""Who waits for news of this process is woken by them, and not by the poll for those of others."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from refold.ledger.conformance.place import new_run, step
from refold.ledger.ledger import open_ledger
from refold.ledger.sqlite import store

_PATIENCE = 30


@pytest.mark.parametrize("news", ["a commit", "a post"])
def test_a_waiter_is_woken_at_once_by_its_own_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, news: str
) -> None:
    monkeypatch.setattr(store, "POLL", 3600)

    async def live() -> None:
        async with await open_ledger(tmp_path / "ledger.db") as ledger:
            scope = ledger.scope()
            async with await new_run(scope) as writer:
                waiting = [asyncio.ensure_future(ledger.store.changed()) for _ in range(3)]
                await asyncio.sleep(0)
                if news == "a post":
                    assert await scope.post(writer.stream.run_id, "k", "signal", b"1")
                else:
                    writer.append(step(ledger))
                    await writer.barrier()
                await asyncio.wait_for(asyncio.gather(*waiting), _PATIENCE)

    asyncio.run(live())


def test_a_waiter_that_is_cancelled_as_the_news_come_has_ended(tmp_path: Path) -> None:
    async def live() -> None:
        async with await open_ledger(tmp_path / "ledger.db") as ledger:
            waiting = asyncio.ensure_future(ledger.store.changed())
            for _ in range(3):
                await asyncio.sleep(0)
            assert isinstance(ledger.store, store.SqliteStore)
            ledger.store._tell()
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
            assert waiting.cancelled()

    asyncio.run(live())
