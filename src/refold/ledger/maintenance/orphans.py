"""Artifact files that nothing refers to: left by a process that died between writing one and committing its event."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple

import apsw

from refold import seam
from refold.ledger.artifacts import ArtifactFiles
from refold.ledger.ledger import Ledger
from refold.ledger.sqlite.connection import query
from refold.ledger.sqlite.narrow import sqlite_store

GRACE = 24 * 3600
"""Seconds for which a file may wait for the event that names it."""


class Orphan(NamedTuple):
    """A file in the place of an artifact that no event names. `age` is in seconds."""

    storage_key: str
    size: int
    age: float


def orphans(connection: apsw.Connection, files: ArtifactFiles, grace: float = GRACE) -> Iterator[Orphan]:
    """The orphans that are older than `grace` seconds, as the connection sees the ledger now.

    Files that are not where artifacts are put are nobody's orphans and are left out.
    """
    now = time.time()
    for key in files.all_files():
        parts = Path(key).parts
        if len(parts) != 4 or not parts[2].startswith("run_") or not parts[3].startswith("art_"):
            continue
        try:
            state = files.path(key).stat()
        except FileNotFoundError:
            continue
        if now - state.st_mtime >= grace and not is_named(connection, key):
            yield Orphan(key, state.st_size, now - state.st_mtime)


def is_named(connection: apsw.Connection, storage_key: str) -> bool:
    """Whether an event names the file, and was not erased."""
    tenant, workspace, run_id, artifact_id = Path(storage_key).parts
    found = query(
        connection,
        "SELECT sha256 FROM run_artifacts WHERE tenant_id = ? AND workspace_id = ? AND run_id = ? AND artifact_id = ? "
        "AND store = 'file'",
        (tenant, workspace, run_id, artifact_id),
    )
    return bool(found) and found[0][0] is not None


async def collect_orphans(ledger: Ledger, grace: float = GRACE) -> list[Orphan]:
    """Removes the orphans that are older than `grace` seconds and says which those were.

    Each is looked up once more in a write transaction, in which nobody can commit an event that names it.
    """
    access = sqlite_store(ledger.store).access
    with access.reading() as connection:
        found = list(orphans(connection, ledger.files, grace))
    removed = []
    for orphan in found:
        if await access.write(partial(_remove, ledger.files, orphan)):
            removed.append(orphan)
    return removed


def _remove(files: ArtifactFiles, orphan: Orphan, connection: apsw.Connection) -> bool:
    if is_named(connection, orphan.storage_key):
        return False
    path = files.path(orphan.storage_key)
    seam.reach("artifact.unlink")
    path.unlink(missing_ok=True)
    with suppress(OSError):  # Other files of the run are there.
        path.parent.rmdir()
    return True
