"""The envelope of an event, and the chain.

    hash = SHA-256(header | type | actor | site | facts)

The header is one fixed big-endian struct (`HEADER`); the four variable parts follow it, their lengths stand in it, so
that no two different events have the same bytes. `docs/format.md` publishes the layout with test vectors; a verifier
in another language needs nothing else.
"""

from __future__ import annotations

import struct
from hashlib import sha256
from typing import Any, NamedTuple

import msgspec

from refold.events.content import ContentDamaged
from refold.events.identity import Scope, Stream

FORMAT = 1
"""Version of the envelope and of the bytes under the hash."""

GENESIS = bytes(32)
"""Previous hash of a stream's first event."""

NO_DIGEST = bytes(32)
NO_TIME = -(1 << 63)

# format, previous hash, scope digest, stream kind, stream ULID, seq, type version, epoch, recorded_at, occurred_at,
# cause, content digest, view digest, lengths of type, actor, site and facts
HEADER = struct.Struct(">B32s16sB16sQIQqqQ32s32sIIII")


class Head(NamedTuple):
    """Where a stream stands: the seq and hash of its last event, and the epoch of its writer."""

    seq: int
    hash: bytes
    epoch: int


class Chain(NamedTuple):
    """What all events of one stream share under the hash."""

    scope_digest: bytes
    stream: Stream

    def hash(
        self,
        previous: bytes,
        seq: int,
        type_: bytes,
        version: int,
        epoch: int,
        recorded_at: int,
        occurred_at: int | None,
        actor: bytes,
        site: bytes,
        cause: int | None,
        facts: bytes,
        content_digest: bytes | None,
        view_digest: bytes | None,
        format_: int = FORMAT,
    ) -> bytes:
        """The 32 bytes that bind an event to everything before it in its stream."""
        header = HEADER.pack(
            format_,
            previous,
            self.scope_digest,
            self.stream.number,
            self.stream.ulid,
            seq,
            version,
            epoch,
            recorded_at,
            NO_TIME if occurred_at is None else occurred_at,
            cause or 0,
            content_digest or NO_DIGEST,
            view_digest or NO_DIGEST,
            len(type_),
            len(actor),
            len(site),
            len(facts),
        )
        return sha256(b"".join((header, type_, actor, site, facts))).digest()


class EventRow(NamedTuple):
    """An event as stores keep it, column by column. `content` and `view` are None when absent or erased."""

    seq: int
    format: int
    type: str
    version: int
    epoch: int
    recorded_at: int
    occurred_at: int | None
    actor: str
    site: str
    cause: int | None
    facts: bytes
    content_digest: bytes | None
    content: bytes | None
    view_digest: bytes | None
    view: bytes | None
    hash: bytes


class View(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """The redacted, erasable summary of an event's content, made once, at the write.

    `input`, `output` and `error` are short texts (`SUMMARY_BYTES`). `name` is the text behind a `~digest` in the
    facts (tool, model, workflow, signal), `provider` likewise, `ref` a foreign id (a model's id of a call, a caller's
    key). `redacted` holds the whole content with its secrets replaced, where the scan found any; where it is empty,
    the content is its own view.
    """

    input: str | None = None
    output: str | None = None
    error: str | None = None
    name: str | None = None
    provider: str | None = None
    ref: str | None = None
    redacted: msgspec.Raw = msgspec.Raw()


NO_VIEW = View()
_VIEW_DECODER = msgspec.json.Decoder(View)
_VIEW_ENCODER = msgspec.json.Encoder()


def encode_view(view: View) -> bytes:
    return _VIEW_ENCODER.encode(view)


def decode_view(data: bytes) -> View:
    """Opens a view's payload. Raises ContentDamaged."""
    try:
        return _VIEW_DECODER.decode(data)
    except (msgspec.MsgspecError, UnicodeError) as error:
        raise ContentDamaged(f"A stored view cannot be read: {error}.") from error


class Event(msgspec.Struct, gc=False):
    """An event as folds and readers get it: decoded facts and view, content still closed.

    `view` is `NO_VIEW` when the event has none or it was erased. `row` is the stored form, for whoever needs the
    exact bytes, digests or hash; folds need none of it, and what is read for them alone has none.
    """

    seq: int
    type: str
    recorded_at: int
    occurred_at: int | None
    actor: str
    site: str
    facts: Any
    view: View
    row: EventRow | None = None

    @property
    def at(self) -> int:
        """When it happened, as far as is known: occurred_at, else recorded_at (microseconds UTC)."""
        return self.recorded_at if self.occurred_at is None else self.occurred_at

    @property
    def stored(self) -> EventRow:
        """The stored form. Raises ValueError when the event was read for a fold."""
        if self.row is None:
            raise ValueError(f"event {self.seq} was read for a fold, without its stored form")
        return self.row

    @property
    def erased(self) -> bool:
        """Whether it had content or a view that is gone."""
        row = self.stored
        return (row.content_digest is not None and row.content is None) or (
            row.view_digest is not None and row.view is None
        )


class StreamRef(NamedTuple):
    """A stream and the scope it lives in: everything a fold may know besides the events."""

    scope: Scope
    stream: Stream
