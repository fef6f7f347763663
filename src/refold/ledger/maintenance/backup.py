"""A backup of a ledger that is being written to: a folder with the database, the artifact files, and a manifest.

The database is copied page by page within one read transaction (SQLite's online backup), so it is the ledger at one
moment, and nobody waits for it. Artifact files never change once an event names them, so copying them afterwards gives
the same moment - unless their run was erased meanwhile, and then the backup starts over, so as not to keep what
somebody had a right to see gone. Everything is made under another name, synced, and renamed at the end: what is there
under its own name is whole.

A backup holds the content of every run that was not erased before it began. Erasing does not reach into backups.
"""

from __future__ import annotations

import asyncio
import secrets
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import apsw
import msgspec

from refold import seam
from refold.clock import Clock
from refold.errors import RefoldError
from refold.ledger.artifacts import ArtifactFiles, is_storage_key
from refold.ledger.ledger import Ledger
from refold.ledger.maintenance.files import TargetExists, Written, copy, digest, sync, sync_folders, write_new
from refold.ledger.sqlite.connection import connect, query, translated

DATABASE = "ledger.db"
MANIFEST = "manifest.json"
FORMAT = 1
_PAGES = 512
_ATTEMPTS = 5

Progress = Callable[[int, int], None]
"""Gets how many pages of the database were copied, and of how many; called from another thread."""


class BackupOvertaken(RefoldError):
    """Runs were erased while the backup was made, each time it started over. No backup was kept."""

    code: ClassVar[str] = "backup_overtaken"
    exit_status: ClassVar[int] = 1
    remedy = "Make the backup again when the erasures are through."


class Manifest(msgspec.Struct, frozen=True):
    """What a backup says of itself. `artifacts` is keyed by storage key.

    `unsound` lists artifacts that the ledger itself no longer had whole: missing, or not matching the digest on record.
    """

    format: int
    ledger_id: str
    made_at: int
    streams: int
    database: Written
    artifacts: dict[str, Written]
    unsound: list[str]


class Backup(NamedTuple):
    """A finished backup."""

    path: Path
    manifest: Manifest

    @property
    def size(self) -> int:
        """Bytes of database and artifacts."""
        return self.manifest.database.size + sum(each.size for each in self.manifest.artifacts.values())


class _Erased(Exception):
    """A run whose artifacts were being copied was erased."""


async def backup(ledger: Ledger, target: str | Path, progress: Progress | None = None) -> Backup:
    """Writes a backup of an open ledger to the new folder `target`, while anybody goes on writing.

    Raises TargetExists, BackupOvertaken, LedgerDamaged and the like; then nothing is left at `target`.
    """
    return await asyncio.to_thread(_backup, ledger.path, Path(target).absolute(), ledger.clock, progress)


def _backup(path: Path, target: Path, clock: Clock, progress: Progress | None) -> Backup:
    if target.exists():
        raise TargetExists(f"{target} exists already.", target=str(target))
    target.parent.mkdir(parents=True, exist_ok=True)
    draft = target.with_name(f".{target.name}.{secrets.token_hex(6)}.partial")
    for _ in range(_ATTEMPTS):
        draft.mkdir(mode=0o700)
        try:
            manifest = _fill(path, draft, clock, progress)
            seam.reach("backup.rename")
            draft.rename(target)
            sync(target.parent)
            return Backup(target, manifest)
        except _Erased:
            continue
        finally:
            shutil.rmtree(draft, ignore_errors=True)
    raise BackupOvertaken(f"Runs of {path.name} were erased during each of {_ATTEMPTS} attempts.", ledger=str(path))


def _fill(path: Path, draft: Path, clock: Clock, progress: Progress | None) -> Manifest:
    made_at = clock.now()
    with translated(path):
        source = connect(path, write=False)
        try:
            source.execute("BEGIN")
            # The first read fixes the moment.
            ledger_id, streams = query(source, "SELECT ledger_id, (SELECT count(*) FROM stream_heads) FROM ledger")[0]
            seam.reach("backup.database")
            _copy_database(source, draft / DATABASE, progress)
            artifacts, unsound = _copy_artifacts(source, path, draft)
        finally:
            source.close()
    manifest = Manifest(FORMAT, ledger_id, made_at, streams, digest(draft / DATABASE), artifacts, unsound)
    seam.reach("backup.manifest")
    write_new(draft / MANIFEST, msgspec.json.format(msgspec.json.encode(manifest)) + b"\n")
    sync_folders(draft)
    return manifest


def _copy_database(source: apsw.Connection, target: Path, progress: Progress | None) -> None:
    copied = apsw.Connection(str(target))
    try:
        with copied.backup("main", source, "main") as running:
            while not running.done:
                running.step(_PAGES)
                if progress is not None:
                    progress(running.page_count - running.remaining, running.page_count)
    finally:
        copied.close()
    sync(target)


def _copy_artifacts(source: apsw.Connection, path: Path, draft: Path) -> tuple[dict[str, Written], list[str]]:
    files, copies = ArtifactFiles.beside(path), ArtifactFiles.beside(draft / DATABASE)
    artifacts: dict[str, Written] = {}
    unsound: list[str] = []
    rows: Any = source.execute(
        "SELECT tenant_id, workspace_id, run_id, artifact_id, storage_key, sha256 FROM run_artifacts "
        "WHERE store = 'file' AND sha256 IS NOT NULL"
    )
    for *key, storage_key, recorded in rows:
        seam.reach("backup.artifact")
        if not is_storage_key(storage_key):  # The tables are not proven: what they say is not where a file is read.
            unsound.append(storage_key)
            continue
        try:
            written = copy(files.path(storage_key), copies.path(storage_key))
        except FileNotFoundError:
            if _is_erased(path, key):
                raise _Erased from None
            unsound.append(storage_key)
            continue
        artifacts[storage_key] = written
        if written.sha256 != recorded:
            unsound.append(storage_key)
    return artifacts, unsound


def _is_erased(path: Path, key: list[Any]) -> bool:
    now = connect(path, write=False)
    try:
        found = query(
            now,
            "SELECT sha256 FROM run_artifacts "
            "WHERE tenant_id = ? AND workspace_id = ? AND run_id = ? AND artifact_id = ?",
            key,
        )
        return found == [(None,)]
    finally:
        now.close()
