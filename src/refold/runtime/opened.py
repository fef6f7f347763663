"""An App opened on a ledger: runs are started, resumed, signalled, canceled, and their results awaited.

It also looks after what it has opened: every run that this process has, items in their inboxes, runs whose process
died, doubts that nobody watches.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import msgspec

from refold._version import __version__
from refold.clock import Clock
from refold.errors import RefoldError
from refold.events.catalog.run import RunCreated
from refold.events.content import Encoded
from refold.events.envelope import Event
from refold.events.identity import Stream
from refold.events.values import keyed_digest
from refold.gateway.doubt import Resolved, resolve, taken
from refold.gateway.resolutions import Decision
from refold.gateway.sweeping import sweep
from refold.ids import Ids
from refold.ledger.drafts import Draft
from refold.ledger.ledger import Existing, Ledger, ScopedLedger, open_ledger
from refold.projections.rows import RunRow
from refold.runtime.budget import Budget
from refold.runtime.configuration import config_digest
from refold.runtime.examine import unowned_workflows
from refold.runtime.failures import code_of
from refold.runtime.handle import RunHandle
from refold.runtime.inputs import BadInput
from refold.runtime.operations import Fields
from refold.runtime.posting import pause, post, post_cancel, post_signal
from refold.runtime.record import read_fields
from refold.runtime.running import Running
from refold.runtime.workflow import Workflow

if TYPE_CHECKING:
    from refold.runtime.app import App

K = TypeVar("K", covariant=True)

_log = logging.getLogger("refold.runtime")

_PUMP = 0.05
"""Seconds between two looks at the inboxes for what other processes posted."""
_SWEEP = 5.0
"""Seconds between two looks for runs and doubts whose process died."""
ENGINE = f"refold {__version__}"


class ReplayKind(Protocol[K]):
    """A kind of replay that needs the App's code."""

    async def replay(self, scope: ScopedLedger, app: App, run_id: str) -> K: ...


class Opening:
    """`async with app.open(...) as rf`."""

    def __init__(self, app: App, ledger: str, scope: str, clock: Clock | None, ids: Ids | None, recover: bool) -> None:
        self._app = app
        self._place = ledger
        self._scope = scope
        self._clock = clock
        self._ids = ids
        self._recover = recover
        self._opened: Refold | None = None

    async def __aenter__(self) -> Refold:
        ledger = await open_ledger(self._place, clock=self._clock, ids=self._ids)
        self._opened = Refold(self._app, ledger, ledger.scope(self._scope))
        await self._opened.begin(self._recover)
        return self._opened

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        assert self._opened is not None
        await self._opened.close()


