"""Tool calls of a run's code, and who performs them: the gateway."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any, cast

import msgspec

from refold.events import values
from refold.events.catalog.run import RunCreated
from refold.events.catalog.tool import ToolDoubted
from refold.events.envelope import Event
from refold.gateway.errors import ChangedCall
from refold.gateway.gateway import Gateway
from refold.gateway.identity import fingerprint
from refold.gateway.inbox import intent_of
from refold.gateway.outcomes import fields_of, outcome
from refold.gateway.records import Call
from refold.gateway.tools import Tool
from refold.ledger.drafts import Draft
from refold.ledger.writer import StreamWriter
from refold.projections.rows import ToolCallRow
from refold.runtime.divergence import Divergence
from refold.runtime.operations import Fields, Operation
from refold.runtime.steps import Codec, input_difference

if TYPE_CHECKING:
    from refold.runtime.live import Live
    from refold.runtime.opened import Refold


class ToolAsk:
    """A tool called by a run's code, or by the model through `run.call`."""

    kind = "tool"

    def __init__(
        self,
        tool: Tool[Any, Any],
        arguments: dict[str, Any],
        key: str | None,
        provider_call_id: str | None,
        secret: bytes,
        codec: Codec,
    ) -> None:
        self.tool = tool
        self.name = tool.name
        self.key = key
        self.provider_call_id = provider_call_id
        self._codec = codec
        self.encoded = tool.encode_arguments(arguments, codec.types)
        # What the tool gets shares nothing with what the code goes on with.
        self.arguments = tool.decode_arguments(self.encoded, codec.types)
        if key is None:
            tool.business_key(self.arguments)  # One that cannot be made is the code's to handle, as bad arguments are.
        self._fingerprint = fingerprint(secret, tool.name, tool.version, self.encoded)

    @property
    def drains(self) -> bool:
        """An effect that may be out is waited for, unless the tool says that it may be left in doubt."""
        return self.tool.effect in ("idempotent", "unsafe") and self.tool.on_cancel == "drain"

    def difference(self, event: Event, fields: Fields) -> str | None:
        claim = getattr(event.facts, "claim", None)
        recorded = getattr(event.facts, "fingerprint", None) if claim is None else claim.fingerprint
        if recorded is None or recorded == self._fingerprint:
            return None
        if claim is not None and claim.tool == self.name and claim.version != self.tool.version:
            return f"version {claim.version} of {self.name} is now version {self.tool.version}"
        if "arguments" in fields:
            return input_difference(fields["arguments"], self.encoded) or f"another call of {self.name}"
        return f"another call of {self.name}"

    def outcome(self, event: Event, fields: Fields) -> Any:
        if event.type == "operation.refused":
            raise self._codec.error(fields["error"])
        return outcome(event, {name: bytes(raw) for name, raw in fields.items()}, self.tool, self._codec.types)

    def request(self) -> Any:
        return {"tool": self.name, "arguments": msgspec.json.decode(self.encoded)}


