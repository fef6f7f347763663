"""From a backup to a ledger in its place: checked against the manifest, then put there whole.

A restored ledger is a ledger of its own: it gets a new `ledger_id`, because from here on its history may differ from
what its original did after the backup, and nobody may take the one for the other. Positions in streams stay what they
are. A reader that had seen more than the backup holds is refused with `BeyondHead` instead of waiting for ever, and one
that had seen less goes on where it was. Who was writing when the backup was made is not writing here: owners and
incarnations are cleared.
"""

from __future__ import annotations

import glob
import secrets
import shutil
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import apsw
import msgspec

from refold import seam
from refold.errors import RefoldError
from refold.ids import Ids, SystemIds
from refold.ledger.artifacts import ArtifactFiles, is_storage_key
from refold.ledger.maintenance.backup import DATABASE, FORMAT, MANIFEST, Manifest
from refold.ledger.maintenance.files import TargetExists, Written, copy, sync, sync_folders
from refold.ledger.sqlite import heads, schema
from refold.ledger.sqlite.connection import check_place, query, translated
from refold.ledger.sqlite.heads import HeadRow


class NotABackup(RefoldError):
    """The folder has no manifest that this refold can read. Nothing was restored."""

    code: ClassVar[str] = "not_a_backup"
    exit_status: ClassVar[int] = 2
    remedy = "Name the folder that `refold backup` made; it holds manifest.json."


class BackupDamaged(RefoldError):
    """A file of the backup is missing, or is not what its manifest says. Nothing was restored."""

    code: ClassVar[str] = "backup_damaged"
    exit_status: ClassVar[int] = 7
    remedy = "Use another copy of the backup, or an older one."


class Restored(NamedTuple):
    """A ledger that was restored. `unsound`: artifacts that the original had lost already when it was backed up."""

    path: Path
    ledger_id: str
    original_id: str
    streams: int
    artifacts: int
    unsound: tuple[str, ...]


def restore(source: str | Path, target: str | Path, ids: Ids | None = None) -> Restored:
    """Makes the ledger `target`, a file that does not exist yet, from the backup folder `source`.

    Raises NotABackup, BackupDamaged, TargetExists, NewerSchema, NetworkFileSystem; then nothing is left at `target`.
    """
    folder, place = Path(source).absolute(), Path(target).absolute()
    manifest = _manifest(folder)
    check_place(place)
    files = ArtifactFiles.beside(place).root
    for each in (place, place.with_name(place.name + "-wal"), place.with_name(place.name + "-shm"), files):
        if each.exists():
            raise TargetExists(f"{each} exists already.", target=str(each))
    place.parent.mkdir(parents=True, exist_ok=True)
    name = f".{place.name}.{secrets.token_hex(6)}.restoring"
    draft = place.with_name(name)
    drafts = ArtifactFiles.beside(draft).root
    try:
        _fetch(folder / DATABASE, draft, manifest.database)
        for key, expected in manifest.artifacts.items():
            _fetch(ArtifactFiles.beside(folder / DATABASE).path(key), ArtifactFiles(drafts).path(key), expected)
        with translated(place):
            ledger_id = _begin_anew(draft, ids or SystemIds())
        sync(draft)
        if drafts.exists():
            sync_folders(drafts)
            seam.reach("restore.rename_artifacts")
            drafts.rename(files)
        # The database last: without it there is no ledger here.
        seam.reach("restore.rename_database")
        draft.rename(place)
        sync(place.parent)
    finally:
        for rest in place.parent.glob(glob.escape(name) + "*"):
            shutil.rmtree(rest) if rest.is_dir() else rest.unlink()
    return Restored(
        place, ledger_id, manifest.ledger_id, manifest.streams, len(manifest.artifacts), tuple(manifest.unsound)
    )


def _manifest(folder: Path) -> Manifest:
    try:
        manifest = msgspec.json.decode((folder / MANIFEST).read_bytes(), type=Manifest)
    except (OSError, msgspec.MsgspecError, UnicodeError) as error:
        raise NotABackup(f"{folder} is not a backup: {error}.", source=str(folder)) from error
    if manifest.format != FORMAT:
        raise NotABackup(f"{folder} is a backup of format {manifest.format}; known is {FORMAT}.", source=str(folder))
    for key in manifest.artifacts:
        if not is_storage_key(key):  # A manifest is a file like any other: it must not say where files go.
            raise NotABackup(f"{folder} is not a backup: {key!r} is no artifact's place.", source=str(folder))
    return manifest


def _fetch(source: Path, target: Path, expected: Written) -> None:
    seam.reach("restore.copy")
    try:
        written = copy(source, target)
    except FileNotFoundError as error:
        raise BackupDamaged(f"{source} is missing from the backup.", file=str(source)) from error
    if written != expected:
        raise BackupDamaged(
            f"{source} is not the file that was backed up: its size or its SHA-256 is not that of the manifest.",
            file=str(source),
        )


def _begin_anew(database: Path, ids: Ids) -> str:
    connection = apsw.Connection(str(database), flags=apsw.SQLITE_OPEN_READWRITE)
    try:
        schema.check(connection, database)
        ledger_id = ids.new("ledger")
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("UPDATE ledger SET ledger_id = ?", (ledger_id,))
        connection.execute("DELETE FROM incarnations")
        owned: list[Any] = query(connection, f"SELECT {heads.COLUMNS} FROM stream_heads WHERE owner IS NOT NULL")
        for row in owned:
            head = HeadRow(*row)
            if head.intact:  # A damaged one stays as it is, for `verify` to find.
                heads.replace(connection, head, head._replace(owner=None))
        connection.execute("COMMIT")
    finally:
        connection.close()
    return ledger_id
