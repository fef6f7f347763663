"""What a run waits for, and letting go of one that only somebody else can move."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, NamedTuple

from refold.runtime.operations import Operation
from refold.runtime.timers import TimerAsk

if TYPE_CHECKING:
    from refold.runtime.opened import Refold
    from refold.runtime.running import Running


class Wait(NamedTuple):
    """One thing that a run's code has asked for and does not have yet.

    `kind` is that of the operation (`signal`, `tool`, `timer`, `infer`, `step`, `child`), `name` the signal's, tool's,
    model's, step's or workflow's. `call` is the id of a tool call that is `in_doubt`, `child` that of a child run,
    `due_us` when a timer goes off (microseconds UTC).
    """

    kind: str
    name: str
    site: str
    in_doubt: bool = False
    call: str | None = None
    child: str | None = None
    due_us: int | None = None


def waits_of(running: Running) -> list[Wait]:
    """What a run in this process waits for, in the order in which its code asked."""
    live = running.live
    return [] if live is None else [_wait(each) for each in live.executor.asked.values()]


def _wait(operation: Operation) -> Wait:
    ask = operation.ask
    recorded: Any = operation.recorded[-1][0].facts if operation.recorded else None
    return Wait(
        ask.kind,
        getattr(ask, "waits_for", ask.name),
        operation.site,
        operation.in_doubt,
        recorded.tool_call_id if operation.in_doubt else None,
        getattr(recorded, "child_run_id", None),
        ask.due_us if isinstance(ask, TimerAsk) else None,
    )


def only_others_move(opened: Refold, running: Running) -> bool:
    """Whether nothing but a signal, a resolution or a person can move the run: all that it waits for are signals,
    doubts whose probes have answered, and children of which the same is true.
    """
    live = running.live
    if running.over or live is None:
        return running.abandoned
    if not live.executor.quiet or live.executor.main.done():
        return False
    if live.paused is not None:
        return live.stands()
    waits = waits_of(running)
    return bool(waits) and all(_others_move(opened, each) for each in waits)


def _others_move(opened: Refold, wait: Wait) -> bool:
    if wait.child is not None:
        child = opened.running(wait.child)
        return child is not None and only_others_move(opened, child)
    return wait.in_doubt or wait.kind == "signal"


async def let_go_when_waiting(opened: Refold, run_id: str) -> None:
    """Pauses a run, on record, as soon as only somebody else can move it; whoever awaits its result gets RunPaused.

    For a process that is there for one run. What is posted to the run by then is delivered first.
    """
    while True:
        running = opened.running(run_id)
        if running is not None and not running.over and only_others_move(opened, running):
            await opened.hand_over(running)
            if only_others_move(opened, running) and running.live is not None:
                await running.live.pause("waiting")
                return
        await opened.ledger.store.changed()


async def result_or_let_go(opened: Refold, run_id: str) -> Any:
    """A run's result, for a process that is there for this run alone. Raises what `RunHandle.result` raises."""
    letting_go = asyncio.ensure_future(let_go_when_waiting(opened, run_id))
    try:
        return await (await opened.get(run_id)).result()
    finally:
        letting_go.cancel()
        await asyncio.gather(letting_go, return_exceptions=True)
