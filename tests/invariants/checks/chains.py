"""Every chain verifies, by a verifier that was written from the published layout and shares no code with the
package.
"""

from __future__ import annotations

import hmac
import struct
from hashlib import sha256
from pathlib import Path

from tests.invariants.checks.reading import EVENTS, HEADS, reading, rows

_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"


def check(path: Path) -> None:
    with reading(path) as connection:
        secrets = dict(rows(connection, "SELECT tenant_id, secret FROM secrets WHERE name = 'digests'"))
        for number, tenant, workspace, stream, *_ in rows(connection, HEADS):
            text = f"{tenant}/{workspace}".encode()
            scope = hmac.digest(secrets[tenant], b"scope\0" + text, "sha256")[:16]
            kind = 3 if stream == "scope" else 2 if stream.endswith("/annex") else 1
            previous = bytes(32)
            for event in rows(connection, EVENTS, number):
                where = f"{stream} at {event[0]}"
                for digest, stored in ((event[11], event[12]), (event[13], event[14])):
                    assert stored is None or sha256(stored).digest() == digest, f"{where}: bytes and digest differ"
                assert _hash(event, previous, scope, kind, _ulid(stream)) == event[15], (
                    f"{where}: the hash is not its own"
                )
                assert event[16:] == (tenant, workspace), f"{where} stands in another scope"
                previous = event[15]


def _hash(event: tuple[object, ...], previous: bytes, scope: bytes, kind: int, ulid: bytes) -> bytes:
    (seq, format_, type_, version, epoch, recorded, occurred, actor, site, cause, facts, content, _, view, *_) = event
    texts = [type_.encode(), actor.encode(), site.encode(), facts]  # type: ignore[attr-defined]
    head = struct.pack(">B32s16sB16s", format_, previous, scope, kind, ulid)
    numbers = struct.pack(
        ">QIQqqQ", seq, version, epoch, recorded, -(2**63) if occurred is None else occurred, cause or 0
    )
    digests = (content or bytes(32)) + (view or bytes(32))  # type: ignore[operator]
    return sha256(head + numbers + digests + struct.pack(">4I", *map(len, texts)) + b"".join(texts)).digest()


def _ulid(stream: str) -> bytes:
    if stream == "scope":
        return bytes(16)
    value = 0
    for character in stream.removeprefix("run_").removesuffix("/annex"):
        value = value * 32 + _ALPHABET.index(character)
    return value.to_bytes(16, "big")
