"""Replay kinds 6 and 7: the workflow's own code against the record, by the executor that live runs have.

Nothing is asked of a model, no tool is called, nothing is written. The source of outcomes here has nothing to ask with:
it holds no gateway, no provider and no writer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from hashlib import sha256
from types import TracebackType
from typing import Any, NamedTuple, NoReturn, Self

import msgspec

from refold.errors import RefoldError
from refold.events.envelope import Event, Head
from refold.ledger.errors import BeyondHead
from refold.ledger.ledger import ScopedLedger
from refold.replay.present import to_json
from refold.runtime.app import App
from refold.runtime.beginning import Beginning, read_beginning
from refold.runtime.comparison import Comparison, tree
from refold.runtime.divergence import Divergence, first_difference
from refold.runtime.executor import Executor
from refold.runtime.explaining import explained
from refold.runtime.failures import encode_error
from refold.runtime.operations import Fields, Operation
from refold.runtime.record import Record
from refold.runtime.run import Run

MAX_DIVERGENCES = 100
"""A replay stops when code and record have parted this often."""


class CodeReplay(NamedTuple):
    """What running the code against the record showed.

    `state` is what the code had reached: its segment, its output or error when it ended, and what it waits for. The
    same record and the same code give the same `state_digest`.
    """

    run_id: str
    head_before: Head
    head_after: Head
    at_seq: int
    divergences: list[Divergence]
    state: dict[str, Any]
    state_digest: str

    @property
    def equal(self) -> bool:
        return not self.divergences


class Recorded:
    """The source of a replay: the record, and nothing behind it."""

    def __init__(self, parting: Callable[[], None]) -> None:
        self._parting = parting
        self.divergences: list[Divergence] = []
        self.still = asyncio.Event()
        """Set when the code is quiet and the record, as far as it goes, is delivered."""

    def frontier(self, left: Sequence[Operation]) -> None:
        """Nothing is to be settled."""

    def begin(self, operation: Operation) -> None:
        """Stays as it is: the record holds no outcome."""

    def cancelled(self, operation: Operation) -> None:
        """Nothing was begun."""

    def given_up(self, event: Event) -> None:
        """Nobody will ask again."""

    def unwanted(self, arrival: Any) -> NoReturn:
        raise AssertionError("nothing arrives in a replay")

    def record(self, arrival: Any) -> NoReturn:
        raise AssertionError("nothing arrives in a replay")

    def diverged(self, divergence: Divergence) -> bool:
        self.divergences.append(divergence)
        # Past a changed request, the recorded answer shows what else has changed; nothing real depends on it.
        if divergence.kind == "changed" and len(self.divergences) < MAX_DIVERGENCES:
            return True
        self._parting()  # While the code still stands where it is.
        return False

    def idle(self) -> None:
        self.still.set()

    def ended(self) -> None:
        self.still.set()


class Replaying:
    """One replay under way: `to` brings it from seq to seq, and shows what the code has reached there.

    It lives on the loop that runs, and holds a thread of its own where the workflow is a `def`: `close` it.
    """

    def __init__(self, scope: ScopedLedger, app: App, begin: Beginning, head: Head) -> None:
        self._scope = scope
        self._app = app
        self._begin = begin
        self.head = head
        self._workflow = app.find_workflow(begin.created.workflow, begin.created.workflow_version)
        self._source = Recorded(self._look)
        self._record = Record(scope, begin.run_id, begin.after, begin.after)
        self._executor = Executor(self._record, self._source, self._main, Comparison(self._compare_end))
        self._state: dict[str, Any] = {"segment": 0, "status": "not started", "waits_for": []}
        self._reports: list[Divergence] = []
        self._started = False
        self._seq = 0

    async def to(self, seq: int) -> CodeReplay:
        """Delivers the record up to a seq, and says what the code made of it. Where it is already, or where record and
        code have parted, it stays. Raises BeyondHead, Erased, ContentDamaged.
        """
        if not 1 <= seq <= self.head.seq:
            run_id = self._begin.run_id
            raise BeyondHead(
                f"Run {run_id} stands at seq {self.head.seq} and has no seq {seq}.", run_id=run_id, seq=seq
            )
        self._record.upto = max(seq, self._record.upto)
        await self._deliver()
        run_id, scope = self._begin.run_id, self._scope
        while len(self._reports) < len(self._source.divergences):
            self._reports.append(await explained(scope, run_id, self._source.divergences[len(self._reports)]))
        after = await scope.run_head(run_id)
        digest = sha256(to_json(self._state)).hexdigest()
        return CodeReplay(run_id, self.head, after, self._seq, [*self._reports], self._state, digest)

    async def _deliver(self) -> None:
        started, executor = self._begin.started, self._executor
        if started is None or started.seq > self._record.upto:
            self._seq = self._record.upto
            return
        self._source.still.clear()
        if not self._started:
            self._started = True
            executor.start(self._begin.after, self._begin.clock_from)
        else:
            executor.at_frontier = False
            executor.schedule()
        still = asyncio.create_task(self._source.still.wait())
        over = asyncio.create_task(executor.wait())
        try:
            await asyncio.wait((still, over), return_when=asyncio.FIRST_COMPLETED)
            if over.done():
                over.result()
        finally:
            still.cancel()
            over.cancel()
            await asyncio.gather(still, over, return_exceptions=True)
        if not executor.stopped:
            self._look()
        self._seq = executor.seq

    def close(self) -> None:
        """Leaves the code where it stands."""
        if self._started:
            self._executor.stop()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        self.close()

    def _main(self, segment: int, state: Any) -> Coroutine[Any, Any, Any]:
        app, begin, workflow = self._app, self._begin, self._workflow
        run = Run(app, self._executor, begin.identity(self._scope.secret), app.codec, state)
        return run.begin(workflow, app.codec.decode(begin.input, workflow.input_hint))

    def _look(self) -> None:
        """What the code has reached."""
        executor = self._executor
        waits = [
            {"site": each.site, "kind": each.ask.kind, "asks": each.ask.request(), "recorded": len(each.recorded)}
            for each in executor.asked.values()
        ]
        self._state = {"segment": executor.segment, "status": "running", "waits_for": waits}
        if executor.main.done() or executor.failure is not None:
            self._state |= self._end_state()

    def _end_state(self) -> dict[str, Any]:
        value, error = self._executor.outcome()
        codec = self._app.codec
        if error is None:
            try:
                encoded = codec.encode(value, self._workflow.result_hint)
            except RefoldError as unrecordable:
                return {
                    "status": "failed",
                    "error": {"type": type(unrecordable).__name__, "message": unrecordable.message},
                }
            return {"status": "succeeded", "output": msgspec.json.decode(encoded)}
        stored = encode_error(error, codec.errors, codec.types)
        return {"status": "failed", "error": msgspec.json.decode(stored.data)}

    def _compare_end(self, event: Event, fields: Fields, executor: Executor) -> tuple[Any, Any, str] | None:
        """The end on record against the code's: what was recorded, what it is now, and how they differ."""
        reached = self._end_state()
        recorded = {"status": event.type.partition(".")[2], **tree(fields)}
        if recorded["status"] in ("canceled", "expired"):
            return None if reached["status"] == "failed" else (recorded, reached, "the run was stopped, and now ends")
        wanted = {name: recorded[name] for name in ("status", "output", "error") if name in recorded}
        difference = first_difference(wanted, reached)
        return None if difference is None else (wanted, reached, difference)


async def replaying(scope: ScopedLedger, app: App, run_id: str) -> Replaying:
    """Prepares a replay of a run that goes from seq to seq. Raises RunNotFound, NotARun, Erased, CodeUnavailable."""
    head = await scope.run_head(run_id)
    async with scope.reader() as reader:
        begin = await read_beginning(reader, run_id, 0)
    return Replaying(scope, app, begin, head)


class InferenceSkipping:
    """Kind 6, for `rf.replay(run, InferenceSkipping())`."""

    async def replay(self, scope: ScopedLedger, app: App, run_id: str) -> CodeReplay:
        async with await replaying(scope, app, run_id) as under_way:
            return await under_way.to(under_way.head.seq)


class Partial:
    """Kind 7: as kind 6, stopped after a seq. Raises BeyondHead for one that the run does not have."""

    def __init__(self, until: int) -> None:
        self.until = until

    async def replay(self, scope: ScopedLedger, app: App, run_id: str) -> CodeReplay:
        async with await replaying(scope, app, run_id) as under_way:
            return await under_way.to(self.until)
