"""What stands in for the runtime: it performs calls, appends what comes out, and gives the code its outcome."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from refold.clock import Clock
from refold.events.catalog.run import RunCreated, RunStarted, RunSucceeded
from refold.events.envelope import Event
from refold.events.identity import Stream
from refold.events.values import Registry
from refold.gateway.gateway import Gateway
from refold.gateway.outcomes import outcome, read_fields
from refold.gateway.records import Call
from refold.gateway.retry import Retry
from refold.gateway.tools import Tool
from refold.gateway.under_way import _ATTEMPTS
from refold.ledger.drafts import Draft
from refold.ledger.ledger import Ledger, ScopedLedger, open_ledger
from refold.ledger.writer import StreamWriter
from refold.projections.rows import IntentRow, ToolCallRow
from refold.runtime.frontier import Role, role_of
from tests.invariants.checks import check_all

ONCE = Retry(attempts=1)
AT_ONCE = Retry(attempts=3, first=0.0)


class Run:
    """A run whose code is the test's."""

    def __init__(self, scope: ScopedLedger, writer: StreamWriter, domain: str, types: Registry | None = None) -> None:
        ledger = scope.ledger
        self.scope, self.writer, self.types = scope, writer, types
        self.gateway = Gateway(scope, writer, domain, ledger.clock, ledger.ids, types)
        self.sites = 0

    @property
    def id(self) -> str:
        return self.writer.stream.run_id

    def call(
        self, tool: Tool[Any, Any], *args: Any, site: str | None = None, key: str | None = None, **kwargs: Any
    ) -> Call:
        """A call at the next site, or at a named one."""
        self.sites += 1
        arguments = tool.bind(*args, **kwargs)
        new = self.scope.ledger.ids.new
        return Call(
            tool=tool,
            arguments=arguments,
            encoded=tool.encode_arguments(arguments, self.types),
            site=site or f"1//{tool.name}#{self.sites}",
            step_id=new("st"),
            tool_call_id=new("tc"),
            intent_id=new("int"),
            key=key,
        )

    async def recorded(self, tool: Tool[Any, Any], *args: Any, **kwargs: Any) -> Call:
        """The call of this tool that the run's record holds and that has no outcome, as a resumed run asks for it."""
        async with self.scope.reader() as reader:
            rows = await reader.rows(ToolCallRow, {"run_id": self.id})
            row = next(row for row in rows if row.tool == tool.name and self.writer.awaits(row.tool_call_id))
            (event,) = await reader.events(self.writer.stream, row.seq - 1, row.seq)
        call = self.call(tool, *args, site=event.site, **kwargs)
        assert row.intent_id is not None
        call.step_id, call.tool_call_id, call.intent_id, call.recorded = (
            row.run_step_id,
            row.tool_call_id,
            row.intent_id,
            True,
        )
        return call

    async def delivery(self, call: Call) -> Event:
        """Performs a call and puts its outcome on record."""
        drafts = await self.gateway.perform(call)
        events = [self.writer.append(draft) for draft in drafts]
        assert role_of(events[0]) is Role.OUTCOME
        return events[0]

    async def result(self, call: Call) -> Any:
        """What the code gets; the record, read back, must give the same."""
        event = await self.delivery(call)
        fields = self.gateway.content(event)
        await self.writer.barrier()
        async with self.scope.reader() as reader:
            (stored,) = await reader.events(self.writer.stream, event.seq - 1, event.seq)
            again = await read_fields(reader, self.scope.ledger.files, self.id, stored)
        assert again == fields
        return outcome(event, fields, call.tool, self.types)

    async def make(self, tool: Tool[Any, Any], *args: Any, **kwargs: Any) -> Any:
        """Calls a tool at the next site."""
        return await self.result(self.call(tool, *args, **kwargs))

    async def types_of_events(self) -> list[str]:
        await self.writer.barrier()
        return [event.type async for event in self.scope.read(self.writer.stream)]

    async def intent(self, tool: str) -> IntentRow:
        await self.writer.barrier()
        async with self.scope.reader() as reader:
            (row,) = await reader.rows(IntentRow, {"tool": tool})
        return row

    async def crash(self) -> None:
        """The process is gone, as far as others can tell: what was not committed is lost, and nobody has the stream."""
        self.gateway.close()
        _ATTEMPTS.clear()
        await self.scope.ledger.store.release(self.scope.scope, self.writer.stream, self.writer.head.epoch)
        self.writer._released = True

    async def resume(self, domain: str = "domain") -> Run:
        return Run(self.scope, await self.scope.writer(self.writer.stream), domain, self.types)

    async def end(self) -> None:
        self.gateway.close()
        self.writer.append(Draft(RunSucceeded()))
        await self.writer.close()


async def start(scope: ScopedLedger, domain: str = "domain", types: Registry | None = None, **facts: Any) -> Run:
    writer = await scope.create(Draft(RunCreated("w", domain, "root", **facts)))
    assert isinstance(writer, StreamWriter)
    writer.append(Draft(RunStarted()))
    await writer.barrier()
    return Run(scope, writer, domain, types)


@asynccontextmanager
async def ledger_at(folder: Path, clock: Clock | None = None) -> AsyncIterator[ScopedLedger]:
    """A ledger for a test, and every invariant of it afterwards."""
    async with await open_ledger(folder / "ledger.db", clock=clock) as ledger:
        yield ledger.scope()
    check_all(folder / "ledger.db")


__all__ = ["AT_ONCE", "ONCE", "Ledger", "Run", "Stream", "ledger_at", "start"]
