"""`refold.testing.run`: a workflow with scripted answers and a real journal, in which nobody waits for time."""

from __future__ import annotations

import asyncio
import copy
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from refold.clock import SystemClock
from refold.errors import RefoldError
from refold.events.envelope import Event
from refold.events.identity import Stream
from refold.gateway.errors import ToolFailed
from refold.gateway.models import Provider
from refold.gateway.providers.scripted import Scripted
from refold.gateway.tools import Tool
from refold.replay.inference_skipping import CodeReplay, InferenceSkipping
from refold.runtime.app import App
from refold.runtime.errors import RunEnded, RunPaused
from refold.runtime.handle import RunHandle
from refold.runtime.live import Live
from refold.runtime.opened import Refold
from refold.runtime.operations import Operation
from refold.runtime.performers import Timers
from refold.runtime.workflow import Workflow

START = datetime(2026, 1, 1, tzinfo=UTC)
"""When a tested run starts, if nothing else is said."""
_LOOK = 0.1
"""Seconds after which the runs are looked at again though none of them said that it waits."""

Model = Provider | Iterable[Any] | Callable[..., Any]
"""A provider, or what `Scripted` takes: a list of answers, or a function of the request."""
Stub = Callable[..., Any] | Sequence[Any]
"""A function that stands in for a tool's, or a list of what it answers; an exception in it is raised."""


class NotScripted(ToolFailed):
    """A tested workflow called a tool that the test gave no answer for. Nothing was called."""

    code = "not_scripted"
    exit_status = 2
    remedy = "Give it one: `run(app, workflow, tools={name: [answer]})`, or `tools={name: function}`."


class NotReplayable(RefoldError):
    """A tested run ended, and its own replay went another way: the workflow's code is not deterministic.

    Facts: `run_id`, `divergences`.
    """

    code = "not_replayable"
    exit_status = 5
    remedy = "What the code reads besides its operations (clocks, globals, files) must come through a step."


class Ran(NamedTuple):
    """A tested run. `events` are those of its stream, `replayed` its replay of kind 6, which was equal."""

    run_id: str
    value: Any
    error: RunEnded | RunPaused | None
    events: list[Event]
    replayed: CodeReplay

    @property
    def result(self) -> Any:
        """What the workflow returned. Raises RunEnded, RunPaused."""
        if self.error is not None:
            raise self.error
        return self.value


class SkippingClock(SystemClock):
    """The machine's clock, set to another time, which can be put forward."""

    def __init__(self, at: datetime) -> None:
        self._ahead = int(at.timestamp() * 1_000_000) - super().now()

    def now(self) -> int:
        return super().now() + self._ahead

    def skip_to(self, us: int) -> None:
        """Puts the clock forward to a time; never back."""
        self._ahead += max(0, us - self.now())


async def run(
    app: App,
    workflow: Workflow | str,
    input: Any = None,
    *,
    models: Mapping[str, Model] | None = None,
    tools: Mapping[str, Stub] | None = None,
    signals: Sequence[tuple[str, Any]] = (),
    at: datetime = START,
) -> Ran:
    """Runs a workflow on a ledger of its own, replays it, and returns both.

    Models and tools are scripted by name; a tool keeps its contract, and nothing that is not scripted is asked. When
    the run waits for a signal that `signals` holds, it is sent; else the clock is put forward to the next timer.
    Raises NotReplayable, NotScripted, NotRegistered.
    """
    missed: list[NotScripted] = []
    scripted = _scripted(app, models or {}, tools or {}, missed)
    clock = SkippingClock(at)
    with tempfile.TemporaryDirectory(prefix="refold-test-") as folder:
        async with scripted.open(str(Path(folder) / "ledger.db"), clock=clock) as rf:
            mover = _Mover(rf, clock, list(signals))
            started = await rf.start(workflow, input)
            value, error = await mover.finish(started)
            if missed:
                raise missed[0]
            events = [event async for event in rf.scope.read(Stream.run(started.id))]
            replayed = await rf.replay(started.id, InferenceSkipping())
    if not replayed.equal:
        first = replayed.divergences[0].sentence()
        why = f"Run {started.id} and its replay differ: {first}."
        raise NotReplayable(why, run_id=started.id, divergences=replayed.divergences)
    return Ran(started.id, value, error, events, replayed)


