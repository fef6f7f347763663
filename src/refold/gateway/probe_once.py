"""Asking a tool's probe about a call in doubt from outside its run, once and now: for whoever resolves it."""

from __future__ import annotations

from typing import Any

from refold.errors import RefoldError
from refold.events.identity import Stream
from refold.events.values import Registry
from refold.gateway.doubt import find_call
from refold.gateway.errors import NotInDoubt, TooEarly
from refold.gateway.identity import downstream_key
from refold.gateway.outcomes import fields_of
from refold.gateway.probing import ask
from refold.gateway.resolutions import DidNotHappen, Happened
from refold.gateway.sweeping import doubt_abandoned_stream
from refold.gateway.tools import Doubt, Tool
from refold.ledger.ledger import ScopedLedger
from refold.projections.rows import IntentRow, ToolCallRow


class NoProbe(RefoldError):
    """The tool declares no probe: there is no code that could ask the other side."""

    code = "no_probe"
    exit_status = 6
    remedy = "Ask the other side yourself, and resolve the call by what it says."


class ProbeCannotTell(RefoldError):
    """The probe was asked and could not say whether the call happened. Nothing was recorded."""

    code = "probe_cannot_tell"
    exit_status = 6
    remedy = "Ask again later, or ask the other side yourself and resolve the call by what it says."


async def probe_once(
    scope: ScopedLedger, tool: Tool[Any, Any], tool_call_id: str, types: Registry | None = None
) -> Happened | DidNotHappen:
    """What the probe says now, if that counts. Nothing is recorded, except that a call whose process died is in doubt.

    Raises NoSuchCall, NotInDoubt, NoProbe, ProbeCannotTell, TooEarly ("did not happen" before that can be known),
    Erased.
    """
    if tool.probe is None:
        raise NoProbe(f"Tool {tool.name} has no probe.", tool=tool.name)
    call, row = await _doubted(scope, tool_call_id)
    settles_us = row.settles_us or row.deadline_us or 0
    settled = scope.ledger.clock.now() >= settles_us
    answer = await ask(tool, await _doubt(scope, tool, call, row, types))
    if isinstance(answer, DidNotHappen) and not settled:
        raise TooEarly(
            f"The probe says that {tool_call_id} did not happen, and that cannot be known before its deadline settled.",
            tool_call_id=tool_call_id,
            until=settles_us,
        )
    if isinstance(answer, Happened | DidNotHappen):
        return answer
    raise ProbeCannotTell(f"The probe of {tool.name} cannot tell how {tool_call_id} ended.", tool_call_id=tool_call_id)


async def _doubted(scope: ScopedLedger, tool_call_id: str) -> tuple[ToolCallRow, IntentRow]:
    async with scope.reader() as reader:
        call, row = await find_call(reader, tool_call_id)
    if row.status == "dispatched" and await doubt_abandoned_stream(scope, call.run_id):
        async with scope.reader() as reader:
            call, row = await find_call(reader, tool_call_id)
    if row.status not in ("in_doubt", "abandoned"):
        raise NotInDoubt(
            f"Tool call {tool_call_id} is {row.status}: there is no doubt about it.",
            tool_call_id=tool_call_id,
            status=row.status,
        )
    return call, row


async def _doubt(
    scope: ScopedLedger, tool: Tool[Any, Any], call: ToolCallRow, row: IntentRow, types: Registry | None
) -> Doubt:
    async with scope.reader() as reader:
        (event,) = await reader.events(Stream.run(call.run_id), call.seq - 1, call.seq)
    return Doubt(
        downstream_key(scope.secret, row.intent_id, row.settled),
        tool.name,
        tool.decode_arguments(fields_of(event)["arguments"], types),
        call.tool_call_id,
        row.intent_id,
        row.attempts,
        row.deadline_us,
    )
