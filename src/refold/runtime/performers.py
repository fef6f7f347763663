"""Who performs which kind of operation in a live run: steps, environment, timers, signals, checkpoints."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Protocol, cast

from refold.errors import RefoldError
from refold.events.catalog.run import RunCheckpointed
from refold.events.catalog.steps import StepCompleted, StepFailed, TimerFired
from refold.events.content import Encoded
from refold.events.values import NotRecordable
from refold.ledger.drafts import Draft
from refold.runtime.env import EnvAsk
from refold.runtime.errors import NotQuiet
from refold.runtime.failures import message_of
from refold.runtime.nesting import STEP, inside_step
from refold.runtime.operations import Operation
from refold.runtime.signals import CheckpointAsk
from refold.runtime.steps import StepAsk
from refold.runtime.timers import TimerAsk

if TYPE_CHECKING:
    from refold.runtime.live import Live


class Performer(Protocol):
    """Performs operations of some kinds."""

    @property
    def kinds(self) -> tuple[str, ...]: ...

    def begin(self, operation: Operation, live: Live) -> None:
        """Starts it; its outcome arrives at `live`."""
        ...

    def cancelled(self, operation: Operation, live: Live) -> None:
        """The code does not want it any more; one that drains has still to bring its outcome."""
        ...

    def left(self, operation: Operation, live: Live) -> None:
        """An earlier process had begun it, and the code did not want it any more: what is open on record is closed."""
        ...


class _Forgotten:
    """What costs nothing to give up."""

    def cancelled(self, operation: Operation, live: Live) -> None:
        if operation.work is not None:
            operation.work.cancel()

    def left(self, operation: Operation, live: Live) -> None:
        return


class Steps(_Forgotten):
    """`run.step`: a `def` runs when its turn to be delivered has come, an `async def` beside the run's code."""

    kinds = ("step",)

    def begin(self, operation: Operation, live: Live) -> None:
        ask = cast(StepAsk, operation.ask)
        if ask.hints.is_async:
            operation.work = live.spawn(self._await(operation, live))
        else:
            live.later(operation, lambda: [_run(operation, live)])

    async def _await(self, operation: Operation, live: Live) -> None:
        ask = cast(StepAsk, operation.ask)
        started = live.monotonic()
        value, error = None, None
        with inside_step(ask.name):
            try:
                value = await ask.function(*ask.args, **ask.options)
            except KeyboardInterrupt:
                raise
            except BaseException as raised:
                if operation.done() or live.executor.stopped:
                    raise  # It was told to end.
                error = raised
        live.arrive(operation, [_step_draft(operation, live, value, error, started)])


def _run(operation: Operation, live: Live) -> Draft:
    ask = cast(StepAsk, operation.ask)
    started = live.monotonic()
    value, error = None, None
    try:
        value = STEP.copy().run(ask.function, *ask.args, **ask.options)
    except KeyboardInterrupt:
        raise
    except BaseException as raised:  # noqa: BLE001 - the step's outcome
        error = raised
    return _step_draft(operation, live, value, error, started)


def _step_draft(operation: Operation, live: Live, value: Any, error: BaseException | None, started: int) -> Draft:
    ask = cast(StepAsk, operation.ask)
    duration = (live.monotonic() - started) // 1000
    if error is None:
        try:
            output = Encoded(ask.codec.encode(value, ask.hints.result))
        except NotRecordable as unrecordable:
            error = unrecordable
        else:
            facts = StepCompleted(live.id("st"), ask.name, duration_us=duration)
            content = {"input": ask.input, "output": output}
            return Draft(facts, content, input=ask.input, output=output, site=operation.site)
    code = error.code if isinstance(error, RefoldError) else "exception"
    failed = StepFailed(live.id("st"), ask.name, code, duration_us=duration)
    content = {"input": ask.input, "error": live.error(error)}
    return Draft(failed, content, input=ask.input, error=message_of(error), site=operation.site)


class Environment(_Forgotten):
    """`run.env`."""

    kinds = ("env",)

    def begin(self, operation: Operation, live: Live) -> None:
        ask = cast(EnvAsk, operation.ask)
        value = os.environ.get(ask.variable)
        facts = StepCompleted(live.id("st"), ask.name, "io")
        live.arrive(operation, [Draft(facts, {"output": value}, output=value, site=operation.site)])


class Timers(_Forgotten):
    """Sleeps and timeouts, in the recorded clock: a resumed run waits for what is left."""

    kinds = ("timer",)

    def begin(self, operation: Operation, live: Live) -> None:
        ask = cast(TimerAsk, operation.ask)
        # A clock that was put back must not make it wait longer than it was told to.
        left = min(max(0, ask.due_us - live.now()), ask.delay_us)
        operation.work = live.call_later(left / 1_000_000, lambda: self.fire(operation, live))

    @staticmethod
    def fire(operation: Operation, live: Live) -> None:
        """The timer's time has come, by the clock or by whoever moves the clock."""
        ask = cast(TimerAsk, operation.ask)
        live.arrive(operation, [Draft(TimerFired(ask.delay_us), site=operation.site)])


class Signals(_Forgotten):
    """Signals come by themselves."""

    kinds = ("signal",)

    def begin(self, operation: Operation, live: Live) -> None:
        return


class Checkpoints(_Forgotten):
    """`run.checkpoint`: only when nothing else is under way."""

    kinds = ("checkpoint",)

    def begin(self, operation: Operation, live: Live) -> None:
        executor = live.executor
        others = [each.site for each in executor.asked.values() if each is not operation]
        if others:
            live.refuse(operation, NotQuiet(f"A checkpoint was asked for while {', '.join(others)} is under way."))
            return
        ask = cast(CheckpointAsk, operation.ask)
        facts = RunCheckpointed(executor.segment + 1, executor.signals.seqs())
        live.arrive(operation, [Draft(facts, {"state": ask.state}, output=ask.state, site=operation.site)])
