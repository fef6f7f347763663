"""Artifacts: results and inputs too large for a row. Up to 1 MiB they are blobs in the ledger, above that files
beside it.

A file is complete and on disk before the event that names it is committed: written under another name, synced,
renamed, folder synced. Killed in between, it is an orphan that nothing refers to.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal, NamedTuple

from refold import seam
from refold.errors import RefoldError
from refold.events.catalog.steps import ArtifactStored
from refold.events.content import unseal
from refold.events.identity import BadName, Scope, Stream, checked_id, storage_key
from refold.ledger.blobs import leaf
from refold.ledger.drafts import Draft
from refold.ledger.durable import sync
from refold.ledger.errors import ArtifactDamaged, Erased, LedgerFailing, LedgerFull, LedgerReadOnly
from refold.ledger.port import BlobRow
from refold.ledger.writer import StreamWriter
from refold.projections.rows import ArtifactRow

INLINE = 8192
"""A tool result or input of more bytes than this is an artifact."""
IN_LEDGER = 1024 * 1024
"""An artifact of more bytes than this is a file."""


class ArtifactFiles:
    """The folder of a ledger's artifact files: `tenant/workspace/run/artifact`."""

    def __init__(self, root: Path) -> None:
        self.root = root

    @classmethod
    def beside(cls, ledger: Path) -> ArtifactFiles:
        """The folder that belongs to the ledger with this file."""
        return cls(ledger.with_name(ledger.name + "-artifacts"))

    def path(self, storage_key: str) -> Path:
        """Where an artifact's file is. Keys are made of checked names and ids only."""
        return self.root / storage_key

    def write(self, storage_key: str, data: bytes) -> None:
        """Makes the file durable: a crash leaves it whole. Raises LedgerFull, LedgerReadOnly or LedgerFailing."""
        try:
            self._write(storage_key, data)
        except OSError as error:
            raise _not_written(error, storage_key) from error

    def _write(self, storage_key: str, data: bytes) -> None:
        target = self.path(storage_key)
        self._make_folders(target.parent)
        draft = target.with_name(target.name + ".part")
        seam.reach("artifact.write")
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            with memoryview(data) as view:
                done = 0
                while done < len(view):
                    done += os.write(descriptor, view[done:])
            seam.reach("artifact.sync")
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        seam.reach("artifact.rename")
        os.replace(draft, target)
        seam.reach("artifact.sync_folder")
        sync(target.parent)

    def read(self, storage_key: str) -> bytes:
        return self.path(storage_key).read_bytes()

    def delete_run(self, scope_and_run: str) -> int:
        """Removes a run's files and says how many there were."""
        folder = self.path(scope_and_run)
        if not folder.is_dir():
            return 0
        count = 0
        for file in sorted(folder.iterdir()):
            seam.reach("artifact.unlink")
            file.unlink()
            count += not file.name.endswith(".part")
        folder.rmdir()
        sync(folder.parent)
        return count

    def count(self, scope_and_run: str) -> int:
        """How many files a run has, drafts not counted."""
        folder = self.path(scope_and_run)
        return sum(file.suffix != ".part" for file in folder.iterdir()) if folder.is_dir() else 0

    def all_files(self) -> Iterator[str]:
        """The storage keys of all files, drafts included."""
        if self.root.is_dir():
            for file in sorted(self.root.rglob("*")):
                if file.is_file():
                    yield str(file.relative_to(self.root))

    def _make_folders(self, folder: Path) -> None:
        missing = []
        while not folder.is_dir():
            missing.append(folder)
            folder = folder.parent
        for each in reversed(missing):
            each.mkdir(mode=0o700, exist_ok=True)
            sync(each.parent)


def is_storage_key(key: str) -> bool:
    """Whether a text is the place of an artifact's file: `tenant/workspace/run/artifact`, each a checked name."""
    try:
        tenant, workspace, run_id, artifact_id = key.split("/")
        Scope(tenant, workspace).checked()
        return Stream.run(run_id).run_id == run_id and checked_id(artifact_id) == artifact_id
    except (ValueError, BadName):
        return False


class StoredArtifact(NamedTuple):
    """What an event says of the artifact that holds its result."""

    artifact_id: str
    size_bytes: int


