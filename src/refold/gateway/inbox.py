"""Resolutions on their way: posted to a run's inbox by anybody, made events by the run's owner."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any, Literal

import msgspec

from refold.events.catalog.tool import Resolution, ToolResolved
from refold.events.content import Encoded
from refold.gateway.outcomes import shown
from refold.ledger.drafts import Draft
from refold.ledger.ledger import ScopedLedger
from refold.ledger.port import InboxItem
from refold.ledger.writer import StreamWriter
from refold.projections.rows import IntentRow

KIND = "tool.resolution"


class Posted(msgspec.Struct, frozen=True, kw_only=True):
    """A resolution as the inbox holds it. `revision` is the intent's when it was decided: another one has moved on.
    `result` is encoded, for `happened`. `by` says whether a person looked, or asked the tool's probe.
    """

    intent_id: str
    tool_call_id: str
    revision: int
    resolution: Resolution
    basis: str
    result: msgspec.Raw = msgspec.Raw(b"null")
    by: Literal["person", "probe"] = "person"


def post_key(posted: Posted) -> str:
    """One resolution a doubt: whoever comes second finds the first."""
    return f"{KIND}:{posted.intent_id}:{posted.revision}"


def read_posted(item: InboxItem) -> Posted:
    return msgspec.json.decode(item.payload, type=Posted)


def resolved_draft(posted: Posted, revision: int, actor: str, delivers: str | None = None) -> Draft:
    """The event that a resolution from outside becomes, whoever appends it and to whichever stream."""
    happened = posted.resolution == "happened"
    result = bytes(posted.result)
    content: dict[str, Any] = {"basis": posted.basis}
    if happened:
        content["result"] = Encoded(result)
    return Draft(
        ToolResolved(
            intent_id=posted.intent_id,
            tool_call_id=posted.tool_call_id,
            revision=revision,
            resolution=posted.resolution,
            by=posted.by,
        ),
        content=content,
        input=posted.basis,
        output=shown(result) if happened else None,
        actor=actor,
        delivers=delivers,
    )


class Resolutions:
    """The resolutions that are posted to one run, watched while somebody waits for one."""

    def __init__(self, scope: ScopedLedger, writer: StreamWriter) -> None:
        self._scope, self._writer = scope, writer
        self._asked: dict[str, asyncio.Future[InboxItem]] = {}
        self._orphans: set[str] = set()
        self._handed_out: set[str] = set()
        """Keys of items that whoever waited for them has; the inbox holds one until its event is appended."""
        self._watch: asyncio.Task[None] | None = None
        self._woken = asyncio.Event()

    async def next(self, intent_id: str) -> InboxItem:
        """The resolution of a doubt, when there is one. The item is delivered by the event that is made of it."""
        future: asyncio.Future[InboxItem] = asyncio.get_running_loop().create_future()
        self._asked[intent_id] = future
        self._start()
        try:
            return await future
        finally:
            self._asked.pop(intent_id, None)

    def adopt(self, intent_id: str) -> None:
        """Nobody waits for this doubt any more, and it is still open: its resolution is recorded as it comes."""
        self._orphans.add(intent_id)
        self._start()

    def wake(self) -> None:
        """Look again now."""
        self._woken.set()

    def close(self) -> None:
        """Stops watching."""
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None

    def _start(self) -> None:
        self._woken.set()
        if self._watch is None or self._watch.done():
            self._watch = asyncio.get_running_loop().create_task(self._look())

    async def _look(self) -> None:
        try:
            await self._deliver_all()
        except Exception as error:  # noqa: BLE001 - it is raised where the resolutions are awaited
            for future in self._asked.values():
                if not future.done():
                    future.set_exception(error)

    async def _deliver_all(self) -> None:
        changed = self._scope.ledger.store.changed
        while self._asked or self._orphans:
            self._writer.check()
            self._woken.clear()
            async with self._scope.reader() as reader:
                items = await reader.inbox(self._writer.stream)
            for item in items:
                if item.kind == KIND:
                    self._deliver(item)
            await first_of(changed, self._woken.wait)

    def _deliver(self, item: InboxItem) -> None:
        if item.key in self._handed_out:
            return
        posted = read_posted(item)
        row = intent_of(self._writer, posted.intent_id)
        if row is None or row.revision != posted.revision:
            return  # It was resolved, or went on, since.
        future = self._asked.get(posted.intent_id)
        if future is not None:
            if not future.done():
                self._handed_out.add(item.key)
                future.set_result(item)
        elif posted.intent_id in self._orphans:
            self._writer.append(resolved_draft(posted, row.revision + 1, item.actor, item.key))
            if posted.resolution != "abandon":
                self._orphans.discard(posted.intent_id)


def intent_of(writer: StreamWriter, intent_id: str) -> IntentRow | None:
    """An open intent as the writer has it; None when it has none of this id, or nothing more can happen to it."""
    with contextlib.suppress(KeyError):
        return writer.intent(intent_id)
    return None


async def first_of(*waits: Callable[[], Any]) -> None:
    """Returns when one of the waits has, and stops the others."""
    tasks = [asyncio.ensure_future(wait()) for wait in waits]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
