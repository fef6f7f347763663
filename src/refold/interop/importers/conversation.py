"""What a model was sent: the messages so far, as numbered parts of the run; and the calls that wait for
their results.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from typing import NamedTuple

from refold.events.content import PartChain, PartList
from refold.ledger.ledger import ScopedLedger
from refold.ledger.writer import Part, StreamWriter

_PAGE = 5000


def only(part: Part) -> PartList:
    """The part list of one part."""
    chain = PartChain()
    chain.add(part.number, part.leaf)
    return chain.as_list()


class Conversation:
    """The messages so far. Keeps one small number a record of the source, so that a compaction can go back to any of
    them.
    """

    def __init__(self) -> None:
        self._parts = array("I")
        self._chain = PartChain()

    def note(self, record: int, part: int | None, *, replaces: bool = False) -> None:
        """Remembers which part a record became; `replaces` marks a summary, which is no message of its own record."""
        while len(self._parts) < record - 1:
            self._parts.append(0)
        self._parts.append(0 if part is None or replaces else part)

    def add(self, part: Part) -> None:
        """Puts a message at the end."""
        self._chain.add(part.number, part.leaf)

    def messages(self) -> PartList:
        return self._chain.as_list()

    async def rebuild(
        self, scope: ScopedLedger, writer: StreamWriter, summary: int | None = None, first_kept: int = 1
    ) -> None:
        """Starts again from a summary and the messages of the records from `first_kept` on, proofs read from the
        ledger.

        Everything must be durable.
        """
        kept = (number for number in self._parts[max(0, first_kept - 1) :] if number)
        numbers = [*([] if summary is None else [summary]), *kept]
        self._chain = await _chain_of(scope, writer, numbers)


async def _chain_of(scope: ScopedLedger, writer: StreamWriter, numbers: Iterable[int]) -> PartChain:
    chain = PartChain()
    page: dict[int, bytes] = {}
    async with scope.reader() as reader:
        for number in numbers:
            if number not in page:
                page = dict(await reader.leaves(writer.stream, number - 1, _PAGE))
            chain.add(number, page[number])
    return chain


class OpenCall(NamedTuple):
    """A call whose result has not been seen. `turn` is the seq of the answer that asked for it, `seq` its own."""

    tool_call_id: str
    intent_id: str
    step_id: str
    turn: int
    seq: int


class OpenCalls:
    """Calls without a result, by the model's own id of the call, which is not unique.

    A result belongs to the latest turn that has an open call of its id, and in that turn to the first of them.
    """

    def __init__(self) -> None:
        self._calls: dict[str, list[OpenCall]] = {}

    def add(self, provider_id: str, call: OpenCall) -> None:
        self._calls.setdefault(provider_id, []).append(call)

    def take(self, provider_id: str) -> OpenCall | None:
        """The call that a result with this id answers; None for an orphan."""
        waiting = self._calls.get(provider_id)
        if not waiting:
            return None
        turn = waiting[-1].turn
        place = next(place for place, call in enumerate(waiting) if call.turn == turn)
        call = waiting.pop(place)
        if not waiting:
            del self._calls[provider_id]
        return call
