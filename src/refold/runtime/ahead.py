"""Outcomes that the record has next, for code of which nothing else is ready: they need not go through the loop."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from refold.events.envelope import Event
from refold.events.values import UnknownType, ValueDamaged
from refold.runtime.frontier import Role, kinds_of, role_of
from refold.runtime.operations import Ask, Fields
from refold.runtime.places import Place
from refold.runtime.sites import Sites

if TYPE_CHECKING:
    from refold.runtime.executor import Executor

Events = deque[tuple[Event, Fields]]
Known = tuple[Event, object, Exception | None]
"""A recorded outcome: what the code gets, or what it gets raised."""


async def answer(executor: Executor, ask: Ask, place: Place | None) -> Any:
    """Asks for an operation and awaits it; `place` is the line that asks. Raises OutsideRun, and what the outcome
    raises.
    """
    site = executor.site(ask)
    known = executor.ahead(site, ask)
    if known is None:
        return await executor.register(ask, site, place)
    _, value, error = known
    if error is not None:
        raise error
    return value


def take_outcome(events: Events, sites: Sites, site: str, ask: Ask) -> Known | None:
    """Takes the outcome of the operation at a site, and what stands before it. None, and nothing is taken, where the
    code is told something else before, or has parted from the record.
    """
    count = _events_to_outcome(events, sites, site, ask)
    if not count:
        return None
    event, fields = events[count - 1]
    value, error = None, None
    try:
        value = ask.outcome(event, fields)
    except (UnknownType, ValueDamaged):
        return None
    except Exception as raised:  # noqa: BLE001 - the outcome is this exception
        error = raised
    for _ in range(count):
        events.popleft()
    return event, value, error


def _events_to_outcome(events: Iterable[tuple[Event, Fields]], sites: Sites, site: str, ask: Ask) -> int:
    count = 0
    for event, fields in events:
        count += 1
        role = role_of(event)
        if role is Role.NONE:
            continue
        if role is not Role.OUTCOME and role is not Role.PROGRESS:
            return 0
        if sites.of(event) != site or ask.kind not in kinds_of(event) or ask.difference(event, fields) is not None:
            return 0
        if role is Role.OUTCOME:
            return count
    return 0
