"""Each way to wait for several things, as one small function: `tree(program, milliseconds, *children)`.

All of them end whatever their children do, and their value depends on the order in which those were told.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

import anyio

from tests.determinism.world import say

if TYPE_CHECKING:
    from tests.determinism.programs import Node, Program

Tree = Callable[..., Awaitable[Any]]

TREES: dict[str, Tree] = {}

_variable: ContextVar[tuple[int, ...] | list[int]] = ContextVar("variable", default=())


def tree(name: str) -> Callable[[Tree], Tree]:
    def add(function: Tree) -> Tree:
        TREES[name] = function
        return function

    return add


@tree("sequence")
async def _sequence(program: Program, ms: int, *nodes: Node) -> Any:
    return [await program.tried(each) for each in nodes]


@tree("gather")
async def _gather(program: Program, ms: int, *nodes: Node) -> Any:
    return await asyncio.gather(*map(program.do, nodes))


@tree("gather, exceptions returned")
async def _gather_all(program: Program, ms: int, *nodes: Node) -> Any:
    found = await asyncio.gather(*map(program.do, nodes), return_exceptions=True)
    return [type(each).__name__ if isinstance(each, BaseException) else each for each in found]


@tree("TaskGroup")
async def _group(program: Program, ms: int, *nodes: Node) -> Any:
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(program.do(each)) for each in nodes]
    return [each.result() for each in tasks]


@tree("as_completed, coroutines")
async def _completed(program: Program, ms: int, *nodes: Node) -> Any:
    return [await each for each in asyncio.as_completed([program.tried(each) for each in nodes])]


@tree("as_completed, tasks, timeout")
async def _completed_tasks(program: Program, ms: int, *nodes: Node) -> Any:
    tasks = [asyncio.create_task(program.tried(each)) for each in nodes]
    done = []
    try:
        for each in asyncio.as_completed(tasks, timeout=ms / 1000):
            done.append(await each)
    except TimeoutError:
        done.append("late")
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return done


@tree("wait FIRST_COMPLETED")
async def _one_by_one(program: Program, ms: int, *nodes: Node) -> Any:
    left = {asyncio.create_task(program.tried(each)) for each in nodes}
    order = []
    while left:
        done, left = await asyncio.wait(left, return_when=asyncio.FIRST_COMPLETED)
        order.append([each.result() for each in done])
    return order


@tree("wait ALL_COMPLETED")
async def _wait_all(program: Program, ms: int, *nodes: Node) -> Any:
    done, late = await asyncio.wait([asyncio.create_task(program.tried(each)) for each in nodes], timeout=ms / 1000)
    for each in late:
        each.cancel()
    return [[each.result() for each in done], len(late)]


@tree("wait FIRST_EXCEPTION")
async def _first_exception(program: Program, ms: int, *nodes: Node) -> Any:
    tasks = [asyncio.create_task(program.do(each)) for each in nodes]
    done, late = await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
    for each in late:
        each.cancel()
    return [type(each.exception()).__name__ for each in done]


@tree("plain race")
async def _plain_race(program: Program, ms: int, *nodes: Node) -> Any:
    tasks = [asyncio.create_task(program.tried(each)) for each in nodes]
    done, late = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for each in late:
        each.cancel()
    return [each.result() for each in tasks if each in done]


@tree("run.race")
async def _race(program: Program, ms: int, *nodes: Node) -> Any:
    return list(await program.run.race(**{f"n{at}": program.do(each) for at, each in enumerate(nodes)}))


@tree("Queue")
async def _queue(program: Program, ms: int, *nodes: Node) -> Any:
    todo: asyncio.Queue[Node | None] = asyncio.Queue(2)
    done: asyncio.Queue[Any] = asyncio.PriorityQueue() if ms % 2 else asyncio.LifoQueue()

    async def worker(name: int) -> None:
        while (node := await todo.get()) is not None:
            await done.put((name, str(await program.tried(node))))

    workers = [asyncio.create_task(worker(each)) for each in range(2)]
    for node in (*nodes, None, None):
        await todo.put(node)
    await asyncio.gather(*workers)
    return [done.get_nowait() for _ in nodes]


@tree("Lock")
async def _lock(program: Program, ms: int, *nodes: Node) -> Any:
    lock, order = asyncio.Lock(), []

    async def alone(node: Node) -> None:
        await asyncio.sleep(0)
        async with lock:
            order.append(await program.tried(node))

    await asyncio.gather(*map(alone, nodes))
    return order


@tree("Semaphore")
async def _semaphore(program: Program, ms: int, *nodes: Node) -> Any:
    two, order = asyncio.BoundedSemaphore(2), []

    async def among_two(node: Node) -> None:
        async with two:
            order.append(await program.tried(node))

    await asyncio.gather(*map(among_two, nodes))
    return order


@tree("Event")
async def _event(program: Program, ms: int, first: Node, *nodes: Node) -> Any:
    event, order = asyncio.Event(), []

    async def after(node: Node) -> None:
        await event.wait()
        order.append(await program.tried(node))

    async def before() -> None:
        try:
            order.append(await program.tried(first))
        finally:
            event.set()

    await asyncio.gather(before(), *map(after, nodes))
    return order


@tree("Condition")
async def _condition(program: Program, ms: int, *nodes: Node) -> Any:
    changed, done = asyncio.Condition(), []

    async def make(node: Node) -> None:
        value = await program.tried(node)
        async with changed:
            done.append(value)
            changed.notify_all()

    async def watch(enough: int) -> list[Any]:
        async with changed:
            await changed.wait_for(lambda: len(done) >= enough)
            return list(done)

    watchers = [asyncio.create_task(watch(each)) for each in (1, len(nodes))]
    await asyncio.gather(*map(make, nodes))
    return await asyncio.gather(*watchers)


@tree("Barrier")
async def _barrier(program: Program, ms: int, *nodes: Node) -> Any:
    barrier = asyncio.Barrier(len(nodes))

    async def meet(node: Node) -> Any:
        value = await program.tried(node)
        return [await barrier.wait(), value]

    return await asyncio.gather(*map(meet, nodes))


@tree("timeout")
async def _timeout(program: Program, ms: int, *nodes: Node) -> Any:
    done = []
    try:
        async with asyncio.timeout(ms / 1000):
            for each in nodes:
                done.append(await program.tried(each))
    except TimeoutError:
        done.append("late")
    return done


@tree("timeout_at, moved")
async def _timeout_at(program: Program, ms: int, *nodes: Node) -> Any:
    now = asyncio.get_running_loop().time
    done = []
    try:
        async with asyncio.timeout_at(now() + ms / 1000) as limit:
            for each in nodes:
                done.append(await program.tried(each))
                limit.reschedule(now() + ms / 2000)
    except TimeoutError:
        done.append("late")
    return done


@tree("wait_for")
async def _wait_for(program: Program, ms: int, *nodes: Node) -> Any:
    done = []
    for each in nodes:
        try:
            done.append(await asyncio.wait_for(program.tried(each), ms / 1000))
        except TimeoutError:
            done.append("late")
    return done


@tree("call_later")
async def _later(program: Program, ms: int, *nodes: Node) -> Any:
    loop = asyncio.get_running_loop()
    rung, order = loop.create_future(), []

    def ring() -> None:
        say("rings")
        order.append("ring")
        if not rung.done():
            rung.set_result(None)

    handles = [loop.call_later(ms / 1000, ring), loop.call_at(loop.time() + ms / 500, ring)]
    order.append(await program.tried(nodes[0]))
    handles[ms % 2].cancel()
    await rung
    order.extend(await asyncio.gather(*map(program.tried, nodes[1:])))
    return order


@tree("shield")
async def _shield(program: Program, ms: int, first: Node, *nodes: Node) -> Any:
    inner = asyncio.create_task(program.tried(first))
    try:
        async with asyncio.timeout(ms / 1000):
            got = await asyncio.shield(inner)
    except TimeoutError:
        got = "late"
    return [got, *[await program.tried(each) for each in nodes], await inner]


@tree("generator, finished")
async def _generator(program: Program, ms: int, *nodes: Node) -> Any:
    async def values() -> AsyncIterator[Any]:
        try:
            for each in nodes:
                yield await program.tried(each)
        finally:
            say("generator closed")

    return [each async for each in values()]


@tree("generator, abandoned")
async def _abandoned(program: Program, ms: int, *nodes: Node) -> Any:
    async def values() -> AsyncIterator[Any]:
        try:
            for each in nodes:
                yield await program.tried(each)
        finally:
            say("generator closed late")
            say("and said so", await program.tried(["def step", ms]))

    first = None
    async for each in values():
        first = each
        break
    return first


@tree("contextvars")
async def _context(program: Program, ms: int, *nodes: Node) -> Any:
    token = _variable.set([*_variable.get(), ms])

    async def inner(at: int, node: Node) -> Any:
        _variable.set([*_variable.get(), at])
        return [await program.tried(node), _variable.get()]

    found = await asyncio.gather(*[inner(*each) for each in enumerate(nodes)])
    _variable.reset(token)
    return [found, _variable.get()]


@tree("run.scope")
async def _scope(program: Program, ms: int, *nodes: Node) -> Any:
    async def named(at: int, node: Node) -> Any:
        async with program.run.scope(f"part {at % 2}"):
            return await program.tried(node)

    return await asyncio.gather(*[named(*each) for each in enumerate(nodes)])


@tree("anyio task group")
async def _anyio_group(program: Program, ms: int, *nodes: Node) -> Any:
    order = []

    async def into(node: Node, *, task_status: Any = anyio.TASK_STATUS_IGNORED) -> None:
        task_status.started(len(order))
        order.append(await program.tried(node))

    async with anyio.create_task_group() as group:
        order.append(await group.start(into, nodes[0]))
        for each in nodes[1:]:
            group.start_soon(into, each)
    return order


@tree("anyio group, failing")
async def _anyio_failing(program: Program, ms: int, *nodes: Node) -> Any:
    async with anyio.create_task_group() as group:
        for each in nodes:
            group.start_soon(program.do, each)


@tree("anyio cancel scope")
async def _anyio_scope(program: Program, ms: int, first: Node, *nodes: Node) -> Any:
    done = []
    with anyio.move_on_after(ms / 1000) as scope:
        for each in nodes:
            done.append(await program.tried(each))
    with anyio.CancelScope(shield=True):
        done.append(await program.tried(first))
    return [done, scope.cancelled_caught]


@tree("anyio cancelled group")
async def _anyio_cancelled(program: Program, ms: int, first: Node, *nodes: Node) -> Any:
    done = []
    async with anyio.create_task_group() as group:
        for each in nodes:
            group.start_soon(program.tried, each)
        done.append(await program.tried(first))
        group.cancel_scope.cancel()
    return done


@tree("anyio event and stream")
async def _anyio_stream(program: Program, ms: int, first: Node, *nodes: Node) -> Any:
    ready = anyio.Event()
    send, receive = anyio.create_memory_object_stream[Any](1)
    got = []

    async def produce() -> None:
        async with send:
            await ready.wait()
            for each in nodes:
                await send.send(await program.tried(each))

    with send, receive:
        async with anyio.create_task_group() as group:
            group.start_soon(produce)
            got.append(await program.tried(first))
            ready.set()
            async for each in receive:
                got.append(each)
    return got
