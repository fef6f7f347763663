"""Parts of a batch whose commit is under way: not in the store yet, and no longer in the open batch."""

from __future__ import annotations

import asyncio
from pathlib import Path

from refold.ledger.conformance.place import new_run, step, verified
from refold.ledger.ledger import open_ledger
from refold.ledger.sqlite.lockfile import open_lock_file

MORE_THAN_ARE_REMEMBERED = 5000


def test_a_part_keeps_its_number_while_its_commit_waits_for_its_turn(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"

    async def live() -> None:
        async with await open_ledger(path) as ledger:
            scope = ledger.scope("acme/main")
            writer = await new_run(scope)
            first = await writer.part("first")
            writer.append(step(ledger))
            lock = open_lock_file(str(path))
            with lock.turn():
                commit = asyncio.create_task(writer.barrier())
                for _ in range(10):
                    await asyncio.sleep(0)
                assert not commit.done()
                for number in range(MORE_THAN_ARE_REMEMBERED):
                    await writer.part(number)
                again = await writer.part("first")
            lock.close()
            await commit
            assert again.number == first.number
            writer.append(step(ledger))
            await writer.close()
            await verified(scope, writer.stream)

    asyncio.run(live())
