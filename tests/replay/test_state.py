"""The state of a run at any of its moments, folded from its events."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from refold.events.catalog.run import RunPaused, RunSucceeded
from refold.events.catalog.tool import Claim, ToolAnswered, ToolDispatched, ToolDoubted, ToolFailed, ToolResolved
from refold.ledger.errors import BeyondHead, RunNotFound
from refold.ledger.ledger import Ledger
from refold.ledger.maintenance.erasure import erase_run
from refold.replay.state import state_at, state_now
from tests.replay.support import begin, doubtful, every_event, with_ledger


def test_the_state_at_the_head_is_what_the_tables_hold(tmp_path: Path) -> None:
    async def work(ledger: Ledger) -> None:
        scope = ledger.scope("acme/prod")
        for teller in (await every_event(scope), await every_event(scope, finish=False), await doubtful(scope)):
            now = await state_now(scope, teller.run_id)
            assert await state_at(scope, teller.run_id, teller.writer.head.seq) == now
            assert now["head_hash"] == teller.writer.head.hash.hex()
            assert now["run"]
            assert now["tool_calls"]

    with_ledger(tmp_path, work)


def test_the_state_at_every_seq_is_what_the_tables_held_then(tmp_path: Path) -> None:
    async def work(ledger: Ledger) -> None:
        scope = ledger.scope()
        seen: dict[int, dict[str, Any]] = {}
        teller = await begin(scope)
        plain = teller.tell
        kept: list[tuple[Any, dict[str, Any]]] = []
        teller.tell = lambda facts, **more: kept.append((facts, more))  # type: ignore[method-assign]
        teller.inference()
        call = teller.dispatch("pay")
        teller.later(call, ToolDoubted, why="timeout")
        teller.later(call, ToolResolved, resolution="resend", by="person")
        teller.later(call, ToolDispatched)
        teller.answer(call)
        teller.later(teller.dispatch("mail"), ToolFailed, how="not_sent")
        kept.append((RunPaused(reason="waiting"), {}))
        kept.append((RunSucceeded(), {"output": "done"}))
        for facts, more in kept:
            plain(facts, **more)
            await teller.writer.barrier()
            now = await state_now(scope, teller.run_id)
            seen[now["head_seq"]] = now
        assert len(seen) == len(kept) > 10
        for seq, then in seen.items():
            assert await state_at(scope, teller.run_id, seq) == then, seq

    with_ledger(tmp_path, work)


def test_before_the_first_event_there_is_no_run(tmp_path: Path) -> None:
    async def work(ledger: Ledger) -> None:
        scope = ledger.scope()
        run_id = (await doubtful(scope)).run_id
        nothing = await state_at(scope, run_id, 0)
        assert (nothing["run"], nothing["steps"], nothing["head_seq"], nothing["head_hash"]) == (None, [], 0, "00" * 32)

    with_ledger(tmp_path, work)


@pytest.mark.parametrize("beyond", [10_000, -1])
def test_a_seq_that_the_run_has_not_reached_is_refused(tmp_path: Path, beyond: int) -> None:
    async def work(ledger: Ledger) -> None:
        scope = ledger.scope()
        teller = await doubtful(scope)
        with pytest.raises(BeyondHead, match=f"seq {teller.writer.head.seq} and has no seq {beyond}"):
            await state_at(scope, teller.run_id, beyond)
        with pytest.raises(RunNotFound):
            await state_at(ledger.scope("other/one"), teller.run_id, 1)

    with_ledger(tmp_path, work)


def test_an_intent_that_another_run_began_does_not_stand_in_the_way(tmp_path: Path) -> None:
    async def work(ledger: Ledger) -> None:
        scope = ledger.scope()
        first, second = await begin(scope), await begin(scope)
        call = first.dispatch("pay")
        first.later(call, ToolFailed, how="answered")
        await first.writer.barrier()
        intent = first.ids[call][2]
        await second.writer.adopt_intents(intent)
        again = Claim(step_id="st_2", tool="pay", key=intent, fingerprint="f", effect_domain="d", attempt=2)
        second.tell(ToolDispatched(intent_id=intent, tool_call_id="tc_2", revision=3, claim=again))
        second.tell(ToolAnswered(intent_id=intent, tool_call_id="tc_2", revision=4, result_bytes=1))
        await second.writer.barrier()
        now = await state_now(scope, second.run_id)
        assert now["tool_calls"][0]["status"] == "succeeded"
        assert await state_at(scope, second.run_id, now["head_seq"]) == now

    with_ledger(tmp_path, work)


def test_an_erased_run_still_has_all_its_states(tmp_path: Path) -> None:
    async def work(ledger: Ledger) -> None:
        scope = ledger.scope()
        teller = await every_event(scope)
        await erase_run(scope, teller.run_id, "asked to", "ann")
        for seq in range(1, teller.writer.head.seq + 1):
            state = await state_at(scope, teller.run_id, seq)
            assert state["head_seq"] == seq
        assert state == await state_now(scope, teller.run_id)
        assert state["run"]["status"] == "succeeded"
        assert state["run"]["input_summary"] is None
        assert {call["arguments_summary"] for call in state["tool_calls"]} == {None}

    with_ledger(tmp_path, work)