def _scripted(app: App, models: Mapping[str, Model], tools: Mapping[str, Stub], missed: list[NotScripted]) -> App:
    """The App with other models, and other functions behind its tools."""
    made = copy.copy(app)
    made.models = {name: Scripted(()) for name in app.models}
    made.models |= {name: _provider(each) for name, each in models.items()}
    made.tools = {name: _standing_in(tool, (), missed) for name, tool in app.tools.items()}
    made.tools |= {name: _standing_in(app.find_tool(name), stub, missed) for name, stub in tools.items()}
    return made


def _provider(model: Any) -> Provider:
    if hasattr(model, "complete") and hasattr(model, "stream"):
        provider: Provider = model
        return provider
    return Scripted(model)


def _standing_in(tool: Tool[Any, Any], stub: Stub, missed: list[NotScripted]) -> Tool[Any, Any]:
    made = copy.copy(tool)
    made.function = stub if callable(stub) else _answering(tool.name, stub, missed)
    made.is_async = asyncio.iscoroutinefunction(made.function)
    return made


def _answering(name: str, answers: Sequence[Any], missed: list[NotScripted]) -> Callable[..., Any]:
    left = iter(answers)

    async def answer(*_arguments: Any, **_more: Any) -> Any:
        for each in left:
            if isinstance(each, BaseException):
                raise each
            return each
        missed.append(NotScripted(f"Tool {name} was called, and the test has no answer left for it.", tool=name))
        raise missed[-1]

    return answer


class _Mover:
    """Moves runs that only time or a signal can move."""

    def __init__(self, rf: Refold, clock: SkippingClock, signals: list[tuple[str, Any]]) -> None:
        self._rf = rf
        self._clock = clock
        self._signals = signals
        self._rested = asyncio.Event()
        rf.rested = self._rested.set

    async def finish(self, handle: RunHandle) -> tuple[Any, RunEnded | RunPaused | None]:
        """Waits until the run has ended, or can be moved by nobody here."""
        result = asyncio.create_task(handle.result())
        try:
            while not result.done():
                rested = asyncio.create_task(self._rested.wait())
                await asyncio.wait({result, rested}, return_when=asyncio.FIRST_COMPLETED, timeout=_LOOK)
                rested.cancel()
                self._rested.clear()
                if not result.done():
                    await self._move(handle.id)
            return result.result(), None
        except (RunEnded, RunPaused) as error:
            return None, error
        finally:
            result.cancel()

    async def _move(self, run_id: str) -> None:
        """Raises RunPaused when nothing is left that could move the run."""
        lives = self._resting()
        if lives is None or run_id not in lives:
            return
        awaited = [each.ask.waits_for for each in _asked(lives[run_id]) if each.ask.kind == "signal"]  # type: ignore[attr-defined]
        answer = next((each for each in self._signals if each[0] in awaited), None)
        if answer is not None:
            self._signals.remove(answer)
            await self._rf.signal(run_id, *answer)
            return
        timers = [(each, live) for live in lives.values() for each in _asked(live) if each.ask.kind == "timer"]
        if timers:
            self._fire(*min(timers, key=lambda each: each[0].ask.due_us))  # type: ignore[attr-defined]
        elif not any(each.in_doubt for live in lives.values() for each in _asked(live)):
            waits = ", ".join(awaited) or "a signal to a child"
            why = f"Run {run_id} waits for {waits}, and the test has no such signal left."
            raise RunPaused(why, run_id=run_id, reason="waiting")

    def _resting(self) -> dict[str, Live] | None:
        """What each run here waits with; None while anything is still under way."""
        lives: dict[str, Live] = {}
        for running in self._rf.all_running():
            if running.live is None or not running.live.rests:
                return None
            lives[running.run_id] = running.live
        for live in lives.values():
            for each in _asked(live):
                if each.ask.kind == "child" and _child_of(each) not in lives:
                    return None
        return lives

    def _fire(self, timer: Operation, live: Live) -> None:
        ask: Any = timer.ask
        self._clock.skip_to(ask.due_us)
        if timer.work is not None:
            timer.work.cancel()
        Timers.fire(timer, live)


def _asked(live: Live) -> list[Operation]:
    return list(live.executor.asked.values())


def _child_of(operation: Operation) -> str | None:
    return next((event.facts.child_run_id for event, _ in operation.recorded if event.type == "child.started"), None)
