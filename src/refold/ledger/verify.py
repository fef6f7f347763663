"""Proof: every hash of a stream's chain, every stored byte under it, its head, blobs, artifacts and snapshots.

It says where the record stops being what was committed: the first bad place, by stream and seq. Content that was
erased on request is counted as redacted, not as broken; its digest is still under the chain. What it cannot find is a
stream that was rewritten whole, head included, by somebody with write access to the file: that takes a list of heads
kept elsewhere.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from hashlib import sha256
from typing import Any, NamedTuple

import msgspec

from refold.errors import RefoldError
from refold.events.catalog.run import TERMINAL
from refold.events.content import PLAIN, PREFIX, SALT_SIZE, PartList, decode_content, unseal
from refold.events.envelope import FORMAT, GENESIS, HEADER, NO_DIGEST, NO_TIME, Chain, EventRow
from refold.events.identity import Stream, keyed_digest, scope_digest, storage_key
from refold.ledger.artifacts import ArtifactFiles
from refold.ledger.blobs import leaf
from refold.ledger.port import BlobRow, Reader, StreamHead

_PAGE = 250
"""Events at once. Few enough that a page is still in the processor's cache when it is hashed."""
_SEQ, _TYPE, _CONTENT = (EventRow._fields.index(name) for name in ("seq", "type", "content"))
_FILE_CHUNK = 1 << 20
_PARTS_MARK = b'"parts":{'


class Bad(NamedTuple):
    """A place where the record is not what was committed. `seq` 0: not at one event, but about the stream
    as a whole.
    """

    stream: str
    seq: int
    what: str


class StreamReport(NamedTuple):
    """What the proof of one stream found. `redacted` counts events whose content was erased."""

    events: int
    redacted: int
    first_bad: Bad | None


class Broken(Exception):
    """Ends a proof at the first bad place."""

    def __init__(self, seq: int, what: str) -> None:
        super().__init__(what)
        self.seq = seq
        self.what = what


async def verify_stream(reader: Reader, stream: Stream, files: ArtifactFiles | None = None) -> StreamReport:
    """Proves one stream of the reader's scope, from its first event to its head. `files` None: artifact files are not
    read.
    """
    proof = _StreamProof(reader, Chain(scope_digest(reader.secret, reader.scope), stream), files)
    try:
        await proof.run()
    except Broken as error:
        return StreamReport(proof.seq, proof.redacted, Bad(str(stream), error.seq, error.what))
    return StreamReport(proof.seq, proof.redacted, None)


