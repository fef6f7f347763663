"""A recording, read whole: what was asked, in order, and what came back."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from hashlib import sha256
from typing import Any

from refold.events import values
from refold.events.content import ContentDamaged, StoredContent, decode_content, unseal
from refold.events.envelope import Event
from refold.events.identity import Stream, keyed_digest
from refold.interop.record.bodies import kept_value
from refold.interop.record.errors import NotARecording
from refold.interop.record.session import FINGERPRINT, RULES, fingerprinted
from refold.interop.record.traffic import Sent
from refold.ledger.errors import Erased
from refold.ledger.ledger import ScopedLedger
from refold.ledger.lookups import each_event
from refold.ledger.port import Reader


class Recorded:
    """One recorded request. `ended` is None where its answer never came on record."""

    def __init__(self, seq: int, step_id: str, content: StoredContent, parts: Mapping[int, bytes]) -> None:
        self.seq = seq
        self.step_id = step_id
        self.answer: dict[str, Any] = {}
        self._content = content
        self._parts = parts

    @property
    def ended(self) -> str | None:
        return self.answer.get("ended")

    def request(self) -> dict[str, Any]:
        """What was matched: method, URL, body. Made anew each time: a conversation's requests are large together."""
        fields = values.decode(bytes(self._content.values))["request"]
        parts = {
            name: [values.decode(unseal(self._parts[number])) for number in each.numbers()]
            for name, each in self._content.parts.items()
        }
        return {"method": fields["method"], "url": fields["url"], "body": kept_value(fields, parts)}


class Library:
    """The requests of one recording by fingerprint, each list in the order in which they were sent."""

    def __init__(self, run_id: str, secret: bytes, recorded: list[tuple[str, Recorded]]) -> None:
        self.run_id = run_id
        self._secret = secret
        self.requests = [each for _, each in recorded]
        self._waiting: dict[str, list[Recorded]] = defaultdict(list)
        self._known: set[str] = set()
        for fingerprint, each in reversed(recorded):
            self._waiting[fingerprint].append(each)
            self._known.add(fingerprint)

    def take(self, sent: Sent) -> Recorded | None:
        """The next recorded request that equals this one; it is used up with that."""
        waiting = self._waiting.get(self._fingerprint(sent))
        return waiting.pop() if waiting else None

    def knows(self, sent: Sent) -> bool:
        """Whether an equal request was recorded at all."""
        return self._fingerprint(sent) in self._known

    def unused(self) -> list[Recorded]:
        """What nobody has asked for, in order."""
        return sorted((each for waiting in self._waiting.values() for each in waiting), key=lambda each: each.seq)

    def _fingerprint(self, sent: Sent) -> str:
        return keyed_digest(self._secret, FINGERPRINT, fingerprinted(sent)).hex()


async def read_library(scope: ScopedLedger, run_id: str) -> Library:
    """The recording that a run is. Raises RunNotFound, NotARecording, Erased, ContentDamaged."""
    run_id = await scope.resolve_run(run_id)
    stream = Stream.run(run_id)
    recorded: list[tuple[str, Recorded]] = []
    by_step: dict[str, Recorded] = {}
    async with scope.reader() as reader:
        parts = await _parts(reader, stream)
        async for event in each_event(reader, stream, page=64):
            if event.type == "run.created" and event.facts.engine != RULES:
                raise NotARecording(f"{run_id} is no recording that can be replayed here.", run_id=run_id)
            if event.type == "inference.requested":
                each = Recorded(event.seq, event.facts.step_id, _content(event, stream), parts)
                recorded.append((event.facts.fingerprint, each))
                by_step[each.step_id] = each
            elif event.type in ("inference.completed", "inference.failed"):
                by_step[event.facts.step_id].answer = values.decode(bytes(_content(event, stream).values))
    return Library(run_id, scope.secret, recorded)


def _content(event: Event, stream: Stream) -> StoredContent:
    row = event.stored
    if row.content is None:
        raise Erased(f"The content of event {event.seq} of {stream} was erased.", stream=str(stream), seq=event.seq)
    if sha256(row.content).digest() != row.content_digest:
        raise ContentDamaged(f"The content of event {event.seq} of {stream} does not match its digest.", seq=event.seq)
    return decode_content(row.content)


async def _parts(reader: Reader, stream: Stream) -> dict[int, bytes]:
    """The run's parts as they are stored, each once however many requests it stands in."""
    found: dict[int, bytes] = {}
    last = 0
    while page := await reader.blobs(stream, last):
        for blob in page:
            if blob.stored is None:
                raise Erased(f"Part {blob.number} of {stream} was erased.", stream=str(stream))
            if sha256(blob.stored).digest() != blob.digest:
                raise ContentDamaged(f"Part {blob.number} of {stream} does not match its digest.", part=blob.number)
            found[blob.number] = blob.stored
        last = page[-1].number
    return found
