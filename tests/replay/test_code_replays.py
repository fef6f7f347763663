"""Kinds 6 and 7: the workflow's own code against the record, with nothing to ask and nothing to write with."""

from __future__ import annotations

import asyncio
import gc
import os
import shutil
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import msgspec
import pytest

from refold import InferenceSkipping, Partial, Stream
from refold.gateway.gateway import Gateway
from refold.gateway.inference import Inference
from refold.ledger.errors import BeyondHead
from refold.ledger.ledger import Ledger, ScopedLedger
from refold.ledger.writer import StreamWriter
from refold.replay.inference_skipping import Recorded, replaying
from refold.runtime.app import App
from refold.runtime.frontier import Role, role_of
from refold.runtime.live import Live
from refold.runtime.loop import RunLoop
from refold.runtime.opened import Refold
from refold.runtime.running import Running
from refold.runtime.source import Source
from tests.replay.code_runs import app, called, replay_all
from tests.replay.conftest import Made

ENDS: dict[str, tuple[str, Any]] = {
    "streaming": ("succeeded", ["three", "three"]),
    "with children": ("succeeded", [6, None, "ChildFailed"]),
    "checkpointed": ("succeeded", 3),
    "without await": ("succeeded", [8, 4]),
    "failed": ("failed", "LookupError"),
    "expired": ("failed", "CancelledError"),
    "canceled": ("failed", "CancelledError"),
    "paused": ("running", ["signal"]),
    "in doubt": ("running", ["tool"]),
    "waiting": ("running", ["signal"]),
}


@pytest.fixture(scope="module")
def answers(made: Made) -> dict[str, Any]:
    return asyncio.run(replay_all(*made))


def in_a_process(folder: Path, hash_seed: str) -> bytes:
    """The answers, from a process of its own in which sets of strings have another order."""
    work = [sys.executable, "-m", "tests.replay.code_runs", str(folder)]
    ended = subprocess.run(work, env={**os.environ, "PYTHONHASHSEED": hash_seed}, capture_output=True, check=False)
    assert ended.returncode == 0, ended.stderr.decode()
    return ended.stdout


def test_two_replays_with_nothing_at_hand_give_the_same_bytes_and_write_nothing(made: Made) -> None:
    first, second = in_a_process(made[0], "1"), in_a_process(made[0], "2")
    assert first == second
    assert msgspec.json.decode(first).keys() == made[1].keys()


def test_every_state_of_a_run_is_reached_again_and_its_source_stays(made: Made, answers: dict[str, Any]) -> None:
    assert answers.keys() == made[1].keys()
    for each in answers.values():
        whole = each["whole"]
        assert whole.equal
        assert whole.head_before == whole.head_after == each["head"]
        assert whole.at_seq == each["head"].seq
    for name, (status, shows) in ENDS.items():
        state = answers[name]["whole"].state
        assert state["status"] == status
        if status == "running":
            assert [waits["kind"] for waits in state["waits_for"]] == shows
        else:
            assert state.get("output", state.get("error", {}).get("type")) == shows


def test_stopping_at_a_seq_and_stepping_to_it_are_the_same(answers: dict[str, Any]) -> None:
    for each in answers.values():
        assert each["steps"] == each["parts"]
        assert [part.at_seq for part in each["parts"]] == list(range(1, each["head"].seq + 1))
        assert each["parts"][-1] == each["whole"]
        assert all(part.equal for part in each["parts"])


def test_what_is_delivered_was_asked_for_a_seq_before_and_is_not_after(made: Made, answers: dict[str, Any]) -> None:
    async def events() -> dict[str, list[Any]]:
        async with app.open(str(made[0] / "l.db"), recover=False) as rf:
            return {name: [event async for event in rf.scope.read(Stream.run(run))] for name, run in made[1].items()}

    outcomes = 0
    for name, found in asyncio.run(events()).items():
        waits = [{each["site"] for each in part.state["waits_for"]} for part in answers[name]["parts"]]
        for event in found:
            role = role_of(event)
            if role in (Role.OUTCOME, Role.PROGRESS, Role.PART):
                assert event.site in waits[event.seq - 2]
                assert (event.site in waits[event.seq - 1]) is (role is not Role.OUTCOME)
                outcomes += role is Role.OUTCOME
            if role is Role.NONE and event.seq > 2:
                assert waits[event.seq - 1] == waits[event.seq - 2]
    assert outcomes > 20


