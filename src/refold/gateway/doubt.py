"""Resolving a doubt from outside: by a person, in any process, whether or not the run's owner lives."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import msgspec

from refold.events import values
from refold.events.identity import Stream
from refold.events.values import Registry
from refold.gateway.errors import AlreadyResolved, NoSuchCall, NotInDoubt, TooEarly
from refold.gateway.inbox import KIND, Posted, intent_of, post_key, read_posted, resolved_draft
from refold.gateway.outcomes import fields_of
from refold.gateway.receipts import receipt_event
from refold.gateway.resolutions import NAMES, Decision, Happened
from refold.gateway.sweeping import doubt_open_calls
from refold.ledger.errors import Erased, StreamClosed, StreamOwned
from refold.ledger.ledger import ScopedLedger
from refold.ledger.port import InboxItem, Reader
from refold.ledger.writer import StreamWriter
from refold.projections.rows import IntentRow, ToolCallRow

_PATIENCE = 10
"""Seconds that a resolution waits for the run's owner to take it."""


class Resolved(NamedTuple):
    """What became of a resolution: `recorded` in the run or its annex, `posted` to the run's owner, who records it as
    he delivers it, or there `already`.
    """

    run_id: str
    intent_id: str
    how: Literal["recorded", "posted", "already"]


async def resolve(
    scope: ScopedLedger,
    tool_call_id: str,
    resolution: Decision,
    *,
    basis: str,
    by: str,
    types: Registry | None = None,
    hint: Any = None,
    via: Literal["person", "probe"] = "person",
) -> Resolved:
    """Settles a call in doubt. `basis` is what it relies on, `by` who decides; both are on record for good. `hint` is
    the annotation of a result that happened, its class where none is given. `via` the tool's probe, for what
    `refold.gateway.probe_once` found.

    The same again changes nothing. Raises NoSuchCall, NotInDoubt, TooEarly, AlreadyResolved, NotRecordable.
    """
    while True:
        async with scope.reader() as reader:
            call, row = await find_call(reader, tool_call_id)
        posted = _posted(tool_call_id, row, resolution, basis, types, hint)
        posted = msgspec.structs.replace(posted, by=via)
        if await _is_there(scope, row, posted):
            return Resolved(call.run_id, row.intent_id, "already")
        resolved = await _record(scope, call, row, posted, by) or await _post(scope, call, row, posted, by)
        if resolved is not None:
            return resolved


async def taken(scope: ScopedLedger, posted: Resolved) -> None:
    """Waits until the run's owner has made a posted resolution a fact, or does not take it in time."""
    clock = scope.ledger.clock
    deadline = clock.monotonic() + _PATIENCE * 1_000_000_000
    while clock.monotonic() < deadline:
        async with scope.reader() as reader:
            rows = await reader.rows(IntentRow, {"intent_id": posted.intent_id})
        if not rows or rows[0].status != "in_doubt":
            return
        await scope.ledger.store.changed()


async def _record(
    scope: ScopedLedger, call: ToolCallRow, row: IntentRow, posted: Posted, by: str, delivers: str | None = None
) -> Resolved | None:
    """Records a resolution in the run or its annex; None when a living process has the run."""
    try:
        writer = await scope.writer(Stream.run(call.run_id))
    except StreamOwned:
        _check(scope, row, posted)
        return None
    except StreamClosed:
        async with await scope.writer(Stream.annex(call.run_id)) as writer:
            await writer.adopt_intents(row.intent_id)
            return _append(scope, writer, call, posted, by, None)
    async with writer:
        doubt_open_calls(writer, scope.ledger.clock)
        return _append(scope, writer, call, posted, by, delivers)


async def find_call(reader: Reader, tool_call_id: str) -> tuple[ToolCallRow, IntentRow]:
    """A call that sent something, and its intent. Raises NoSuchCall, NotInDoubt."""
    calls = await reader.rows(ToolCallRow, {"tool_call_id": tool_call_id})
    if not calls:
        raise NoSuchCall(f"There is no tool call {tool_call_id} in scope {reader.scope}.", tool_call_id=tool_call_id)
    call = calls[0]
    rows = await reader.rows(IntentRow, {"intent_id": call.intent_id}) if call.intent_id else []
    if not rows or call.mode != "executed" or rows[0].owner_run_id != call.run_id:
        raise NotInDoubt(
            f"Tool call {tool_call_id} did not send anything that is in doubt.",
            tool_call_id=tool_call_id,
            owner=rows[0].owner_run_id if rows else None,
        )
    return call, rows[0]