class Refold:
    """An App on a ledger, in one scope."""

    def __init__(self, app: App, ledger: Ledger, scope: ScopedLedger) -> None:
        self.app = app
        self.ledger = ledger
        self.scope = scope
        self._runs: dict[str, Running] = {}
        self._pump: asyncio.Task[None] | None = None
        self._looked = asyncio.Event()
        self.rested: Callable[[], None] = lambda: None
        """Called whenever the code of a run here has been told everything and waits: for who moves time in tests."""

    async def begin(self, recover: bool) -> None:
        """Starts to look after what is there."""
        if recover:
            await sweep(self.scope)
            await self.recover()
        self._pump = asyncio.get_running_loop().create_task(self._look_after(recover))

    async def close(self) -> None:
        """Lets every run go, commits, and closes the ledger. Runs that have not ended go on when it is opened again."""
        if self._pump is not None:
            self._pump.cancel()
            await asyncio.gather(self._pump, return_exceptions=True)
        await asyncio.gather(*(running.close() for running in self._runs.values()))
        for provider in self.app.models.values():
            await provider.aclose()
        await self.ledger.close()

    # Runs.

    async def start(
        self,
        workflow: Workflow | str,
        input: Any = None,
        *,
        key: str | None = None,
        budget: Budget | None = None,
        deadline: float | None = None,
        user_id: str | None = None,
    ) -> RunHandle:
        """Starts a run of a workflow. It is durable when this returns, and goes on by itself.

        With a `key` that a run of this scope has, that run is returned, whatever its status. `deadline` is in seconds
        from now. Raises NotRegistered, BadInput, NotRecordable, KeyConflict.
        """
        found = self.app.registered(workflow)
        if input is not None and not found.takes_input:
            raise BadInput(f"Workflow {found.name} takes no input.", workflow=found.name)
        encoded = self.app.codec.encode(input, found.input_hint)
        self.app.codec.decode(encoded, found.input_hint)
        run_id = self.ledger.ids.new("run")
        facts = self._created(found, run_id, encoded)
        if deadline is not None:
            facts = msgspec.structs.replace(facts, deadline_us=self.ledger.clock.now() + int(deadline * 1_000_000))
        if user_id is not None:
            facts = msgspec.structs.replace(facts, user_id=user_id)
        return await self._create(facts, encoded, run_id, key, budget or found.budget)

    def _created(self, workflow: Workflow, run_id: str, encoded: bytes) -> RunCreated:
        return RunCreated(
            workflow.name,
            run_id,
            run_id,
            workflow_version=workflow.version,
            subject_id=workflow.name,
            config_digest=config_digest(self.app, self.scope.secret),
            input_digest=keyed_digest(self.scope.secret, encoded).hex(),
            engine=ENGINE,
            seed=self.ledger.ids.random(16).hex(),
        )

    async def _create(
        self, facts: RunCreated, encoded: bytes, run_id: str, key: str | None, budget: Budget | None
    ) -> RunHandle:
        content: dict[str, Any] = {"input": Encoded(encoded)}
        if budget is not None:
            content["budget"] = Encoded(msgspec.json.encode(budget))
        made = await self.scope.create(Draft(facts, content, input=content["input"]), run_id, key)
        if isinstance(made, Existing):
            return RunHandle(self, made.run_id)
        self._runs[run_id] = Running(self, run_id, made)
        return RunHandle(self, run_id)

    async def get(self, run: str) -> RunHandle:
        """A run by its id, or a beginning of it. Raises RunNotFound."""
        return RunHandle(self, await self.scope.resolve_run(run))

    async def resume(self, run: str) -> RunHandle:
        """Goes on with a run whose process let it go, or that paused for a drift of its code or on request. Where a
        living process has it, that one goes on. Raises RunNotFound; what else is in the way, the result raises.
        """
        run_id = await self.scope.resolve_run(run)
        running = self._runs.get(run_id)
        if running is not None and not running.over:
            await post(self.scope, run_id, "resume", {})
            await self._deliver(run_id)
        else:
            running = self._runs[run_id] = Running(self, run_id, resume=True)
        await running.gone_on()
        return RunHandle(self, run_id)

    async def signal(self, run: str, name: str, value: Any = None, *, by: str = "", id: str | None = None) -> None:
        """Sends a signal. With an `id`, sending it again sends nothing. Raises NotRecordable, StreamClosed."""
        run_id = await self.scope.resolve_run(run)
        encoded = self.app.codec.encode(value, Any if value is None else type(value))
        await post_signal(self.scope, run_id, name, encoded, by=by, id=id)
        await self._deliver(run_id)

    async def cancel(self, run: str, *, basis: str, by: str = "") -> None:
        """Tells a run to stop, as asyncio cancels a task. It ends when what it has sent has settled."""
        run_id = await self.scope.resolve_run(run)
        await post_cancel(self.scope, run_id, basis, by)
        await self._deliver(run_id)

    async def pause(self, run: str, *, basis: str = "", by: str = "") -> None:
        """Begins nothing new in a run until it is resumed; what is under way is still recorded."""
        run_id = await self.scope.resolve_run(run)
        if self._has(run_id):
            await post(self.scope, run_id, "pause", {"basis": basis}, by)
            await self._deliver(run_id)
        else:
            await pause(self.scope, run_id, basis, by)

    async def resolve(self, call: str, resolution: Decision, *, basis: str, by: str) -> Resolved:
        """Settles a call in doubt: `Happened(result)`, `DidNotHappen()`, `Resend()`, `Abandon()`. Its run goes on by
        itself, in whatever process has its code.

        Raises NoSuchCall, NotInDoubt, TooEarly, AlreadyResolved, NotRecordable.
        """
        done = await resolve(self.scope, call, resolution, basis=basis, by=by, types=self.app.types)
        if done.how == "recorded" and self._pump is not None:
            await self.recover()
        elif done.how == "posted":
            await taken(self.scope, done)
        return done

    async def replay(self, run: str, kind: ReplayKind[K]) -> K:
        """Replays a run in one of the kinds that run its code: `InferenceSkipping()`, `Partial(until=seq)`."""
        return await kind.replay(self.scope, self.app, await self.scope.resolve_run(run))

    async def _deliver(self, run_id: str) -> None:
        """Sees at once to what was posted to a run that this process has."""
        self._looked.set()
        running = self._runs.get(run_id)
        if running is not None and not running.over:
            await self.hand_over(running)

    # Children.

    async def start_child(
        self,
        workflow: Workflow,
        input: Encoded,
        run_id: str,
        key: str | None,
        parent: RunCreated,
        parent_id: str,
        path: str,
    ) -> str:
        """Makes a child run where it is not there yet, and sees that it goes on. Returns its id, or that of the run
        that has its key already. Raises KeyConflict when that one does other work.
        """
        row = await self._row(run_id)
        if row is None:
            facts = msgspec.structs.replace(
                self._created(workflow, run_id, input.data),
                effect_domain=parent.effect_domain,
                lineage_root=parent.lineage_root,
                parent_run_id=parent_id,
                site_path=path,
            )
            return (await self._create(facts, input.data, run_id, key, workflow.budget)).id
        if row.reason != "diverged" and (run_id not in self._runs or self._runs[run_id].over):
            self._runs[run_id] = Running(self, run_id)
        return run_id

    async def exists(self, run_id: str) -> bool:
        """Whether there is a run of this id."""
        async with self.scope.reader() as reader:
            return await reader.head(Stream.run(run_id)) is not None

    async def end_of(self, run_id: str) -> tuple[Event, Fields]:
        """The terminal event of a run and its content, once it is there."""
        while True:
            async with self.scope.reader() as reader:
                head = await reader.head(Stream.run(run_id))
                if head is not None and head.closed:
                    last = (await reader.events(Stream.run(run_id), head.head.seq - 1, limit=1))[0]
                    return last, await read_fields(reader, Stream.run(run_id), last)
            running = self._runs.get(run_id)
            if running is not None and not running.over:
                running.moved.clear()
                with suppress(TimeoutError):
                    async with asyncio.timeout(_SWEEP):
                        await running.moved.wait()
            else:
                await self.ledger.store.changed()

    def running(self, run_id: str) -> Running | None:
        """The run, where this process has it."""
        return self._runs.get(run_id)

    def _has(self, run_id: str) -> bool:
        running = self._runs.get(run_id)
        return running is not None and not running.over

    def all_running(self) -> list[Running]:
        """The runs that this process has."""
        return [each for each in self._runs.values() if not each.over]

    def forget(self, running: Running) -> None:
        """The run is over here. One that has not ended is kept: why is told to whoever asks for its result."""
        if running.ended and running.error is None and self._runs.get(running.run_id) is running:
            del self._runs[running.run_id]

    # Looking after.

    async def recover(self) -> list[str]:
        """Takes over the runs whose process died and whose code is here; those that wait for a person or for other code
        are left alone. Returns their ids.
        """
        found = []
        async for row in unowned_workflows(self.scope):
            if row.reason in ("diverged", "requested") or self._has(row.run_id):
                continue
            if self._has_code(row):
                self._runs[row.run_id] = Running(self, row.run_id)
                found.append(row.run_id)
        return found

    def _has_code(self, row: RunRow) -> bool:
        try:
            self.app.find_workflow(row.workflow, row.workflow_version)
        except RefoldError as error:
            _log.info("run %s waits for its code: %s", row.run_id, error.code)
            return False
        return True

    async def _look_after(self, recover: bool) -> None:
        swept = self.ledger.clock.monotonic()
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(_PUMP):
                    await self._looked.wait()
            self._looked.clear()
            try:
                for stream in await self.scope.posted():
                    running = self._runs.get(stream.run_id)
                    if running is not None and not running.over:
                        await self.hand_over(running)
                    elif recover:
                        await self._take_over(stream.run_id)
                if recover and self.ledger.clock.monotonic() - swept > _SWEEP * 1_000_000_000:
                    swept = self.ledger.clock.monotonic()
                    await sweep(self.scope)
                    await self.recover()
            except Exception as error:  # noqa: BLE001 - every run of this process waits for the next look
                _log.warning("looking after the runs failed: %s", code_of(error))

    async def _take_over(self, run_id: str) -> None:
        """Somebody posted to a run that nobody has: it goes on here, if its code is here. Not after a drift."""
        if run_id in self._runs and self._runs[run_id].error is not None:
            return
        row = await self._row(run_id)
        if row is not None and row.ended_at is None and row.reason != "diverged" and self._has_code(row):
            self._runs[run_id] = Running(self, run_id)

    async def _row(self, run_id: str) -> RunRow | None:
        async with self.scope.reader() as reader:
            rows = await reader.rows(RunRow, {"run_id": run_id})
        return rows[0] if rows else None

    async def hand_over(self, running: Running) -> None:
        """Gives a run what was posted to it and what it does not have yet."""
        async with self.scope.reader() as reader:
            items = await reader.inbox(running.stream)
        for item in items:
            running.hand(item)
