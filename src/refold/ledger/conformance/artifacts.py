"""Artifacts: byte for byte, at sizes around the border between ledger and file; damage is found."""

from __future__ import annotations

from typing import Literal

from refold.ledger.artifacts import IN_LEDGER, open_artifact, store_artifact
from refold.ledger.conformance.place import SCOPE, Place, new_run, opened, refused, require, same, verified
from refold.ledger.errors import ArtifactDamaged
from refold.ledger.ledger import ScopedLedger
from refold.ledger.port import BlobRow
from refold.ledger.writer import StreamWriter
from refold.projections.rows import ArtifactRow

_SIZES = (0, 1, 8192, 8193, IN_LEDGER - 1, IN_LEDGER, IN_LEDGER + 1, 3 * IN_LEDGER)


async def check_artifacts_of_every_size_come_back_byte_for_byte(place: Place) -> None:
    async with opened(place) as ledger:
        scope = ledger.scope(SCOPE)
        writer = await new_run(scope)
        wanted = {}
        for size in _SIZES:
            data = _bytes(size)
            wanted[await _store(scope, writer, data)] = data
        await writer.close()
        await verified(scope, writer.stream)
    async with opened(place) as ledger:
        scope = ledger.scope(SCOPE)
        for artifact_id, data in wanted.items():
            row, blob = await _stored(scope, writer, artifact_id)
            require(open_artifact(row, blob, ledger.files) == data, f"an artifact of {len(data)} bytes changed")
            same(row.store, "blob" if len(data) <= IN_LEDGER else "file", f"place of {len(data)} bytes")


async def check_a_damaged_artifact_is_never_returned(place: Place) -> None:
    async with opened(place) as ledger:
        scope = ledger.scope(SCOPE)
        writer = await new_run(scope)
        small = await _store(scope, writer, _bytes(5000))
        large = await _store(scope, writer, _bytes(IN_LEDGER + 7))
        await writer.close()
        row, blob = await _stored(scope, writer, small)
        stored = blob.stored or b""
        for damaged in (
            None,
            blob._replace(stored=None),
            blob._replace(stored=stored[:-1]),
            blob._replace(stored=stored[:20] + bytes([stored[20] ^ 1]) + stored[21:]),
        ):
            await _refuse(row, damaged, scope)
        row, blob = await _stored(scope, writer, large)
        file = ledger.files.path(row.storage_key)
        whole = file.read_bytes()
        for content in (
            whole[:-1],
            whole + b"\0",
            whole[:4096] + bytes([whole[4096] ^ 4]) + whole[4097:],
            b"",
        ):
            file.write_bytes(content)
            await _refuse(row, blob, scope)
        file.write_bytes(whole)
        require(open_artifact(row, blob, ledger.files) == whole, "the restored artifact is refused")
        file.unlink()
        await _refuse(row, blob, scope)


async def check_an_artifact_is_not_compressed_into_another(place: Place) -> None:
    async with opened(place) as ledger:
        scope = ledger.scope(SCOPE)
        writer = await new_run(scope)
        kinds: tuple[tuple[Literal["json", "text", "binary"], bytes], ...] = (
            ("text", b"a line\r\n" * 2000),
            ("text", "ä€😀".encode() * 3000),
            ("json", b'{"a": 1.0, "a": 1e400, "b": "\\ud800"}' * 500),
            ("binary", bytes(range(256)) * 100),
            ("text", b"\xff\xfe not utf-8 \x00" * 1000),
        )
        for type_, data in kinds:
            artifact_id = await _store(scope, writer, data, type_)
            await writer.barrier()
            row, blob = await _stored(scope, writer, artifact_id)
            require(open_artifact(row, blob, ledger.files) == data, f"{type_} bytes changed")
        await writer.close()


def _bytes(size: int) -> bytes:
    return (bytes(range(251)) * (size // 251 + 1))[:size]


async def _store(
    scope: ScopedLedger,
    writer: StreamWriter,
    data: bytes,
    type_: Literal["json", "text", "binary"] = "binary",
) -> str:
    stored = await store_artifact(
        writer,
        scope.ledger.files,
        data,
        artifact_id=scope.ledger.ids.new("art"),
        kind="output",
        type_=type_,
        mime="application/octet-stream",
    )
    return stored.artifact_id


async def _stored(scope: ScopedLedger, writer: StreamWriter, artifact_id: str) -> tuple[ArtifactRow, BlobRow]:
    async with scope.reader() as reader:
        (row,) = await reader.rows(ArtifactRow, {"run_id": writer.stream.run_id, "artifact_id": artifact_id})
        blob = await reader.blob(writer.stream, row.blob)
    if blob is None:
        raise AssertionError(f"blob {row.blob} is not there")
    return row, blob


async def _refuse(row: ArtifactRow, blob: BlobRow | None, scope: ScopedLedger) -> None:
    async def read() -> int:
        return len(open_artifact(row, blob, scope.ledger.files))

    await refused(ArtifactDamaged, read(), "a damaged artifact")