def artifact_draft(
    writer: StreamWriter,
    files: ArtifactFiles,
    data: bytes,
    *,
    artifact_id: str,
    kind: Literal["tool_result", "input", "output", "attachment"],
    type_: Literal["json", "text", "binary"],
    mime: str,
    step_id: str | None = None,
    tool_call_id: str | None = None,
    occurred_at: int | None = None,
) -> Draft:
    """Keeps `data` byte for byte and returns the event that names it, for whoever appends it together with others."""
    checked_id(artifact_id)
    number = writer.next_blob
    digest_of_plain = sha256(data).hexdigest()
    view = writer.redacted_text(data) if type_ != "binary" else None
    view_bytes, view_digest = view if view is not None else (None, None)
    if len(data) <= IN_LEDGER:
        stored, digest = writer.sealed(data)
        row = BlobRow(number, None, digest, stored, view_digest, view_bytes)
    else:
        salt = writer.salt()
        files.write(storage_key(writer.scope, writer.stream.run_id, artifact_id), data)
        # The salt stays in the ledger: the file alone proves nothing, and erasing the row makes its digest unguessable.
        row = BlobRow(number, None, sha256(salt + data).digest(), salt, view_digest, view_bytes)
    writer.blob(row)
    facts = ArtifactStored(
        artifact_id,
        kind,
        type_,
        mime,
        len(data),
        leaf(row.digest, row.view_digest).hex(),
        number,
        "blob" if len(data) <= IN_LEDGER else "file",
        step_id,
        tool_call_id,
    )
    return Draft(facts, content={"sha256": digest_of_plain}, ref=digest_of_plain, occurred_at=occurred_at)


async def store_artifact(writer: StreamWriter, files: ArtifactFiles, data: bytes, **about: Any) -> StoredArtifact:
    """Keeps `data` as `artifact_draft` does and appends `artifact.stored`; durable with the writer's next barrier."""
    draft = artifact_draft(writer, files, data, **about)
    writer.append(draft)
    return StoredArtifact(about["artifact_id"], len(data))


def open_artifact(row: ArtifactRow, blob: BlobRow | None, files: ArtifactFiles) -> bytes:
    """The artifact's bytes, checked against size and digests. Raises Erased, ArtifactDamaged."""
    if row.sha256 is None:
        raise Erased(f"Artifact {row.artifact_id} was erased.", artifact_id=row.artifact_id)
    if blob is None or blob.stored is None:
        raise _damaged(row, "its row is missing")
    if row.store == "blob":
        if sha256(blob.stored).digest() != blob.digest:
            raise _damaged(row, "its bytes do not match their digest")
        data = unseal(blob.stored)
    elif not is_storage_key(row.storage_key):
        raise _damaged(row, "its row names no place of an artifact")
    else:
        try:
            data = files.read(row.storage_key)
        except OSError as error:
            raise _damaged(row, f"its file cannot be read ({error.strerror})") from error
        if sha256(blob.stored + data).digest() != blob.digest:
            raise _damaged(row, "its file does not match its digest")
    if len(data) != row.size_bytes or sha256(data).hexdigest() != row.sha256:
        raise _damaged(row, "its size or SHA-256 is not the one on record")
    return data


def _not_written(error: OSError, storage_key: str) -> RefoldError:
    why = f"The file of artifact {storage_key} cannot be written: {error.strerror}."
    match error.errno:
        case errno.ENOSPC | errno.EDQUOT:
            return LedgerFull(why, artifact=storage_key)
        case errno.EROFS | errno.EACCES | errno.EPERM:
            return LedgerReadOnly(why, artifact=storage_key)
        case _:
            return LedgerFailing(why, artifact=storage_key)


def _damaged(row: ArtifactRow, why: str) -> ArtifactDamaged:
    return ArtifactDamaged(
        f"Artifact {row.artifact_id} of {row.run_id} is damaged: {why}.",
        artifact_id=row.artifact_id,
        run_id=row.run_id,
    )


__all__ = [
    "INLINE",
    "IN_LEDGER",
    "ArtifactFiles",
    "StoredArtifact",
    "artifact_draft",
    "is_storage_key",
    "open_artifact",
    "store_artifact",
]
