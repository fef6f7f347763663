"""The twin rule: an unsafe call without a key of its own waits for an equal one that is out, and takes an answer that
nobody got.
"""

from __future__ import annotations

import itertools
from collections import defaultdict

import msgspec

from refold.gateway.identity import Identity
from refold.gateway.inbox import intent_of
from refold.ledger.ledger import ScopedLedger
from refold.ledger.writer import StreamWriter
from refold.projections.rows import IntentRow, ToolCallRow

_UNDER_WAY = ("claimed", "dispatched", "in_doubt", "abandoned")
_ORDER = itertools.count()


class Flight(msgspec.Struct, eq=False):
    """A call under way in this process. `claimed`: it holds the intent. `over`: its `perform` has ended."""

    tool_call_id: str
    intent_id: str
    identity: Identity
    claimed: bool
    over: bool = False
    attempts_before: int = 0
    order: int = msgspec.field(default_factory=lambda: next(_ORDER))


class Twins:
    """The flights of one run by what they ask for, and the answers that were not delivered."""

    def __init__(self, scope: ScopedLedger, writer: StreamWriter) -> None:
        self._scope, self._writer = scope, writer
        self._flights: dict[str, list[Flight]] = defaultdict(list)
        self._undelivered: dict[str, None] = {}
        """Ids of calls, in order."""
        self._replayed: dict[str, set[str]] = defaultdict(set)
        self._reopened = writer.head.epoch > 1
        self._read: set[str] = set()

    def add(self, flight: Flight) -> None:
        self._flights[flight.identity.fingerprint].append(flight)

    def replayed(self, intent_id: str, tool_call_id: str) -> None:
        """Notes that a call was handed the answer of an intent."""
        self._replayed[intent_id].add(tool_call_id)

    def undelivered(self, tool_call_id: str) -> None:
        """Notes that the answer of a call went on record and did not reach the code."""
        self._undelivered[tool_call_id] = None

    async def earlier(self, flight: Flight) -> Flight | None:
        """The first equal call, made before this one, that has no outcome yet."""
        await self._read_open(flight.identity.fingerprint)
        flights = self._flights[flight.identity.fingerprint]
        flights[:] = [each for each in flights if not self._settled(each)]
        return next((each for each in flights if each.order < flight.order), None)

    def is_doubt(self, flight: Flight) -> bool:
        """Whether that one is in doubt, as far as is known here."""
        row = intent_of(self._writer, flight.intent_id)
        return row is not None and row.status in ("in_doubt", "abandoned")

    async def unclaimed_answer(self, flight: Flight) -> IntentRow | None:
        """An equal call's recorded answer that no code got; whoever asks for it must take it."""
        if not self._undelivered:
            return None
        await self._writer.barrier()
        async with self._scope.reader() as reader:
            for tool_call_id in self._undelivered:
                calls = await reader.rows(ToolCallRow, {"tool_call_id": tool_call_id})
                if not calls or calls[0].intent_id is None:
                    continue
                intent_id = calls[0].intent_id
                (row,) = await reader.rows(IntentRow, {"intent_id": intent_id})
                if row.fingerprint != flight.identity.fingerprint or row.status != "succeeded":
                    continue
                sites = await reader.rows(ToolCallRow, {"run_id": self._writer.stream.run_id, "intent_id": intent_id})
                holders = {each.tool_call_id for each in sites} | self._replayed[intent_id]
                if holders <= self._undelivered.keys():
                    return row
        return None

    def _settled(self, flight: Flight) -> bool:
        row = intent_of(self._writer, flight.intent_id)
        if row is None:
            return flight.claimed or flight.over
        if not flight.claimed:
            return flight.over
        return row.status not in _UNDER_WAY or (flight.over and row.status == "claimed")

    async def _read_open(self, fingerprint: str) -> None:
        """Equal calls of this run that an earlier process left open, some of which nobody will ask for again."""
        if not self._reopened or fingerprint in self._read:
            return
        self._read.add(fingerprint)
        state = self._writer.state.open
        known = {each.intent_id for each in self._flights[fingerprint]}
        for call in state.calls.values():
            row = None if call.intent_id is None else intent_of(self._writer, call.intent_id)
            if row is None or row.fingerprint != fingerprint or row.status not in _UNDER_WAY:
                continue
            if row.intent_id not in known:
                identity = Identity("derived", row.idempotency_key, None, fingerprint)
                left = Flight(call.tool_call_id, row.intent_id, identity, claimed=True, over=True, order=-1)
                self._flights[fingerprint].append(left)
            if row.status == "abandoned":
                self.undelivered(call.tool_call_id)
