"""Child runs: a workflow started by another, under an id that its place there decides, so that it is started once."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, cast

import msgspec

from refold.events.catalog.run import RunCreated
from refold.events.catalog.steps import ChildEnded, ChildStarted, OperationRefused
from refold.events.content import Encoded
from refold.events.envelope import Event
from refold.events.identity import keyed_digest
from refold.ids import encode_ulid
from refold.ledger.drafts import Draft
from refold.ledger.errors import KeyConflict, StreamClosed
from refold.runtime.errors import ChildFailed, RunEnded
from refold.runtime.operations import Fields, Operation
from refold.runtime.steps import Codec, input_difference

if TYPE_CHECKING:
    from refold.runtime.live import Live
    from refold.runtime.opened import Refold
    from refold.runtime.workflow import Workflow


class ChildAsk:
    """`await run.child(workflow, input)`."""

    kind = "child"

    def __init__(self, workflow: Workflow, value: Any, key: str | None, attached: bool, codec: Codec) -> None:
        self.workflow = workflow
        self.key = key
        self.attached = attached
        self.name = workflow.name
        self._codec = codec
        self.input = Encoded(codec.encode(value, workflow.input_hint))

    @property
    def drains(self) -> bool:
        """An attached child is told to stop, and its end awaited."""
        return self.attached

    def difference(self, event: Event, fields: Fields) -> str | None:
        if event.type == "child.started" and event.facts.attached != self.attached:
            was, now = ("attached", "detached") if event.facts.attached else ("detached", "attached")
            return f"the child was {was} and is {now}"
        return input_difference(fields.get("input"), self.input.data)

    def outcome(self, event: Event, fields: Fields) -> Any:
        facts = event.facts
        if event.type == "operation.refused":
            raise self._codec.error(fields["error"])
        if facts.status == "detached":
            return facts.child_run_id
        if facts.status == "succeeded":
            return self._codec.decode(fields["output"], self.workflow.result_hint)
        message = self._codec.decode(fields["error"])["message"] if "error" in fields else "it says nothing more"
        raise ChildFailed(
            f"Child run {facts.child_run_id} ({self.name}) {facts.status}: {message}",
            run_id=facts.child_run_id,
            status=facts.status,
            error_code=facts.error_code,
        )

    def request(self) -> Any:
        return {"workflow": self.name, "input": msgspec.json.decode(self.input.data)}


class Children:
    """Performs `run.child`: `child.started` is durable before the child exists, and its id follows from its place, so
    that whoever comes after a crash finds it or makes it, once.
    """

    kinds = ("child",)

    def __init__(self, opened: Refold, run_id: str, created: RunCreated) -> None:
        self._opened = opened
        self._run_id = run_id
        self._created = created

    def begin(self, operation: Operation, live: Live) -> None:
        operation.work = live.spawn(self._perform(operation, live))

    def cancelled(self, operation: Operation, live: Live) -> None:
        live.spawn(self._cancel(operation))

    def left(self, operation: Operation, live: Live) -> None:
        live.spawn(self._cancel(operation))

    async def _cancel(self, operation: Operation) -> None:
        child = self._child_id(operation)
        if await self._opened.exists(child):
            with suppress(StreamClosed):  # It ended before it could be told.
                await self._opened.cancel(child, basis=f"its parent {self._run_id} does not want it any more", by="")

    async def _perform(self, operation: Operation, live: Live) -> None:
        ask = cast(ChildAsk, operation.ask)
        started = next((event for event, _ in operation.recorded if event.type == "child.started"), None)
        if started is None and operation.cancelling:
            error = live.error(RunEnded("The child was not wanted any more before it began."))
            refused = OperationRefused(live.id("st"), "child", ask.name, "canceled")
            live.arrive(operation, [Draft(refused, {"error": error}, site=operation.site)])
            return
        if started is None:
            facts = ChildStarted(live.id("st"), self._child_id(operation), ask.name, ask.attached)
            started = live.writer.append(Draft(facts, {"input": ask.input}, input=ask.input, site=operation.site))
            await live.writer.barrier()
        live.arrive(operation, [await self._ended(operation, started.facts, live)])

    async def _ended(self, operation: Operation, started: ChildStarted, live: Live) -> Draft:
        """Sees that the child is there, and waits for its end if it is attached."""
        ask = cast(ChildAsk, operation.ask)
        step_id, child, path = started.step_id, started.child_run_id, self._path(operation)
        try:
            child = await self._opened.start_child(
                ask.workflow, ask.input, child, ask.key, self._created, self._run_id, path
            )
        except KeyConflict as error:
            failed = ChildEnded(step_id, child, "failed", error.code)
            return Draft(failed, {"error": live.error(error)}, error=error.message, site=operation.site)
        if operation.cancelling:
            await self._cancel(operation)
        if not ask.attached:
            return Draft(ChildEnded(step_id, child, "detached"), site=operation.site)
        end, fields = await self._opened.end_of(child)
        status: Any = end.type.partition(".")[2]
        ended = ChildEnded(step_id, child, status, getattr(end.facts, "error_code", None))
        content: dict[str, Any] = {name: Encoded(bytes(fields[name])) for name in ("output", "error") if name in fields}
        return Draft(ended, content, output=content.get("output"), error=end.view.error, site=operation.site)

    def _path(self, operation: Operation) -> str:
        return f"{self._created.site_path}{operation.site}|"

    def _child_id(self, operation: Operation) -> str:
        path = f"{self._created.effect_domain}\0{self._run_id}\0{self._path(operation)}"
        digest = keyed_digest(self._opened.scope.secret, "child run", path.encode())
        return f"run_{encode_ulid(int.from_bytes(digest, 'big'))}"
