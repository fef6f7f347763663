"""The record of a run as its executor reads it: events in order, page by page, with what their contents say."""

from __future__ import annotations

from collections import deque

import msgspec

from refold.events.content import OpenedContent, open_content
from refold.events.envelope import Event
from refold.events.identity import Stream
from refold.gateway.outcomes import read_artifact
from refold.ledger.ledger import ScopedLedger
from refold.ledger.port import Reader
from refold.ledger.reading import checked_content, part_payload
from refold.runtime.operations import Fields

_PAGE = 1000
_RESOLVED = frozenset({"inference.completed", "inference.failed"})
"""Types whose lists of parts are read at once, since code gets them: an answer is one message."""

_RESULTS = frozenset({"tool.answered", "tool.replayed", "tool.resolved"})
"""Types whose result an artifact may hold."""


class Record:
    """The events of a run's stream from one seq to another, for one pass in order."""

    def __init__(self, scope: ScopedLedger, run_id: str, after: int, upto: int) -> None:
        self._scope = scope
        self.stream = Stream.run(run_id)
        self._read = after
        self.upto = upto
        self.events: deque[tuple[Event, Fields]] = deque()
        """Those that were read and not taken yet."""

    @property
    def exhausted(self) -> bool:
        """Whether every event was taken."""
        return not self.events and self._read >= self.upto

    @property
    def unread(self) -> bool:
        """Whether a page must be read before the next event can be taken."""
        return not self.events and self._read < self.upto

    def take(self) -> tuple[Event, Fields] | None:
        """The next event; None when a page must be read first, or the record is exhausted."""
        return self.events.popleft() if self.events else None

    async def read(self) -> None:
        """Reads the next page. Raises Erased, ContentDamaged, ArtifactDamaged, UnknownEvent."""
        async with self._scope.reader() as reader:
            page = await reader.delivering(self.stream, self._read, self.upto, _PAGE)
            for event, digest, content in page:
                if digest is None:
                    self.events.append((event, {}))
                    continue
                opened = _opened(self.stream, event, digest, content)
                fields = opened.values
                if opened.parts and event.type in _RESOLVED:
                    await _read_parts(reader, self.stream, opened)
                artifact = getattr(event.facts, "artifact_id", None) if event.type in _RESULTS else None
                if artifact is not None:
                    files, run_id = self._scope.ledger.files, self.stream.run_id
                    result = await read_artifact(reader, files, run_id, artifact)
                    fields["result"] = msgspec.Raw(result)
                self.events.append((event, fields))
        self._read = page[-1][0].seq if page else self.upto


async def read_fields(reader: Reader, stream: Stream, event: Event, *, whole: bool = False) -> Fields:
    """An event's content, field by field, checked against its digest; `whole` with the messages of a request."""
    row = event.stored
    if row.content_digest is None:
        return {}
    opened = _opened(stream, event, row.content_digest, row.content)
    if opened.parts and (whole or event.type in _RESOLVED):
        await _read_parts(reader, stream, opened)
    return opened.values


def _opened(stream: Stream, event: Event, digest: bytes, content: bytes | None) -> OpenedContent:
    return open_content(checked_content(content, digest, event.seq, str(stream)))


async def _read_parts(reader: Reader, stream: Stream, opened: OpenedContent) -> None:
    for name, parts in opened.parts.items():
        values = [await part_payload(reader, stream, number) for number in parts.numbers()]
        opened.values[name] = msgspec.Raw(b"[%b]" % b",".join(values))