def _posted(
    tool_call_id: str, row: IntentRow, resolution: Decision, basis: str, types: Registry | None, hint: Any
) -> Posted:
    result = b"null"
    if isinstance(resolution, Happened):
        given = resolution.result
        result = values.encode(given, types=types, hint=type(given) if hint is None else hint)
    return Posted(
        intent_id=row.intent_id,
        tool_call_id=tool_call_id,
        revision=row.revision,
        resolution=NAMES[type(resolution)],
        basis=basis,
        result=msgspec.Raw(result),
    )


async def _is_there(scope: ScopedLedger, row: IntentRow, posted: Posted) -> bool:
    """Whether the doubt was resolved in this way before. Raises AlreadyResolved for another way."""
    if row.status in ("in_doubt", "dispatched") or (row.status == "abandoned" and posted.resolution != "abandon"):
        return False
    if row.resolution is None:
        raise _no_doubt(posted, row)
    same = row.resolution == posted.resolution
    if same and posted.resolution == "happened":
        async with scope.reader() as reader:
            try:
                recorded = fields_of(await receipt_event(reader, row)).get("result")
            except Erased:
                recorded = None
        same = recorded is None or values.canonical(recorded) == values.canonical(bytes(posted.result))
    if same:
        return True
    raise _resolved_otherwise(posted, row.resolution)


def _check(scope: ScopedLedger, row: IntentRow, posted: Posted) -> None:
    """Raises NotInDoubt, TooEarly."""
    if row.status not in ("in_doubt", "abandoned"):
        raise _no_doubt(posted, row)
    until = row.settles_us or row.deadline_us or 0
    if posted.resolution == "did_not_happen" and scope.ledger.clock.now() < until:
        raise TooEarly(
            f"Tool call {posted.tool_call_id} may still happen; nobody can know before its deadline has settled.",
            tool_call_id=posted.tool_call_id,
            until=until,
        )


def _append(
    scope: ScopedLedger, writer: StreamWriter, call: ToolCallRow, posted: Posted, by: str, delivers: str | None
) -> Resolved:
    row = intent_of(writer, posted.intent_id)
    if row is None:
        raise NotInDoubt(f"Tool call {posted.tool_call_id} has just been settled.", tool_call_id=posted.tool_call_id)
    _check(scope, row, posted)
    writer.append(resolved_draft(posted, row.revision + 1, by, delivers))
    return Resolved(call.run_id, posted.intent_id, "recorded")


async def _post(scope: ScopedLedger, call: ToolCallRow, row: IntentRow, posted: Posted, by: str) -> Resolved | None:
    """Asks the run's owner to record a resolution; at most one a doubt. None: another has just been recorded."""
    key = post_key(posted)
    if await scope.post(call.run_id, key, KIND, msgspec.json.encode(posted), by):
        if await scope.is_written(Stream.run(call.run_id)):
            return Resolved(call.run_id, row.intent_id, "posted")
        # The owner let go in between, and nobody reads its inbox.
        recorded = await _record(scope, call, row, posted, by, key)
        return recorded or Resolved(call.run_id, row.intent_id, "posted")
    first = await _first(scope, call.run_id, key)
    if first is None:
        return None
    if (first.resolution, bytes(first.result)) != (posted.resolution, bytes(posted.result)):
        raise _resolved_otherwise(posted, first.resolution)
    return Resolved(call.run_id, row.intent_id, "already")


async def _first(scope: ScopedLedger, run_id: str, key: str) -> Posted | None:
    async with scope.reader() as reader:
        items: list[InboxItem] = await reader.inbox(Stream.run(run_id))
    return next((read_posted(item) for item in items if item.key == key), None)


def _no_doubt(posted: Posted, row: IntentRow) -> NotInDoubt:
    return NotInDoubt(
        f"Tool call {posted.tool_call_id} is {row.status}: there is no doubt about it.",
        tool_call_id=posted.tool_call_id,
        status=row.status,
    )


def _resolved_otherwise(posted: Posted, first: Any) -> AlreadyResolved:
    return AlreadyResolved(
        f"Tool call {posted.tool_call_id} was resolved as {first} before.",
        tool_call_id=posted.tool_call_id,
        resolution=str(first),
    )
