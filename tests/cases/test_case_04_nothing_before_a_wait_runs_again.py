"""Case 4: on resume the step ran again from its top, and the mail before the wait was sent twice. Here what was
recorded before a wait is not repeated after it.
"""

from __future__ import annotations

from pathlib import Path

from tests.cases.dying import KEY, run_and_die, shop
from tests.runtime.paying import receipts
from tests.world.world import World


async def test_case_04_the_mail_before_the_wait_is_sent_once(world: World, tmp_path: Path) -> None:
    account = world.account(forgetful=True)
    for _ in range(2):
        run_and_die(tmp_path, account.url, "mails_and_waits", "while it waits")
    async with shop(account.url).open(str(tmp_path / "ledger.db")) as rf:
        run = await rf.start("mails_and_waits", key=KEY)
        await rf.signal(run.id, "answer", "yes")
        assert await run.result() == [*receipts(account), "yes"]
    assert len(account.charges()) == 1
