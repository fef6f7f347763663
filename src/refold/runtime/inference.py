"""Inferences of a run's code, and who performs them."""

from __future__ import annotations

import asyncio
from collections import deque
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, cast

import msgspec

from refold.events import values
from refold.events.envelope import Event
from refold.gateway.answers import Standing, content_of, outcome, part_of, standing
from refold.gateway.ask import Ask
from refold.gateway.inference import Inference
from refold.gateway.model_errors import InferenceFailed
from refold.gateway.models import Completion, ModelRequest, Part, fingerprint
from refold.gateway.retry import Retry
from refold.ledger.writer import StreamWriter
from refold.runtime.budget import Spent
from refold.runtime.divergence import first_difference
from refold.runtime.errors import BudgetExceeded
from refold.runtime.operations import Fields, Operation
from refold.runtime.steps import Codec

if TYPE_CHECKING:
    from refold.runtime.executor import Executor
    from refold.runtime.live import Live
    from refold.runtime.opened import Refold


class InferAsk:
    """`await run.infer(model, ...)`."""

    kind = "infer"

    def __init__(
        self,
        model: str,
        request: ModelRequest,
        secret: bytes,
        codec: Codec,
        timeout: float,
        retry: Retry,
        *,
        streams: bool,
    ) -> None:
        self.name = model
        self.model_request = request
        self.timeout = timeout
        self.retry = retry
        self.fingerprint = fingerprint(secret, request)
        self.cut = False
        self.cutting: asyncio.Event | None = None
        self.parts: deque[Part] | None = deque() if streams else None
        self._codec = codec
        self._waiter: asyncio.Future[None] | None = None
        """Of the code that asked for the next part."""

    @property
    def drains(self) -> bool:
        """A stream that the code leaves is cut, and the cut is recorded before the code goes on."""
        return self.parts is not None

    def difference(self, event: Event, fields: Fields) -> str | None:
        recorded = getattr(event.facts, "fingerprint", None)
        if recorded is None or recorded == self.fingerprint:
            return None
        settings = msgspec.json.decode(fields["settings"]) if "settings" in fields else {}
        asked = self.model_request
        if event.facts.model != asked.model:
            return f"model {event.facts.model!r} is now {asked.model!r}"
        return (
            first_difference(settings, asked.settings, "$.settings")
            or "the messages or the tools are not what they were"
        )

    def outcome(self, event: Event, fields: Fields) -> Completion:
        if event.type == "operation.refused":
            raise self._codec.error(fields["error"])
        return outcome(event, decoded(fields))

    def part(self, event: Event, fields: Fields) -> None:
        """A recorded piece of the stream."""
        if self.parts is not None:
            self.parts.append(part_of(event, decoded(fields)))
            if self._waiter is not None and not self._waiter.done():
                self._waiter.set_result(None)

    def more(self, operation: Operation) -> asyncio.Future[None]:
        """Done when there is a part, or the outcome."""
        self._waiter = operation.get_loop().create_future()
        return self._waiter

    def request(self) -> Any:
        asked: Any = msgspec.to_builtins(self.model_request)
        return asked


def decoded(fields: Fields) -> dict[str, Any]:
    """The fields of an inference's event; they hold JSON only."""
    return {name: values.decode(bytes(raw)) for name, raw in fields.items()}


class InferStream:
    """`async with run.stream(model, ...) as stream: async for part in stream`.

    Code sees recorded parts only, each a delivery of its own. Leaving the block early cuts the stream, and the cut is
    recorded. `completion` is the whole answer once the stream has ended.
    """

    def __init__(self, executor: Executor, ask: InferAsk) -> None:
        self._executor = executor
        self._ask = ask
        self._operation: Operation | None = None

    @property
    def completion(self) -> Completion:
        """The whole answer. Raises InvalidStateError before the stream has ended."""
        if self._operation is None:
            raise asyncio.InvalidStateError("the stream has not begun")
        completion: Completion = self._operation.result()
        return completion

    async def __aenter__(self) -> Self:
        self._operation = self._executor.ask(self._ask)
        return self

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Part:
        operation, parts = self._operation, self._ask.parts
        assert operation is not None
        assert parts is not None
        while not parts:
            if operation.done():
                operation.result()
                raise StopAsyncIteration
            waiter = self._ask.more(operation)

            def wake(_: Any, waiter: asyncio.Future[None] = waiter) -> None:
                if not waiter.done():
                    waiter.set_result(None)

            operation.add_done_callback(wake)
            try:
                await waiter
            finally:
                operation.remove_done_callback(wake)
        return parts.popleft()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        operation = self._operation
        assert operation is not None
        if not operation.done():
            self._ask.cut = True
            self._executor.cut(operation)
            try:
                await operation
            except InferenceFailed:
                return


class Inferences:
    """Performs inferences: requested before sent, each attempt an event, each with its cost."""

    kinds = ("infer",)

    def __init__(self, opened: Refold, writer: StreamWriter, spent: Spent) -> None:
        app, ledger = opened.app, opened.ledger
        self._inference = Inference(writer, app.models, app.prices, ledger.clock, ledger.ids, spent)

    def begin(self, operation: Operation, live: Live) -> None:
        operation.work = live.spawn(self._perform(operation, live))

    def cancelled(self, operation: Operation, live: Live) -> None:
        ask = cast(InferAsk, operation.ask)
        ask.cut = True
        if ask.cutting is not None:
            ask.cutting.set()

    def left(self, operation: Operation, live: Live) -> None:
        stands = standing(event for event, _ in operation.recorded)
        if stands.unanswered is not None:
            self._lose(self._asked(operation, stands, live), stands, live)

    def _lose(self, ask: Ask, stands: Standing, live: Live) -> None:
        """The attempt that died with its process has its end, and its cost."""
        for draft in self._inference.lost(ask, stands.attempts):
            live.writer.append(draft)

    def _asked(self, operation: Operation, stands: Standing, live: Live) -> Ask:
        asked = cast(InferAsk, operation.ask)
        events = [event for event, _ in operation.recorded]
        return Ask(
            step_id=events[0].facts.step_id if events else live.id("st"),
            site=operation.site,
            request=asked.model_request,
            provider=asked.name,
            attempt=stands.attempts + 1,
            failures=stands.failures,
            retry=asked.retry,
            timeout=asked.timeout,
            stream=None if asked.parts is None else lambda draft: live.part(operation, draft),
        )

    async def _perform(self, operation: Operation, live: Live) -> None:
        asked = cast(InferAsk, operation.ask)
        stands = standing(event for event, _ in operation.recorded)
        ask = self._asked(operation, stands, live)
        asked.cutting = ask.cut
        if asked.cut or operation.cancelled():
            ask.cut.set()
        if stands.unanswered is not None:
            self._lose(ask, stands, live)
        live.outstanding[operation.site] = ask.step_id
        try:
            drafts = await self._inference.perform(ask)
        except BudgetExceeded as error:
            live.refuse(operation, error)
            return
        finally:
            del live.outstanding[operation.site]
        if operation.cancelled():
            # Nobody waits for the answer any more; what it was, and what it cost, is recorded all the same.
            live.note(drafts)
        else:
            fields = {name: msgspec.Raw(values.encode(value)) for name, value in content_of(drafts[0]).items()}
            live.arrive(operation, drafts, fields=fields)