def test_a_seq_that_the_run_does_not_have_is_refused(made: Made) -> None:
    async def ask(rf: Refold, seq: int) -> None:
        with pytest.raises(BeyondHead):
            await rf.replay(made[1]["failed"], Partial(seq))

    async def both() -> None:
        async with app.open(str(made[0] / "l.db"), recover=False) as rf:
            await ask(rf, 0)
            await ask(rf, 10_000)

    asyncio.run(both())


PERFORMS = (Gateway, Inference, StreamWriter, Live, Running, Refold)


def reachable(root: object) -> list[object]:
    """Whatever an object holds on to, directly or through others: but not the code of the App, whose functions are what
    is replayed, the ledger it is read from, and the loop of the host.
    """
    seen: dict[int, object] = {}
    left = [root]
    while left:
        found = left.pop()
        if id(found) in seen or isinstance(found, (types.ModuleType, types.FunctionType, type, App, Ledger)):
            continue
        if isinstance(found, asyncio.AbstractEventLoop) and not isinstance(found, RunLoop):
            continue
        seen[id(found)] = found
        left += gc.get_referents(found)
    return list(seen.values())


def test_a_replay_holds_nothing_that_performs(made: Made, tmp_path: Path) -> None:
    place = str(shutil.copytree(made[0], tmp_path / "copy") / "l.db")
    source: Source = Recorded(lambda: None)
    assert vars(source).keys() == {"divergences", "still", "_parting"}

    async def walk() -> None:
        async with app.open(place, recover=False) as rf:
            async with await replaying(rf.scope, app, made[1]["in doubt"]) as under_way:
                await under_way.to(5)
                held = reachable(under_way)
            assert any(isinstance(each, Recorded) for each in held)
            assert any(isinstance(each, ScopedLedger) for each in held)
            assert [each for each in held if isinstance(each, PERFORMS)] == []
            # The walk finds them where they are.
            await rf.resume(made[1]["waiting"])
            assert any(isinstance(each, Live) for each in reachable(rf.running(made[1]["waiting"])))

    asyncio.run(walk())


def test_code_that_asks_for_more_than_an_ended_run_did_is_told(made: Made) -> None:
    async def ask() -> Any:
        other = App("states")

        @other.workflow()
        async def fails(run: Any) -> None:
            from tests.replay.code_runs import double

            await run.step(double, 1)
            await run.step(double, 2)

        async with other.open(str(made[0] / "l.db"), recover=False) as rf:
            return await rf.replay(made[1]["failed"], InferenceSkipping())

    replayed = asyncio.run(ask())
    (divergence,) = replayed.divergences
    assert (divergence.kind, divergence.step) == ("extra", "0/double#2")
    assert called == []


def test_code_that_spins_has_failed_there_stepped_or_not(made: Made) -> None:
    other = App("states")

    @other.workflow()
    async def fails(run: Any) -> None:
        from tests.replay.code_runs import double

        await run.step(double, 1)
        while True:
            await asyncio.sleep(0)

    async def ask() -> None:
        async with other.open(str(made[0] / "l.db"), recover=False) as rf:
            run_id = made[1]["failed"]
            whole = await rf.replay(run_id, Partial(3))
            async with await replaying(rf.scope, other, run_id) as under_way:
                assert (await under_way.to(2)).equal
                stepped = await under_way.to(3)
            assert stepped == whole
            assert whole.state["error"]["type"] == "NeverQuiet"

    asyncio.run(ask())
