"""An answer that the code did not get is known to be so before anybody else can look."""

from __future__ import annotations

import asyncio
from pathlib import Path

from refold import App, Happened, InferenceSkipping, Run, Stream
from refold.events.envelope import Event


async def test_an_answer_to_a_call_that_was_given_up_is_marked_in_the_step_that_records_it(tmp_path: Path) -> None:
    # An equal call that waits wakes at the commit: told a moment later, it would be sent.
    app, paid = App("t"), []

    @app.tool(effect="unsafe")
    async def pay(amount: int) -> str:
        paid.append(amount)
        raise ConnectionResetError

    @app.workflow()
    async def work(run: Run) -> str:
        paying = asyncio.create_task(pay(7))
        await run.signal("enough")
        paying.cancel()
        return await pay(7)

    async with app.open(str(tmp_path / "l.db")) as rf:
        run = await rf.start(work)
        async for event in rf.scope.follow(Stream.run(run.id)):
            if event.type == "tool.doubted":
                call = event.facts.tool_call_id
                break
        await rf.signal(run.id, "enough")
        running = rf.running(run.id)
        assert running is not None
        live = running.live
        assert live is not None
        hook, known = live.writer.appended, []
        assert hook is not None

        def after_append(event: Event) -> None:
            hook(event)
            if event.type == "tool.resolved":
                known.append(call in live._calls.gateway._twins._undelivered)

        live.writer.appended = after_append
        await rf.resolve(call, Happened("receipt"), basis="the bank's log", by="ada")
        assert await run.result() == "receipt"
        assert known == [True]
        assert paid == [7]
        assert (await rf.replay(run.id, InferenceSkipping())).equal
