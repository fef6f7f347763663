"""Erasable bytes: content, views and blobs as they are stored, and part lists for requests that grow.

A stored blob is `salt (16 bytes) | codec (1 byte) | payload`; its digest is the SHA-256 of exactly these bytes. The
salt makes an erased "yes" unguessable from the digest that stays behind, and it is erased with the bytes because it
is part of them.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from hashlib import sha256
from typing import Any, ClassVar

import msgspec

from refold.errors import RefoldError
from refold.events import values

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

SALT_SIZE = 16
PREFIX = SALT_SIZE + 1
PLAIN, ZSTD = b"\x00", b"\x01"
COMPRESS_FROM = 512
"""Below this many bytes compression costs more time than it saves room."""
_COMPRESSOR = zstd.ZstdCompressor(1)
MAX_CONTENT = 1_000_000_000
"""Bytes that a payload may have: what SQLite can keep in a row uncompressed. A few kilobytes that somebody made to
unfold into more are refused; no value that was recorded needs it.
"""


class ContentDamaged(RefoldError):
    """Stored bytes do not match the digest that the chain holds, or cannot be opened.

    The ledger file was edited or damaged. Nothing was guessed in place of the bytes.
    """

    code: ClassVar[str] = "content_damaged"
    exit_status: ClassVar[int] = 7
    remedy = "Run `refold verify` to see how far the damage goes, and restore from a backup."


def seal(payload: bytes, salt: bytes) -> tuple[bytes, bytes]:
    """The stored bytes of a payload and their digest. Raises NotRecordable for one that could not be opened again."""
    if len(payload) > MAX_CONTENT:
        why = f"{len(payload)} bytes are more than the {MAX_CONTENT} that can be kept"
        raise values.NotRecordable(f"A payload cannot be recorded: {why}.", path="$", type="bytes", reason=why)
    if len(payload) >= COMPRESS_FROM:
        # One compressor for all: making its context costs more than compressing a kilobyte.
        packed = _COMPRESSOR.compress(payload, zstd.ZstdCompressor.FLUSH_FRAME)
        if len(packed) < len(payload):
            stored = b"".join((salt, ZSTD, packed))
            return stored, sha256(stored).digest()
    stored = b"".join((salt, PLAIN, payload))
    return stored, sha256(stored).digest()


def unseal(stored: bytes) -> bytes:
    """The payload of stored bytes. Raises ContentDamaged when their codec is unknown or does not fit them."""
    codec = stored[SALT_SIZE:PREFIX]
    if codec == PLAIN:
        return stored[PREFIX:]
    if codec == ZSTD:
        opened = zstd.ZstdDecompressor()
        try:
            payload = opened.decompress(stored[PREFIX:], MAX_CONTENT)
        except zstd.ZstdError as error:
            raise ContentDamaged(f"Stored bytes cannot be decompressed: {error}.") from error
        if not opened.eof or opened.unused_data:
            why = f"they are not one whole frame of at most {MAX_CONTENT} bytes"
            raise ContentDamaged(f"Stored bytes cannot be decompressed: {why}.")
        return payload
    raise ContentDamaged(f"Stored bytes have the unknown codec {codec.hex() or 'none'}.", codec=codec.hex())


class PartList(msgspec.Struct, frozen=True):
    """A field that is a list of the run's numbered blobs: inclusive ranges, and the digest over theirs in order."""

    ranges: tuple[tuple[int, int], ...]
    digest: str

    def __len__(self) -> int:
        return sum(last - first + 1 for first, last in self.ranges)

    def numbers(self) -> Iterable[int]:
        """The blob numbers, in order."""
        for first, last in self.ranges:
            yield from range(first, last + 1)


class PartChain:
    """Builds part lists: L(0) = 32 zero bytes, L(k) = SHA-256(L(k-1) | digest of blob k).

    Extending costs one hash however long the list is, which keeps a conversation of n turns linear.
    """

    def __init__(self) -> None:
        self._ranges: list[tuple[int, int]] = []
        self._digest = bytes(32)

    def add(self, number: int, digest: bytes) -> None:
        if self._ranges and self._ranges[-1][1] + 1 == number:
            self._ranges[-1] = (self._ranges[-1][0], number)
        else:
            self._ranges.append((number, number))
        self._digest = sha256(self._digest + digest).digest()

    def as_list(self) -> PartList:
        return PartList(tuple(self._ranges), self._digest.hex())


class Encoded(msgspec.Struct, frozen=True):
    """A field whose value `refold.events.values` has encoded already, with the types that its writer knew."""

    data: bytes


def encode_content(fields: dict[str, Any]) -> bytes:
    """The payload of a content: its values losslessly, its part lists apart. Raises NotRecordable."""
    kinds = {*map(type, fields.values())}
    if PartList not in kinds and Encoded not in kinds:
        return b'{"values":%b}' % values.encode(fields)
    parts = {name: field for name, field in fields.items() if type(field) is PartList}
    ready = {name: field for name, field in fields.items() if type(field) is Encoded}
    others = {name: field for name, field in fields.items() if name not in parts and name not in ready}
    pieces = [values.encode(others)[1:-1]] if others else []
    pieces += [b"%b:%b" % (msgspec.json.encode(name), field.data) for name, field in ready.items()]
    encoded = b"{%b}" % b",".join(pieces)
    if not parts:
        return b'{"values":%b}' % encoded
    return b'{"values":%b,"parts":%b}' % (encoded, msgspec.json.encode(parts))


class StoredContent(msgspec.Struct, frozen=True):
    """A content as it was stored: `values` still encoded, `parts` by field name."""

    values: msgspec.Raw
    parts: dict[str, PartList] = {}


_DECODER = msgspec.json.Decoder(StoredContent)
_FIELDS = msgspec.json.Decoder(dict[str, msgspec.Raw])


def decode_content(stored: bytes) -> StoredContent:
    """Opens the stored bytes of a content. Raises ContentDamaged."""
    try:
        return _DECODER.decode(unseal(stored))
    except (msgspec.MsgspecError, UnicodeError) as error:
        raise ContentDamaged(f"Stored content cannot be read: {error}.") from error


class OpenedContent(msgspec.Struct, gc=False):
    """The same, its values apart from each other: for whoever reads one field and leaves the others closed."""

    values: dict[str, msgspec.Raw]
    parts: dict[str, PartList] = {}


_OPENER = msgspec.json.Decoder(OpenedContent)


def open_content(stored: bytes) -> OpenedContent:
    """Opens the stored bytes of a content, field by field. Raises ContentDamaged."""
    try:
        return _OPENER.decode(unseal(stored))
    except (msgspec.MsgspecError, UnicodeError) as error:
        raise ContentDamaged(f"Stored content cannot be read: {error}.") from error


def encoded_fields(stored: StoredContent) -> dict[str, bytes]:
    """The values of a content, each still encoded: for whoever knows the type of each. Raises ContentDamaged."""
    try:
        return {name: bytes(field) for name, field in _FIELDS.decode(stored.values).items()}
    except (msgspec.MsgspecError, UnicodeError) as error:
        raise ContentDamaged(f"Stored content cannot be read: {error}.") from error
