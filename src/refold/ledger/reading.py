"""Exact content, read back: what a resumed run, a re-execution or an export of inputs needs, checked against its
digests.
"""

from __future__ import annotations

from hashlib import sha256
from typing import Any

from refold.events import values
from refold.events.content import ContentDamaged, decode_content, unseal
from refold.events.envelope import Event
from refold.events.identity import Stream
from refold.events.values import Registry
from refold.ledger.errors import Erased
from refold.ledger.port import Reader


async def exact_content(reader: Reader, stream: Stream, event: Event, types: Registry | None = None) -> dict[str, Any]:
    """An event's content as it was recorded, field by field; a field that is a list of parts comes as the list of its
    values.

    Exact, and so with whatever secrets it holds: for code that goes on with it, not for people. `types` names the
    classes of people's own values. Raises Erased, ContentDamaged, UnknownType.
    """
    found = stored_content(event, str(stream))
    if found is None:
        return {}
    stored = decode_content(found)
    fields: dict[str, Any] = values.decode(bytes(stored.values), types=types)
    for name, parts in stored.parts.items():
        fields[name] = [
            values.decode(await part_payload(reader, stream, number), types=types) for number in parts.numbers()
        ]
    return fields


def stored_content(event: Event, stream: str = "its stream") -> bytes | None:
    """An event's content as it is stored, checked against its digest; None when it has none. Raises Erased,
    ContentDamaged.
    """
    row = event.stored
    if row.content_digest is None:
        return None
    return checked_content(row.content, row.content_digest, event.seq, stream)


def checked_content(content: bytes | None, digest: bytes, seq: int, stream: str) -> bytes:
    """Stored content that matches its digest. Raises Erased, ContentDamaged."""
    if content is None:
        raise Erased(f"The content of event {seq} of {stream} was erased.", stream=stream, seq=seq)
    if sha256(content).digest() != digest:
        raise ContentDamaged(f"The content of event {seq} of {stream} does not match its digest.", seq=seq)
    return content


async def part_payload(reader: Reader, stream: Stream, number: int) -> bytes:
    """The bytes of a run's numbered part, checked. Raises ContentDamaged."""
    blob = await reader.blob(stream, number)
    if blob is None or blob.stored is None or sha256(blob.stored).digest() != blob.digest:
        raise ContentDamaged(f"Part {number} of {stream} is missing or does not match its digest.", part=number)
    return unseal(blob.stored)
