"""A run in this process: its stream is opened, its code brought to where the record ends, and then it lives.

Killed anywhere, the next process does the same again: what was recorded is delivered, what was not is asked anew.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, NoReturn, get_args

import msgspec

from refold.errors import RefoldError
from refold.events.catalog.run import RunPaused, RunStarted, RunStopRequested
from refold.events.catalog.steps import SignalReceived
from refold.events.content import Encoded
from refold.events.envelope import Event
from refold.events.identity import Stream
from refold.ledger.drafts import Draft
from refold.ledger.errors import Fenced, IntentMoved, KeyConflict, StreamClosed, StreamOwned
from refold.ledger.port import InboxItem
from refold.ledger.writer import StreamWriter
from refold.projections.rows import RunRow
from refold.runtime.beginning import Beginning, read_beginning
from refold.runtime.budget import Spent, spent_so_far
from refold.runtime.calls import Calls
from refold.runtime.children import Children
from refold.runtime.comparison import Comparison
from refold.runtime.divergence import Divergence
from refold.runtime.ending import Ending
from refold.runtime.executor import Executor
from refold.runtime.explaining import explained
from refold.runtime.inference import Inferences
from refold.runtime.live import Live
from refold.runtime.operations import Fields
from refold.runtime.performers import Checkpoints, Environment, Performer, Signals, Steps, Timers
from refold.runtime.posting import Kind, payload_of, post
from refold.runtime.record import Record
from refold.runtime.run import Run
from refold.runtime.segment import Main

if TYPE_CHECKING:
    from refold.runtime.opened import Refold

KINDS = frozenset(get_args(Kind))

_log = logging.getLogger("refold.runtime")

_PATIENCE = 10
"""Seconds that a resume waits for the run's owner to go on."""