class _StreamProof:
    def __init__(self, reader: Reader, chain: Chain, files: ArtifactFiles | None) -> None:
        self.reader, self.chain = reader, chain
        self.seq = 0
        self.redacted = 0
        self.hash = GENESIS
        self.last_type = ""
        self.blobs = _BlobProof(reader, chain.stream, files)

    async def run(self) -> None:
        head = await self._head()
        await self.blobs.read()
        erased_before = await self._erased_before(head)
        while rows := await self._page():
            bad = self._check_page(rows, erased_before)
            if bad is not None:
                raise bad
            self.blobs.check_events(rows, head.erased)
            self.last_type = EventRow._make(rows[-1]).type
        await self._check_head(head)

    async def _head(self) -> StreamHead:
        try:
            head = await self.reader.head(self.chain.stream)
        except RefoldError as error:
            raise Broken(0, f"the head cannot be read: {error.message}") from error
        if head is None:
            raise Broken(0, "the stream has no head")
        if not head.intact:
            raise Broken(0, "the row of the stream's head was changed")
        return head

    async def _erased_before(self, head: StreamHead) -> int:
        """The seq before which content is gone lawfully. A run is erased as a whole, once it is closed, and its annex
        says so; an annex goes on, and what an erasure took stands before the event that says so.
        """
        if not head.erased:
            return 0
        kind, ulid = self.chain.stream
        last = await self._last_erasure(Stream("annex", ulid))
        if kind == "annex":
            return last
        if not last:
            raise Broken(0, "the head says that it was erased, and its annex does not")
        if self.blobs.count:
            raise Broken(0, "it was erased, and there are blobs of it")
        return head.head.seq + 1

    async def _last_erasure(self, annex: Stream) -> int:
        """The seq of the last event in an annex that says that something was erased; 0: there is none. Whether it
        stands in the chain is found when the annex is proven.
        """
        after = last = 0
        try:
            while page := await self.reader.raw_events(annex, after, limit=_PAGE):
                after = page[-1].seq
                last = max((row.seq for row in page if row.type == "content.erased"), default=last)
        except RefoldError:
            return last  # The proof meets the same place, and names it.
        return last

    async def _page(self) -> Sequence[tuple[Any, ...]]:
        stream = self.chain.stream
        try:
            return await self.reader.proving(stream, self.seq, limit=_PAGE)
        except RefoldError:
            pass  # Something on this page cannot be read at all: go up to it one by one.
        try:
            return await self.reader.proving(stream, self.seq, limit=1)
        except RefoldError as error:
            raise Broken(self.seq + 1, f"the event cannot be read: {error.message}") from error

    def _check_page(self, rows: Sequence[tuple[Any, ...]], erased_before: int) -> Broken | None:
        """The hot loop: order, digests and hashes of a page. Written out flat because every event of a ledger goes
        through it.
        """
        pack, digest_of = HEADER.pack, sha256
        scope, kind, ulid = self.chain.scope_digest, self.chain.stream.number, self.chain.stream.ulid
        previous, expected, redacted = self.hash, self.seq, self.redacted
        bad: Broken | None = None
        for row in rows:
            (
                seq,
                format_,
                type_,
                version,
                epoch,
                recorded,
                occurred,
                actor,
                site,
                cause,
                facts,
                cd,
                content,
                vd,
                view,
                hash_,
            ) = row
            expected += 1
            if seq != expected:
                bad = Broken(expected, f"the event is missing; the next one has seq {seq}")
                break
            try:
                if seq < erased_before and (content is not None or view is not None) and type_ != "content.erased":
                    bad = Broken(seq, "the event was erased, and what it said is there")
                    break
                if content is not None:
                    if digest_of(content).digest() != cd:
                        bad = Broken(seq, "the content does not match its digest")
                        break
                elif cd is not None:
                    if seq >= erased_before:
                        bad = Broken(seq, "the content is missing, and it was not erased on request")
                        break
                    redacted += 1
                if view is not None:
                    if digest_of(view).digest() != vd:
                        bad = Broken(seq, "the view does not match its digest")
                        break
                elif vd is not None and seq >= erased_before:
                    bad = Broken(seq, "the view is missing, and it was not erased on request")
                    break
                name, who, place = type_.encode(), actor.encode(), site.encode()
                header = pack(
                    format_,
                    previous,
                    scope,
                    kind,
                    ulid,
                    seq,
                    version,
                    epoch,
                    recorded,
                    NO_TIME if occurred is None else occurred,
                    0 if cause is None else cause or -1,  # No seq is 0: it would hash like none.
                    NO_DIGEST if cd is None else cd,
                    NO_DIGEST if vd is None else vd,
                    len(name),
                    len(who),
                    len(place),
                    len(facts),
                )
                if digest_of(b"".join((header, name, who, place, facts))).digest() != hash_:
                    bad = Broken(seq, "the event does not match its hash, or does not follow the one before it")
                    break
                if format_ != FORMAT:
                    bad = Broken(seq, f"the event has the unknown format {format_}")
                    break
            except (TypeError, AttributeError, struct.error, UnicodeError) as error:
                bad = Broken(seq, f"the event's columns are not of their types: {error}")
                break
            previous = hash_
        self.hash, self.redacted = previous, redacted
        self.seq = expected - (bad is not None)
        return bad

    async def _check_head(self, head: StreamHead) -> None:
        if head.head.seq != self.seq:
            raise Broken(self.seq + 1, f"the head stands at seq {head.head.seq}, and the last event at {self.seq}")
        if head.head.hash != self.hash:
            raise Broken(self.seq, "the head has another hash than the last event")
        if head.closed != (self.last_type in TERMINAL and self.chain.stream.kind == "run"):
            raise Broken(self.seq, "the head is closed and the last event does not end the run, or the other way round")
        try:
            for snapshot in await self.reader.snapshots(self.chain.stream):
                if snapshot.seq > self.seq:
                    raise Broken(self.seq, f"a snapshot stands at seq {snapshot.seq}, beyond the head")
                if sha256(snapshot.state).digest() != snapshot.state_digest:
                    raise Broken(self.seq, f"the snapshot at seq {snapshot.seq} does not match its digest")
        except (RefoldError, TypeError) as error:
            raise Broken(self.seq, f"a snapshot cannot be read: {error}") from error


