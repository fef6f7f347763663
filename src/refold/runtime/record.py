"""The record of a run as its executor reads it: events in order, page by page, with what their contents say."""

from __future__ import annotations

from collections import deque
from hashlib import sha256

import msgspec

from refold.events.content import ContentDamaged, StoredContent, decode_content, unseal
from refold.events.envelope import Event
from refold.events.identity import Stream
from refold.gateway.outcomes import read_artifact
from refold.ledger.errors import Erased
from refold.ledger.ledger import ScopedLedger
from refold.ledger.port import Reader
from refold.runtime.operations import Fields

_PAGE = 1000
_RESOLVED = frozenset({"inference.completed", "inference.failed"})
"""Types whose lists of parts are read at once, since code gets them: an answer is one message."""

_RESULTS = frozenset({"tool.answered", "tool.replayed", "tool.resolved"})
"""Types whose result an artifact may hold."""

_FIELDS = msgspec.json.Decoder(dict[str, msgspec.Raw])


class Record:
    """The events of a run's stream from one seq to another, for one pass in order."""

    def __init__(self, scope: ScopedLedger, run_id: str, after: int, upto: int) -> None:
        self._scope = scope
        self.stream = Stream.run(run_id)
        self._read = after
        self.upto = upto
        self._events: deque[tuple[Event, Fields]] = deque()

    @property
    def exhausted(self) -> bool:
        """Whether every event was taken."""
        return not self._events and self._read >= self.upto

    @property
    def unread(self) -> bool:
        """Whether a page must be read before the next event can be taken."""
        return not self._events and self._read < self.upto

    def take(self) -> tuple[Event, Fields] | None:
        """The next event; None when a page must be read first, or the record is exhausted."""
        return self._events.popleft() if self._events else None

    async def read(self) -> None:
        """Reads the next page. Raises Erased, ContentDamaged, ArtifactDamaged, UnknownEvent."""
        async with self._scope.reader() as reader:
            page = await reader.events(self.stream, self._read, self.upto, _PAGE)
            for event in page:
                fields = await read_fields(reader, self.stream, event)
                artifact = getattr(event.facts, "artifact_id", None)
                if artifact is not None and event.type in _RESULTS:
                    files, run_id = self._scope.ledger.files, self.stream.run_id
                    fields["result"] = msgspec.Raw(await read_artifact(reader, files, run_id, artifact))
                self._events.append((event, fields))
        self._read = page[-1].seq if page else self.upto


async def read_fields(reader: Reader, stream: Stream, event: Event, *, whole: bool = False) -> Fields:
    """An event's content, field by field, checked against its digest; `whole` with the messages of a request."""
    row = event.stored
    if row.content_digest is None:
        return {}
    if row.content is None:
        raise Erased(
            f"The content of event {event.seq} of {stream} was erased; its run cannot be replayed through its code.",
            stream=str(stream),
            seq=event.seq,
        )
    if sha256(row.content).digest() != row.content_digest:
        raise ContentDamaged(f"The content of event {event.seq} of {stream} does not match its digest.", seq=event.seq)
    stored = decode_content(row.content)
    fields = fields_of(stored)
    if stored.parts and (whole or event.type in _RESOLVED):
        for name, parts in stored.parts.items():
            values = [await _part(reader, stream, number) for number in parts.numbers()]
            fields[name] = msgspec.Raw(b"[%b]" % b",".join(values))
    return fields


def fields_of(stored: StoredContent) -> Fields:
    """The fields of a content that holds no lists of parts, or those beside them."""
    return _FIELDS.decode(stored.values)


async def _part(reader: Reader, stream: Stream, number: int) -> bytes:
    blob = await reader.blob(stream, number)
    if blob is None or blob.stored is None or sha256(blob.stored).digest() != blob.digest:
        raise ContentDamaged(f"Part {number} of {stream} is missing or does not match its digest.", part=number)
    return unseal(blob.stored)