class Running:
    """One run that this process has, or tries to have."""

    def __init__(
        self, opened: Refold, run_id: str, writer: StreamWriter | None = None, *, resume: bool = False
    ) -> None:
        self.run_id = run_id
        self.stream = Stream.run(run_id)
        self.error: RefoldError | None = None
        """Why this process cannot go on with the run; the run itself is as its record says."""
        self.live: Live | None = None
        self.moved = asyncio.Event()
        self._opened = opened
        self._writer = writer
        self._resume = resume
        """Whether somebody asked for it: a run that was paused on request waits for that."""
        self._begun = asyncio.Event()
        self._waiting: list[InboxItem] = []
        self._seen: set[str] = set()
        self.task = asyncio.get_running_loop().create_task(self._stay())

    @property
    def over(self) -> bool:
        """Whether this process is done with the run."""
        return self.task.done()

    async def _stay(self) -> None:
        try:
            while True:
                try:
                    await self._execute()
                    return
                except (KeyConflict, IntentMoved) as error:
                    # Another run has the effect; what this one had in memory is gone, and its record says where to go
                    # on.
                    _log.info("run %s begins again from its record: %s", self.run_id, error.code)
        except (StreamOwned, StreamClosed, Fenced) as error:
            _log.info("run %s is not this process's: %s", self.run_id, error.code)
            self.error = error
            if self._resume and isinstance(error, StreamOwned):
                await self._ask_owner()
        except RefoldError as error:
            _log.warning("run %s cannot go on here: %s", self.run_id, error.code)
            self.error = error
        except Exception as error:  # noqa: BLE001 - whoever waits for the run is told, and not left to wait for ever
            _log.error("run %s cannot go on here: %s", self.run_id, type(error).__qualname__)
            self.error = _unexpected(self.run_id, error)
        finally:
            if self._writer is not None:
                await self._let_go(self._writer)
            self.live = None
            self.moved.set()
            self._begun.set()
            self._opened.forget(self)

    async def _ask_owner(self) -> None:
        """The process that has the run is told that somebody wants it to go on; returns when it does, or does not in
        time.
        """
        opened = self._opened
        until = opened.ledger.clock.monotonic() + _PATIENCE * 1_000_000_000
        try:
            if await self._is_held():
                await post(opened.scope, self.run_id, "resume", {})
            while await self._is_held() and opened.ledger.clock.monotonic() < until:
                await opened.ledger.store.changed()
        except RefoldError as error:
            _log.info("run %s was not resumed: %s", self.run_id, error.code)

    async def _is_held(self) -> bool:
        """Whether the run is paused on request."""
        async with self._opened.scope.reader() as reader:
            rows = await reader.rows(RunRow, {"run_id": self.run_id})
        return bool(rows) and rows[0].reason == "requested"

    async def _let_go(self, writer: StreamWriter) -> None:
        try:
            await writer.close()
        except RefoldError as error:
            _log.info("run %s was not released: %s", self.run_id, error.code)

    async def _execute(self) -> None:
        opened = self._opened
        self.live = None
        self._seen.clear()
        self._waiting.clear()
        if self._writer is None or not self._writer.alive:
            self._writer = await opened.scope.writer(self.stream)
        writer = self._writer
        if writer.closed:
            return
        async with opened.scope.reader() as reader:
            begin = await read_beginning(reader, self.run_id, writer.state.open.checkpoint)
            started_us = opened.ledger.clock.now() if begin.started is None else begin.started.recorded_at
            spent = await spent_so_far(reader, self.run_id, begin.budget, started_us)
            for item in await reader.inbox(self.stream):
                self.hand(item)
        live = self.live = self._lives(writer, begin, spent)
        begin = self._goes_on(writer, begin, live)
        executor = live.executor
        for event, fields in begin.unconsumed:
            executor.signals.put(event, fields)
        expiry: asyncio.TimerHandle | None = None
        try:
            executor.start(begin.after, begin.clock_from, begin.segment, partial(begin.state, live.codec))
            self._begun.set()
            for item in self._waiting:
                self._deliver(item, live)
            self._waiting.clear()
            expiry = self._expire_at(begin.created.deadline_us, live)
            await executor.wait()
            if live.divergences:
                reports = [await explained(opened.scope, self.run_id, each) for each in live.divergences]
                await live.pause("diverged", {"divergences": [_plain(each) for each in reports]})
                await writer.close()
        finally:
            if expiry is not None:
                expiry.cancel()
            executor.stop()
            await live.end()

    def _lives(self, writer: StreamWriter, begin: Beginning, spent: Spent) -> Live:
        """The run with its executor and all who perform for it; nothing has begun. Raises CodeUnavailable,
        NotRegistered.
        """
        opened = self._opened
        app, ledger = opened.app, opened.ledger
        workflow = app.find_workflow(begin.created.workflow, begin.created.workflow_version)
        ending = Ending(app.codec, workflow.result_hint, ledger.clock, ledger.ids)
        ending.stopping = begin.stopping
        calls = Calls(opened, writer, begin.created)
        live = Live(writer, app.codec, spent, ending, calls, self._performers(writer, begin, spent, calls))
        live.paused = begin.paused
        live.moved = self.moved
        live.rested = opened.rested
        record = Record(opened.scope, self.run_id, begin.after, writer.head.seq)
        live.executor = Executor(record, live, self._main(begin, live), Comparison(_no_end))
        return live

    def _goes_on(self, writer: StreamWriter, begin: Beginning, live: Live) -> Beginning:
        """Says in the record that the run begins, or goes on after a pause that ends with this process having it."""
        resumed, self._resume = self._resume, False  # A later pause is not what somebody asked to end.
        if begin.started is None:
            begin = begin._replace(started=writer.append(Draft(RunStarted())))
            if begin.paused == "requested" and not resumed:
                writer.append(Draft(RunPaused("requested")))  # A start says that it goes on.
            else:
                live.paused = None
        elif begin.paused in ("waiting", "diverged") or (begin.paused == "requested" and resumed):
            live.unpause()
        return begin

    def _performers(self, writer: StreamWriter, begin: Beginning, spent: Spent, calls: Calls) -> list[Performer]:
        opened = self._opened
        return [
            Steps(),
            Environment(),
            Timers(),
            Signals(),
            Checkpoints(),
            calls,
            Inferences(opened, writer, spent),
            Children(opened, self.run_id, begin.created),
        ]

    def _main(self, begin: Beginning, live: Live) -> Main:
        app = self._opened.app
        codec = app.codec
        workflow = app.find_workflow(begin.created.workflow, begin.created.workflow_version)

        def main(segment: int, state: Any) -> Coroutine[Any, Any, Any]:
            run = Run(app, live.executor, begin.identity(self._opened.scope.secret), codec, state)
            return run.begin(workflow, codec.decode(begin.input, workflow.input_hint))

        return main

    @property
    def ended(self) -> bool:
        """Whether the run has its end, as far as this process wrote it."""
        return self._writer is not None and self._writer.closed

    @property
    def abandoned(self) -> bool:
        """Whether the run has not ended, and this process, which had it, is done with it all the same."""
        if not self.over or isinstance(self.error, StreamOwned | StreamClosed):
            return False
        return not self.ended

    def stands(self, reason: str) -> bool:
        """Whether a pause that the record holds is still true, as far as this process knows."""
        if self.over:
            return True
        return self.live is not None and self.live.paused == reason and self.live.stands()

    # From outside.

    def hand(self, item: InboxItem) -> None:
        """Takes one item that somebody posted to the run, once."""
        if item.key in self._seen:
            return
        self._seen.add(item.key)
        if self.live is None:
            self._waiting.append(item)
        else:
            self._deliver(item, self.live)

    def _deliver(self, item: InboxItem, live: Live) -> None:
        if item.kind not in KINDS:
            return  # The gateway's own, a resolution: it looks for those itself.
        payload = payload_of(item)
        if item.kind == "signal":
            facts = SignalReceived(live.id("st"), payload["name"])
            value = Encoded(payload["value"])
            live.post(Draft(facts, {"value": value}, input=value, actor=item.actor), item.key)
        elif item.kind == "cancel":
            self._stop(live, "canceled", payload["basis"], item)
        elif item.kind == "pause":
            live.spawn(live.pause("requested", {"basis": payload["basis"]}, item.key))
        else:
            live.unpause(item.key)

    def _stop(self, live: Live, why: Literal["canceled", "expired"], basis: str, item: InboxItem | None) -> None:
        if live.stopping(why):
            draft = Draft(RunStopRequested(why), {"basis": basis}, input=basis, actor=item.actor if item else "")
            live.post(draft, None if item is None else item.key)
            if live.paused == "requested":
                live.unpause()  # What is held must settle before the run can end.

    def _expire_at(self, deadline_us: int | None, live: Live) -> asyncio.TimerHandle | None:
        if deadline_us is None:
            return None
        left = max(0, deadline_us - live.now())
        return live.call_later(left / 1_000_000, lambda: self._stop(live, "expired", "the deadline passed", None))

    async def gone_on(self) -> None:
        """Returns when the record says that the run goes on, or this process cannot go on with it."""
        await self._begun.wait()
        if self._writer is not None and self._writer.alive and not self.over:
            with suppress(RefoldError):  # Whoever asks for the result is told.
                await self._writer.barrier()

    async def close(self) -> None:
        """Lets the run go: the next process that opens it goes on from its record."""
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)


def _unexpected(run_id: str, error: Exception) -> RefoldError:
    said = f"{type(error).__qualname__}: {error}".removesuffix(".")
    unexpected = RefoldError(f"Run {run_id} cannot go on here, for no reason that refold knows: {said}.", run_id=run_id)
    unexpected.__cause__ = error
    return unexpected


def _no_end(event: Event, fields: Fields, executor: Executor) -> NoReturn:
    raise AssertionError("an open run's record has no end")


def _plain(divergence: Divergence) -> dict[str, Any]:
    plain: dict[str, Any] = msgspec.to_builtins(divergence)
    return plain
