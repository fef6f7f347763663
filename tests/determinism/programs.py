"""Random workflows out of everything that asyncio and anyio offer to code that waits.

A program is a tree of lists, `[kind, own arguments..., children...]`, made from a seed and run by the workflow
`perform`. What its code is told goes into a trace, in the order in which it is told.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any

from refold import App, Run
from tests.determinism import constructs
from tests.determinism.world import parked, say

Node = list[Any]

app = App("programs")


async def answer(number: int) -> int:
    """A step that is answered when the world says so; some answers are failures."""
    await parked(number)
    return _value(number)


def at_once(number: int) -> int:
    return _value(number)


@app.tool(effect="read", timeout=1e6)
async def look(number: int) -> int:
    await parked(number)
    return _value(number)


@app.tool(effect="unsafe", timeout=1e6)
async def act(number: int) -> int:
    await parked(number)
    return number


def _value(number: int) -> int:
    if number % 7 == 0:
        raise ValueError(number)
    return number


@app.workflow()
async def part(run: Run, number: int) -> int:
    return int(await run.step(at_once, number))


@app.workflow()
async def perform(run: Run, segments: list[Node]) -> list[Any]:
    """Runs the segments of a program, with a checkpoint between each two."""
    done = [] if run.state is None else run.state
    node = segments[len(done)]
    try:
        done = [*done, await Program(run).do(node)]
    except Exception as error:  # noqa: BLE001 - how a program fails is what is compared
        done = [*done, shown(error)]
    if len(done) < len(segments):
        await run.checkpoint(done)
    return done


def shown(error: BaseException) -> Any:
    """An exception as a value. Those of a group in its order, which is the order in which they came."""
    if isinstance(error, BaseExceptionGroup):
        return ["group", *map(shown, error.exceptions)]
    return [type(error).__name__, str(error)]


class Program:
    """Runs the nodes of one tree."""

    def __init__(self, run: Run) -> None:
        self.run = run

    async def do(self, node: Node) -> Any:
        kind, *rest = node
        say("in", kind)
        try:
            value = await KINDS[kind](self, *rest)
        except BaseException as error:
            say("raised", kind, type(error).__name__)
            raise
        say("out", kind, value)
        return value

    async def tried(self, node: Node) -> Any:
        """The node's value, or its failure as a value."""
        try:
            return await self.do(node)
        except Exception as error:  # noqa: BLE001 - the failure is the value
            return shown(error)


# Leaves.


async def _step(program: Program, number: int) -> Any:
    return await program.run.step(answer, number)


async def _def_step(program: Program, number: int) -> Any:
    return await program.run.step(at_once, number)


async def _look(program: Program, number: int) -> Any:
    return await look(number)


async def _act(program: Program, number: int) -> Any:
    return await act(number)


async def _child(program: Program, number: int) -> Any:
    return await program.run.child(part, number)


async def _sleep(program: Program, milliseconds: int) -> Any:
    await asyncio.sleep(milliseconds / 1000)
    return asyncio.get_running_loop().time()


async def _once_round(program: Program) -> None:
    await asyncio.sleep(0)


async def _recorded(program: Program) -> Any:
    run = program.run
    return [run.now().isoformat(), run.random().random(), str(run.uuid()), await run.env("PATH") is not None]


async def _signal(program: Program, name: str) -> Any:
    return await program.run.signal(name)


LEAVES: dict[str, Callable[..., Awaitable[Any]]] = {
    "step": _step,
    "def step": _def_step,
    "read tool": _look,
    "unsafe tool": _act,
    "child": _child,
    "sleep": _sleep,
    "sleep(0)": _once_round,
    "recorded": _recorded,
    "signal": _signal,
}
_OFTEN = {"step": 8, "read tool": 4, "unsafe tool": 4, "sleep": 6, "def step": 3, "signal": 2}

KINDS: dict[str, Callable[..., Awaitable[Any]]] = {**LEAVES, **constructs.TREES}


class Grower:
    """Makes programs from a seed."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._numbers = 0

    def program(self) -> list[Node]:
        count = self._random.choice((1, 1, 1, 2, 3))
        return [self._tree(self._random.choice((2, 2, 3))) for _ in range(count)]

    def _tree(self, depth: int) -> Node:
        if depth == 0 or self._numbers > 30:
            return self._leaf()
        kind = self._random.choice(list(constructs.TREES))
        width = self._random.randint(2, 4)
        children = [self._tree(self._random.choice((0, depth - 1))) for _ in range(width)]
        return [kind, self._random.randint(1, 3000), *children]

    def _leaf(self) -> Node:
        names = list(LEAVES)
        (kind,) = self._random.choices(names, [_OFTEN.get(name, 1) for name in names])
        self._numbers += 1
        if kind == "sleep":
            return [kind, self._random.choice((1, 10, 10, 250, 1000, 3000))]
        if kind == "signal":
            return [kind, self._random.choice("ab")]
        return [kind] if kind in ("sleep(0)", "recorded") else [kind, self._numbers]


def kinds_of(node: Node) -> set[str]:
    """The kinds of a tree."""
    return {node[0]}.union(*(kinds_of(each) for each in node if isinstance(each, list)))
