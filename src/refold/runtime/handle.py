"""A run as whoever started it sees it."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from refold.errors import RefoldError
from refold.events.catalog.run import RunCreated
from refold.events.identity import Stream
from refold.events.values import UnknownType, ValueDamaged
from refold.ledger.errors import LedgerClosed, RunNotFound, StreamOwned
from refold.ledger.lookups import last_event, run_head
from refold.projections.rows import RunRow, ToolCallRow
from refold.runtime.errors import RunEnded, RunPaused, StepFailed
from refold.runtime.operations import Fields
from refold.runtime.record import read_fields
from refold.runtime.waiting import waits_of

if TYPE_CHECKING:
    from refold.runtime.opened import Refold
    from refold.runtime.running import Running

_STANDING = ("in_doubt", "diverged", "requested", "waiting")
"""Pauses that somebody else has to end."""
_STOPPED = {"canceled": "somebody told it to stop", "expired": "its deadline passed"}
_POLL = 1.0


class RunHandle:
    """A run's id, and what can be asked of it."""

    def __init__(self, opened: Refold, run_id: str) -> None:
        self._opened = opened
        self.id = run_id

    async def row(self) -> RunRow:
        """The run as it stands. Raises RunNotFound."""
        async with self._opened.scope.reader() as reader:
            rows = await reader.rows(RunRow, {"run_id": self.id})
        if not rows:
            raise RunNotFound(f"There is no run {self.id} in scope {self._opened.scope.scope}.", run=self.id)
        return rows[0]

    async def result(self) -> Any:
        """Waits until the run has ended, and returns what its workflow returned, read from the record.

        Raises RunEnded when it ended otherwise, RunPaused when it waits for a resolution, for other code, or for being
        resumed, itself or in a child (`child_run_id`); and why this process cannot go on with it (CodeUnavailable, a
        lost ledger).
        """
        while True:
            running = self._opened.running(self.id)
            if running is not None:
                running.moved.clear()
            row = await self.row()
            if row.ended_at is not None:
                return await self._value(row)
            if running is not None and running.error is not None and not isinstance(running.error, StreamOwned):
                raise running.error
            if self._opened.closed:
                raise LedgerClosed(f"The ledger was closed before run {self.id} had ended.", run_id=self.id)
            if row.status == "paused" and row.reason in _STANDING and (running is None or running.stands(row.reason)):
                raise await self._paused(row)
            await self._look_at_children(running)
            if running is not None and not running.over:
                with suppress(TimeoutError):
                    async with asyncio.timeout(_POLL):
                        await running.moved.wait()
            else:
                await self._opened.ledger.store.changed()

    async def _look_at_children(self, running: Running | None) -> None:
        """Raises the RunPaused of a child where the run waits for nothing that could still move by itself."""
        live = None if running is None or running.over else running.live
        if running is None or live is None or not live.rests:
            return
        waits = waits_of(running)
        if any(each.kind not in ("child", "signal") for each in waits):
            return
        for each in waits:
            if each.child is None:
                continue
            child = RunHandle(self._opened, each.child)
            row, there = await child.row(), self._opened.running(each.child)
            if row.status == "paused" and row.reason in _STANDING and (there is None or there.stands(row.reason)):
                paused = await child._paused(row)
                facts = {**paused.facts, "run_id": self.id, "child_run_id": each.child}
                raise RunPaused(f"Run {self.id} waits for its child. {paused.message}", **facts)

    async def _value(self, row: RunRow) -> Any:
        _, fields = await self._opened.end_of(self.id)
        if row.status != "succeeded":
            cause = self._cause(fields)
            raise self._ended(row, cause) from cause
        async with self._opened.scope.reader() as reader:
            created: RunCreated = (await reader.events(Stream.run(self.id), limit=1))[0].facts
        workflow = self._opened.app.find_workflow(created.workflow, created.workflow_version)
        return self._opened.app.codec.decode(fields["output"], workflow.result_hint)

    def _cause(self, fields: Fields) -> Exception | None:
        """What the workflow's code raised, as far as it can be made again."""
        if "error" not in fields:
            return None
        with suppress(UnknownType, ValueDamaged):
            return self._opened.app.codec.error(fields["error"])
        return None

    def _ended(self, row: RunRow, cause: Exception | None) -> RunEnded:
        said = row.error_message or row.error_code or _STOPPED.get(row.status) or "nothing more is said"
        return RunEnded(
            f"Run {self.id} {row.status}: {said.removesuffix('.')}.",
            remedy=cause.remedy if isinstance(cause, RefoldError) and not isinstance(cause, StepFailed) else None,
            run_id=self.id,
            status=row.status,
            error_code=row.error_code,
        )

    async def _paused(self, row: RunRow) -> RunPaused:
        facts: dict[str, Any] = {"run_id": self.id, "reason": row.reason}
        if row.reason == "in_doubt":
            async with self._opened.scope.reader() as reader:
                calls = await reader.rows(ToolCallRow, {"run_id": self.id, "status": "in_doubt"})
            facts["doubts"] = [call.tool_call_id for call in calls]
            what = f"it is not known how {', '.join(f'{call.tool} ({call.tool_call_id})' for call in calls)} ended"
        elif row.reason == "waiting":
            what = "it waits for a signal, or for a child run that does"
        elif row.reason == "diverged":
            facts["divergences"] = await self._divergences()
            what = _first_of(facts["divergences"])
        else:
            what = "somebody asked for it"
        return RunPaused(f"Run {self.id} is paused ({row.reason}): {what}.", **facts)

    async def _divergences(self) -> list[dict[str, Any]]:
        """What the record says of why it is paused as diverged."""
        stream = Stream.run(self.id)
        async with self._opened.scope.reader() as reader:
            head = (await run_head(reader, self.id)).head
            event = await last_event(reader, stream, "run.paused", head.seq)
            fields = {} if event is None else await read_fields(reader, stream, event)
        found: list[dict[str, Any]] = self._opened.app.codec.decode(fields["divergences"]) if fields else []
        return found


def _first_of(divergences: list[dict[str, Any]]) -> str:
    """What the first divergence says, and which line asked."""
    if not divergences:
        return "its code asks something else than its record holds"
    first = divergences[0]
    line = f" ({first['at']})" if first.get("at") else ""
    return f"{first['first_difference']}{line}"