class _BlobProof:
    """Every blob of a run against its digest, and every event that names blobs against their leaves (32 bytes each in
    memory).
    """

    def __init__(self, reader: Reader, stream: Stream, files: ArtifactFiles | None) -> None:
        self._reader, self._stream, self._files = reader, stream, files
        self._secret = reader.secret
        self._leaves: list[bytes] = []
        self._in_files: dict[int, tuple[bytes, bytes]] = {}
        self._ranges: tuple[tuple[int, int], ...] = ()
        self._digest = bytes(32)

    @property
    def count(self) -> int:
        """How many blobs were read."""
        return len(self._leaves)

    async def read(self) -> None:
        while True:
            done = len(self._leaves)
            try:
                page = await self._reader.blobs(self._stream, done, _PAGE)
            except RefoldError as error:
                raise Broken(0, f"blob {done + 1} or one soon after it cannot be read: {error.message}") from error
            if not page:
                return
            for blob in page:
                if blob.number != len(self._leaves) + 1:
                    raise Broken(0, f"blob {len(self._leaves) + 1} is missing; the next one has number {blob.number}")
                try:
                    self._check(blob)
                except TypeError as error:
                    raise Broken(0, f"the columns of blob {blob.number} are not of their types: {error}") from error

    def _check(self, blob: BlobRow) -> None:
        if blob.stored is None:
            raise Broken(0, f"the bytes of blob {blob.number} are missing")
        if blob.lookup is None and len(blob.stored) == 16:
            self._in_files[blob.number] = (blob.stored, blob.digest)  # Only the salt: the bytes are in a file.
        elif sha256(blob.stored).digest() != blob.digest:
            raise Broken(0, f"blob {blob.number} does not match its digest")
        elif blob.lookup is not None and keyed_digest(self._secret, "part", unseal(blob.stored)) != blob.lookup:
            raise Broken(0, f"blob {blob.number} would not be found by its content")
        if (blob.view is None) != (blob.view_digest is None) or (
            blob.view is not None and sha256(blob.view).digest() != blob.view_digest
        ):
            raise Broken(0, f"the view of blob {blob.number} does not match its digest")
        self._leaves.append(leaf(blob.digest, blob.view_digest))

    def check_events(self, rows: Sequence[tuple[Any, ...]], erased: bool) -> None:
        """What intact events say of blobs."""
        for row in rows:
            type_, content = row[_TYPE], row[_CONTENT]
            if type_ == "artifact.stored" and not erased:
                self._check_artifact(EventRow._make(row))
            if content is not None and self._names_parts(type_, content):
                for name, parts in decode_content(content).parts.items():
                    self._check_parts(row[_SEQ], name, parts)

    def _names_parts(self, type_: str, content: bytes) -> bool:
        """Whether a content holds part lists. What the blobs say of themselves counts for nothing here: no hash covers
        it, and whoever took all of them away left nothing to ask. Opening every content would cost several times the
        rest of the proof, so in a stream without blobs the compressed ones are opened only where requests and answers
        stand.
        """
        if self._leaves or (type_.startswith("inference.") and content[SALT_SIZE:PREFIX] != PLAIN):
            content = unseal(content)
        elif content[SALT_SIZE:PREFIX] != PLAIN:
            return False
        return _PARTS_MARK in content

    def _check_artifact(self, row: EventRow) -> None:
        facts = msgspec.json.decode(row.facts)
        number, artifact = facts["blob"], facts["artifact_id"]
        if number > len(self._leaves):
            raise Broken(row.seq, f"blob {number}, which holds artifact {artifact}, is missing")
        if self._leaves[number - 1].hex() != facts["digest"]:
            raise Broken(row.seq, f"blob {number} is not artifact {artifact} as it was stored")
        if facts.get("store") != "file":
            return
        if number not in self._in_files:
            raise Broken(row.seq, f"blob {number} does not belong to the file of artifact {artifact}")
        if self._files is not None:
            self._check_file(row.seq, artifact, number)

    def _check_file(self, seq: int, artifact: str, number: int) -> None:
        assert self._files is not None
        salt, digest = self._in_files[number]
        path = self._files.path(storage_key(self._reader.scope, self._stream.run_id, artifact))
        hasher = sha256(salt)
        try:
            with path.open("rb") as file:
                while chunk := file.read(_FILE_CHUNK):
                    hasher.update(chunk)
        except OSError as error:
            raise Broken(seq, f"the file of artifact {artifact} cannot be read: {error.strerror}") from error
        if hasher.digest() != digest:
            raise Broken(seq, f"the file of artifact {artifact} does not match its digest")

    def _check_parts(self, seq: int, name: str, parts: PartList) -> None:
        """A list that extends the last one is checked from where that ended: a conversation of n turns
        costs n hashes.
        """
        ranges = parts.ranges
        known = self._ranges
        if known and ranges[: len(known) - 1] == known[:-1] and len(ranges) >= len(known):
            (first, done), (start, last) = known[-1], ranges[len(known) - 1]
            follows = start == first and last >= done
        else:
            follows = False
        if follows:
            digest = self._extend(self._digest, done + 1, last, seq)
            rest = ranges[len(known) :]
        else:
            digest, rest = bytes(32), ranges
        for start, last in rest:
            digest = self._extend(digest, start, last, seq)
        if digest.hex() != parts.digest:
            raise Broken(seq, f"the parts of {name} are not the ones that were stored")
        if len(parts) > 1 or not known:
            self._ranges, self._digest = ranges, digest

    def _extend(self, digest: bytes, first: int, last: int, seq: int) -> bytes:
        for number in range(first, last + 1):
            if not 0 < number <= len(self._leaves):
                raise Broken(seq, f"part {number} is missing")
            digest = sha256(digest + self._leaves[number - 1]).digest()
        return digest