class Calls:
    """Performs tool calls through the gateway of this run."""

    kinds = ("tool",)

    def __init__(self, opened: Refold, writer: StreamWriter, created: RunCreated) -> None:
        ledger = opened.ledger
        self._opened, self._writer = opened, writer
        self.gateway = Gateway(
            opened.scope,
            writer,
            created.effect_domain,
            ledger.clock,
            ledger.ids,
            opened.app.types,
            created.site_path,
        )

    def take_up(self, live: Live) -> None:
        """Goes on with the calls that an earlier process left open and that the code does not wait for: it gave them up
        when it was replayed. Nothing is sent any more; a doubt is resolved, and its answer kept for who asks again.
        """
        self.gateway.on_wait = live.executor.schedule
        asked = frozenset(live.executor.asked)
        for row in self._writer.open_calls():
            intent = None if row.intent_id is None else intent_of(self._writer, row.intent_id)
            if intent is None or intent.owner_run_id != row.run_id:
                continue
            if intent.status == "abandoned":
                self.gateway.adopt(intent.intent_id)
            elif intent.status in ("claimed", "dispatched", "in_doubt", "not_executed"):
                # From now on, before its event is read: the run must not end without it.
                live.outstanding[row.tool_call_id] = row.tool_call_id
                live.spawn(self._settle(row, asked, live))

    async def _settle(self, row: ToolCallRow, asked: Collection[str], live: Live) -> None:
        try:
            call = await self._recorded(row)
            if call.site in asked:
                return
            if call.tool.on_cancel == "abandon":
                live.left.add(call.tool_call_id)
            live.note(await self.gateway.perform(call))
        finally:
            del live.outstanding[row.tool_call_id]
            live.executor.schedule()

    async def _recorded(self, row: ToolCallRow) -> Call:
        """A call that an earlier process began, as its record says, wanted by nobody."""
        async with self._opened.scope.reader() as reader:
            (event,) = await reader.events(self._writer.stream, row.seq - 1, row.seq)
        fields = fields_of(event)
        tool = self._opened.app.find_tool(row.tool)
        return Call(
            tool=tool,
            arguments=tool.decode_arguments(fields["arguments"], self._opened.app.types),
            encoded=fields["arguments"],
            site=event.site,
            step_id=row.run_step_id,
            tool_call_id=row.tool_call_id,
            intent_id=event.facts.intent_id,
            key=values.decode(fields["key"]) if "key" in fields else None,
            recorded=True,
            unwanted=lambda: True,
        )

    def begin(self, operation: Operation, live: Live) -> None:
        operation.work = live.spawn(self._perform(operation, live))

    def cancelled(self, operation: Operation, live: Live) -> None:
        """What is out goes on to its end, whether or not the code waits for it; what is not, the gateway does not send.
        A tool that may be left stays behind in doubt when the run ends first.
        """
        ask = cast(ToolAsk, operation.ask)
        call = live.outstanding.get(operation.site)
        if call is not None and ask.tool.on_cancel == "abandon":
            live.left.add(call)

    def left(self, operation: Operation, live: Live) -> None:
        """`take_up` has it, as all that the record holds open."""

    def given_up(self, event: Event) -> None:
        """The outcome of a call went on record, and the code, which had been cancelled, did not get it."""
        call = getattr(event.facts, "tool_call_id", None)
        if call is not None:
            self.gateway.undelivered(call)

    async def _perform(self, operation: Operation, live: Live) -> None:
        ask = cast(ToolAsk, operation.ask)
        claimed = next((event for event, _ in operation.recorded if getattr(event.facts, "claim", None)), None)
        call = Call(
            tool=ask.tool,
            arguments=ask.arguments,
            encoded=ask.encoded,
            site=operation.site,
            step_id=live.id("st") if claimed is None else claimed.facts.claim.step_id,
            tool_call_id=live.id("tc") if claimed is None else claimed.facts.tool_call_id,
            intent_id=live.id("int") if claimed is None else claimed.facts.intent_id,
            key=ask.key,
            provider_call_id=ask.provider_call_id,
            recorded=claimed is not None,
            unwanted=lambda: operation.cancelling or operation.cancelled(),
        )
        live.outstanding[operation.site] = call.tool_call_id
        try:
            drafts = await self.gateway.perform(call)
        except ChangedCall as error:
            self._changed(operation, error, live)
            return
        finally:
            live.outstanding.pop(operation.site, None)
        if operation.cancelled():
            live.note(drafts)
        else:
            live.arrive(operation, drafts, content=self.gateway.content, urgent=True)

    def _changed(self, operation: Operation, error: ChangedCall, live: Live) -> None:
        asked = {"site": operation.site, "asks": operation.ask.request()}
        live.diverged(
            Divergence(None, operation.site, "changed", None, asked, error.message, operation.at, error.remedy)
        )
        live.executor.stop()

    def doubts(self) -> list[str]:
        """The calls of this run that wait for a way out of their doubt."""
        return [call for call, why in self.gateway.waiting.items() if why == "in_doubt"]

    def abandoned(self, left: Collection[str]) -> list[Draft]:
        """The events by which calls whose tool may be left stay behind in doubt."""
        drafts, writer = [], self._writer
        for call in writer.open_calls():
            if call.tool_call_id in left and call.status == "dispatched" and call.intent_id is not None:
                revision = writer.intent(call.intent_id).revision + 1
                drafts.append(
                    Draft(
                        ToolDoubted(
                            intent_id=call.intent_id,
                            tool_call_id=call.tool_call_id,
                            revision=revision,
                            why="canceled",
                        )
                    )
                )
        return drafts

    def ended(self) -> None:
        """The run's end is durable."""
        self.gateway.ended()

    def close(self) -> None:
        self.gateway.close()
