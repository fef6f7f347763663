"""The thirteen results that other stores change on the way, and a workflow that meets one wherever a value can come
from. Run as a program, it brings one run for each of them to where it waits, and waits to be killed.
"""

from __future__ import annotations

import asyncio
import math
import sys
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

from refold import App, Run, Stream

AWKWARD: dict[str, Any] = {
    "five megabytes": "five megabytes " * 350_000,
    "unicode with NUL": "a\0b é 漢字 \N{BALLOON}\0",
    "a lone surrogate": "before \ud83d after",
    "NaN": math.nan,
    "infinity": -math.inf,
    "bytes": bytes(range(256)) * 40,
    "datetime": datetime(2026, 2, 28, 23, 59, 59, 999_999, timezone(timedelta(hours=5, minutes=45))),
    "Decimal": Decimal("1.10"),
    "2**70": 2**70,
    "integer keys": {1: "one", 2: {-3: "three"}},
    "tuple": (1, ("two",), [3, (4,)]),
    "set": {1, "two", (3, 4)},
    "minus zero": -0.0,
}

app = App("awkward")

seen: dict[str, list[tuple[str, Any]]] = {name: [] for name in AWKWARD}
"""What the code of each value's run got in this process: from where, and what came."""


@app.tool(effect="read")
def read(name: str) -> Any:
    return AWKWARD[name]


@app.tool(effect="unsafe")
async def act(name: str, given: Any) -> Any:
    assert same(given, AWKWARD[name])
    return AWKWARD[name]


def make(name: str, given: Any) -> Any:
    assert same(given, AWKWARD[name])
    return given


async def make_later(name: str) -> Any:
    return AWKWARD[name]


def fail(given: Any) -> Any:
    raise ValueError(given)


@app.workflow()
async def child(run: Run, value: Any) -> Any:
    return value


@app.workflow()
async def meet(run: Run, given: list[Any]) -> Any:
    """Gets the value from everywhere, waits for `go`, and returns it."""
    name, value = given
    if run.state is None:
        seen[name].append(("input", value))
        seen[name].append(("def step", await run.step(make, name, value)))
        seen[name].append(("async step", await run.step(make_later, name)))
        seen[name].append(("read tool", await read(name)))
        seen[name].append(("unsafe tool", await act(name, value)))
        seen[name].append(("child", await run.child(child, value)))
        seen[name].append(("signal", await run.signal("value")))
        try:
            await run.step(fail, value)
        except ValueError as error:
            seen[name].append(("exception", error.args[0]))
        await run.checkpoint((value,))
    seen[name].append(("checkpoint", run.state[0]))
    await run.signal("go")
    return value


PLACES = ("input", "def step", "async step", "read tool", "unsafe tool", "child", "signal", "exception", "checkpoint")


def same(one: Any, other: Any) -> bool:
    """Equal, of the same type, all the way down; NaN is NaN, and minus zero is not zero."""
    if type(one) is not type(other):
        return False
    if isinstance(one, float):
        return (math.isnan(one) and math.isnan(other)) or (
            one == other and math.copysign(1, one) == math.copysign(1, other)
        )
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict):
        return same(list(one.items()), list(other.items()))
    if isinstance(one, set):
        return one == other and {type(each) for each in one} == {type(each) for each in other}
    if isinstance(one, datetime):
        return one == other and one.utcoffset() == other.utcoffset() and one.astimezone(UTC) == other.astimezone(UTC)
    return bool(one == other)


async def begin(ledger: str, before_checkpoint: bool) -> None:
    """Brings a run for each value to where it waits: for the signal, or after the checkpoint."""
    async with app.open(ledger) as rf:
        for name, value in AWKWARD.items():
            run = await rf.start(meet, [name, value], key=name)
            last = "child.ended" if before_checkpoint else "run.checkpointed"
            if not before_checkpoint:
                await rf.signal(run.id, "value", value)
            async for event in rf.scope.follow(Stream.run(run.id)):
                if event.type == last:
                    break
        print("waiting", flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(begin(sys.argv[1], sys.argv[2] == "before"))
