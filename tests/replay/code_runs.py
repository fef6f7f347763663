"""Runs of workflows in every state that a run can be in, and a process that replays them with nothing at hand.

`python -m tests.replay.code_runs FOLDER` forbids sockets, processes and writes of files once the ledger is open,
replays every run in kind 6 and in kind 7 at every seq, and prints the answers.
"""

from __future__ import annotations

import asyncio
import os
import sys
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec
import pytest

from refold import App, InferenceSkipping, ModelCall, Partial, Run, RunEnded, RunPaused, Scripted, Stream, SyncRun
from refold.replay.inference_skipping import replaying
from refold.runtime.opened import Refold

app = App("states", models={"main": Scripted([[ModelCall("c1", "add", {"a": 1, "b": 2})], "three"])})
called: list[str] = []
"""Whatever ran outside the code of a run."""


def double(number: int) -> int:
    called.append("double")
    return 2 * number


@app.tool(effect="read")
def add(a: int, b: int) -> int:
    called.append("add")
    return a + b


@app.tool(effect="unsafe")
def lose(amount: int) -> str:
    called.append("lose")
    raise ConnectionResetError


@app.workflow()
async def inner(run: Run, number: int) -> int | None:
    if number == 0:
        return None
    if number < 0:
        raise ValueError(f"{number} is too little")
    return await run.step(double, number)


@app.workflow()
async def succeeds(run: Run, number: int) -> list[object]:
    messages: list[dict[str, Any]] = [{"role": "user", "content": "1 + 2?"}]
    answer = await run.infer("main", messages=messages, tools=[add])
    results = await asyncio.gather(*(run.call(call) for call in answer.calls), run.step(double, number))
    first = await run.race(step=run.step(double, 1), late=run.sleep(hours=1))
    return [results, first.name, run.random().random(), str(run.uuid()), run.now().isoformat(), await run.env("HOME")]


@app.workflow()
async def streams(run: Run) -> list[str]:
    said = []
    async with run.stream("main", messages=[{"role": "user", "content": "again"}]) as stream:
        async for part in stream:
            said.append(part.text)
    return [*said, stream.completion.text]


@app.workflow()
async def has_children(run: Run) -> list[object]:
    found: list[object] = [await run.child(inner, 3), await run.child(inner, 0)]
    try:
        await run.child(inner, -1)
    except Exception as error:  # noqa: BLE001 - whatever a failed child raises
        found.append(type(error).__name__)
    return found


@app.workflow()
async def checkpoints(run: Run, upto: int) -> int:
    turn: int = run.state or 0
    await run.step(double, turn)
    if turn < upto:
        await run.checkpoint(turn + 1)
    return turn


@app.workflow()
def without_await(run: SyncRun, number: int) -> list[object]:
    run.sleep(0.001)
    return [run.step(double, number), run.uuid().version]


@app.workflow()
async def fails(run: Run) -> None:
    await run.step(double, 1)
    raise LookupError("nothing there")


@app.workflow()
async def waits(run: Run) -> str:
    await run.step(double, 1)
    word: str = await run.signal("go", str)
    return word


@app.workflow()
async def doubts(run: Run) -> list[object]:
    return [await run.step(double, 1), await lose(7)]


async def seen(rf: Refold, run_id: str, type_: str) -> None:
    async for event in rf.scope.follow(Stream.run(run_id)):
        if event.type == type_:
            return


async def make(place: str) -> dict[str, str]:
    """Makes the runs, and says which is which."""
    made = {}
    async with app.open(place) as rf:

        async def start(name: str, workflow: Any, value: Any = None, **options: Any) -> str:
            made[name] = (await rf.start(workflow, value, **options)).id
            return made[name]

        for name, workflow, value in (
            ("succeeded", succeeds, 4),
            ("streaming", streams, None),
            ("with children", has_children, None),
            ("checkpointed", checkpoints, 3),
            ("without await", without_await, 4),
        ):
            await (await rf.get(await start(name, workflow, value))).result()
        for name, workflow, options in (("failed", fails, {}), ("expired", waits, {"deadline": 0.01})):
            run_id = await start(name, workflow, **options)
            with pytest.raises(RunEnded, match=name):
                await (await rf.get(run_id)).result()
        run_id = await start("canceled", waits)
        await seen(rf, run_id, "step.completed")
        await rf.cancel(run_id, basis="no more")
        await seen(rf, run_id, "run.canceled")
        run_id = await start("paused", waits)
        await seen(rf, run_id, "step.completed")
        await rf.pause(run_id, basis="lunch")
        await seen(rf, run_id, "run.paused")
        run_id = await start("in doubt", doubts)
        with pytest.raises(RunPaused, match="in_doubt"):
            await (await rf.get(run_id)).result()
        await seen(rf, await start("waiting", waits), "step.completed")
    return made


FORBIDDEN = ("socket.", "subprocess.", "os.system", "os.fork", "os.exec", "os.posix_spawn", "os.spawn", "pty.")
CHANGING = ("os.remove", "os.rename", "os.mkdir", "os.rmdir", "os.truncate", "os.link", "os.symlink", "os.chmod")
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


class Guard:
    """Forbids what a replay has no use for, from `up` on."""

    def __init__(self) -> None:
        self.up = False
        self.broken: list[str] = []
        sys.addaudithook(self._hook)

    def _hook(self, event: str, args: tuple[Any, ...]) -> None:
        if not self.up:
            return
        writes = event == "open" and (bool(args[2] & _WRITING) if args[1] is None else set(args[1]) & set("wax+"))
        if writes or event.startswith((*FORBIDDEN, *CHANGING)):
            self.broken.append(event)
            raise PermissionError(f"{event} in a replay")


def digest_of(folder: Path) -> str:
    """Of every file of the ledger: SQLite writes where no audit hook sees it."""
    whole = sha256()
    for path in sorted(folder.rglob("*")):
        # The shared memory of the write-ahead log is an index, and holds the marks of who reads.
        if path.is_file() and not path.name.endswith("-shm"):
            whole.update(path.name.encode() + b"\0" + path.read_bytes())
    return whole.hexdigest()


async def replay_all(folder: Path, runs: dict[str, str]) -> dict[str, Any]:
    """The answers of kind 6, of kind 7 at every seq, and of one replay that is stepped from seq to seq."""
    guard = Guard()
    answers: dict[str, Any] = {}
    async with app.open(str(folder / "l.db"), recover=False) as rf:
        before = digest_of(folder)
        guard.up = True
        try:
            for name, run_id in runs.items():
                head = await rf.scope.run_head(run_id)
                whole = await rf.replay(run_id, InferenceSkipping())
                parts = [await rf.replay(run_id, Partial(seq)) for seq in range(1, head.seq + 1)]
                async with await replaying(rf.scope, app, run_id) as under_way:
                    steps = [await under_way.to(seq) for seq in range(1, head.seq + 1)]
                answers[name] = {"head": head, "whole": whole, "parts": parts, "steps": steps}
        finally:
            guard.up = False
        assert guard.broken == []
        assert called == []
        assert digest_of(folder) == before
    return answers


if __name__ == "__main__":
    place = Path(sys.argv[1])
    found = asyncio.run(replay_all(place, msgspec.json.decode((place / "runs").read_bytes())))
    sys.stdout.buffer.write(msgspec.json.encode(found))
