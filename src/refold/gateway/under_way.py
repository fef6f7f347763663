"""Attempts under way in this process, beyond the gateway that began them.

A run that loses a commit (two processes claim one key at once) is opened again in the same process. The calls that it
has out go on meanwhile; the resumed run takes their answers from here instead of being in doubt about them.
"""

from __future__ import annotations

from typing import NamedTuple
from weakref import WeakKeyDictionary

from refold.events.identity import Scope
from refold.gateway.attempts import Attempt
from refold.gateway.calls import CurrentCall
from refold.gateway.inbox import intent_of
from refold.ledger.ledger import Ledger, ScopedLedger
from refold.ledger.writer import StreamWriter


class OnItsWay(NamedTuple):
    """An attempt, and its number among those of its intent."""

    number: int
    attempt: Attempt
    current: CurrentCall
    run_id: str


_ATTEMPTS: WeakKeyDictionary[Ledger, dict[tuple[Scope, str], OnItsWay]] = WeakKeyDictionary()


class UnderWay:
    """The attempts of one run."""

    def __init__(self, scope: ScopedLedger, writer: StreamWriter) -> None:
        self._scope, self._writer = scope.scope, writer
        self._all = _ATTEMPTS.setdefault(scope.ledger, {})

    def add(self, intent_id: str, number: int, attempt: Attempt, current: CurrentCall) -> None:
        self._all[self._scope, intent_id] = OnItsWay(number, attempt, current, self._writer.stream.run_id)

    def find(self, intent_id: str, number: int) -> OnItsWay | None:
        """The attempt of this number, if this process began it."""
        found = self._all.get((self._scope, intent_id))
        return found if found is not None and found.number == number else None

    def forget(self, intent_id: str) -> None:
        """Says that the attempt is followed by another, whatever it said."""
        self._all.pop((self._scope, intent_id), None)

    def forget_all(self) -> None:
        """Says that the run has ended."""
        for key in [key for key, found in self._all.items() if found.run_id == self._writer.stream.run_id]:
            del self._all[key]

    async def durable(self) -> None:
        """The writer's barrier. Attempts whose answers it makes durable are forgotten; until then they could be lost
        with their commit.
        """
        answered = [
            key
            for key, found in self._all.items()
            if found.run_id == self._writer.stream.run_id and self._is_settled(key[1])
        ]
        await self._writer.barrier()
        for key in answered:
            self._all.pop(key, None)

    def _is_settled(self, intent_id: str) -> bool:
        row = intent_of(self._writer, intent_id)
        return row is None or row.status in ("succeeded", "failed")
