"""Looking a ledger over: what is wrong with it, what is stuck in it, and what to do about each.

The doctor changes nothing and never fails because something is wrong: that is what it reports. `verify` proves the
record event by event; this looks at what is around it: the file, its pages, schema and log, owners, erasures, files.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import apsw

from refold.clock import Clock, SystemClock
from refold.errors import RefoldError
from refold.ledger.artifacts import ArtifactFiles
from refold.ledger.ledger import Ledger
from refold.ledger.maintenance.orphans import orphans
from refold.ledger.sqlite import erasing, heads, schema
from refold.ledger.sqlite.connection import check_place, connect, file_system, mounts, must_exist, query, translate
from refold.ledger.sqlite.heads import HeadRow
from refold.ledger.sqlite.incarnation import Incarnation
from refold.ledger.sqlite.lockfile import open_lock_file
from refold.ledger.sqlite.refolding import side_tables
from refold.projections.fingerprint import fingerprint

LARGE = 1 << 30
"""From this many bytes on, pages are checked without comparing indexes with tables: minutes otherwise."""
_LEAST_FREE = 100 << 20
_LARGE_LOG = 64 << 20
_SHOWN = 10
_LEAST_SQLITE = (3, 51, 3)
_OPTIONS = ("THREADSAFE", "SECURE_DELETE", "DEFAULT_SYNCHRONOUS", "DEFAULT_WAL_SYNCHRONOUS", "DQS", "USE_URI")


class Check(NamedTuple):
    """One thing that was looked at. `remedy` says what to do when it is not `ok`."""

    name: str
    ok: bool
    facts: dict[str, Any]
    remedy: str | None = None


async def doctor(ledger: str | Path | Ledger, clock: Clock | None = None) -> list[Check]:
    """Looks a ledger over, in the order in which things depend on each other; ends early where it cannot be opened."""
    path = ledger.path if isinstance(ledger, Ledger) else Path(ledger).resolve()
    return await asyncio.to_thread(_examine, path, clock or SystemClock())


def _examine(path: Path, clock: Clock) -> list[Check]:
    found = [_sqlite(), _seen("place", partial(_place, path))]
    try:
        must_exist(path)
        connection = connect(path, write=False)
    except (RefoldError, OSError) as error:
        return [*found, _failed("open", error, path)]
    with closing(connection):
        opened = _seen("schema", partial(_schema, connection, path), path)
        found.append(opened)
        found.append(_seen("pages", partial(_pages, connection, path), path))
        if opened.facts.get("code") in ("not_a_ledger", "ledger_damaged"):
            return found
        checks: dict[str, Callable[[], Check]] = {
            "projections": partial(_projections, connection),
            "log": partial(_log, path),
            "heads": partial(_heads, connection),
            "secrets": partial(_secrets, connection),
            "owners": partial(_owners, connection, path, clock),
            "erasures": partial(_erasures, connection),
            "snapshots": partial(_snapshots, connection),
            "artifacts": partial(_artifacts, connection, path),
            "doubts": partial(_doubts, connection),
        }
        return found + [_seen(name, check, path) for name, check in checks.items()]


def _seen(name: str, check: Callable[[], Check], path: Path | None = None) -> Check:
    try:
        return check()
    except (apsw.Error, RefoldError, OSError, ValueError, TypeError, LookupError) as error:
        return _failed(name, error, path)


def _failed(name: str, error: Exception, path: Path | None) -> Check:
    if isinstance(error, apsw.Error) and path is not None:
        error = translate(error, path)
    if isinstance(error, RefoldError):
        return Check(name, False, {"code": error.code, "error": error.message}, error.remedy)
    return Check(name, False, {"error": f"{type(error).__name__}: {error}"}, "Restore the latest backup of this file.")


def _sqlite() -> Check:
    options = [each for each in apsw.compile_options if each.startswith(_OPTIONS)]
    version = apsw.sqlite_lib_version()
    ok = tuple(map(int, version.split(".")[:3])) >= _LEAST_SQLITE
    facts = {"sqlite": version, "apsw": apsw.apsw_version(), "options": options}
    return Check("sqlite", ok, facts, None if ok else "Install the apsw that refold asks for: pip install -U apsw.")


def _place(path: Path) -> Check:
    check_place(path)
    free = shutil.disk_usage(path.parent).free
    size = path.stat().st_size if path.exists() else 0
    facts = {"file_system": file_system(path, mounts()) or "unknown", "free_bytes": free, "ledger_bytes": size}
    # Erasing writes the file anew: into the log, and from there into its place.
    needed = max(_LEAST_FREE, 2 * size)
    facts["writable"] = os.access(path if path.exists() else path.parent, os.W_OK)
    if free < needed:
        return Check("place", False, facts, f"Free some room: {needed >> 20} MiB are needed to erase or to migrate.")
    return Check("place", True, facts)


def _schema(connection: apsw.Connection, path: Path) -> Check:
    missing = [f"{step.number:04}_{step.name}" for step in schema.check(connection, path)]
    applied = [name for (name,) in query(connection, "SELECT name FROM migrations ORDER BY number")]
    facts = {"applied": applied, "missing": missing}
    return Check("schema", not missing, facts, "Run `refold migrate`." if missing else None)


def _pages(connection: apsw.Connection, path: Path) -> Check:
    quick = path.stat().st_size >= LARGE
    said = [str(line) for (line,) in query(connection, "PRAGMA quick_check" if quick else "PRAGMA integrity_check")]
    ok = said == ["ok"]
    facts: dict[str, Any] = {"check": "quick" if quick else "full"}
    if not ok:
        facts |= {"problems": said[:_SHOWN], "more": max(0, len(said) - _SHOWN)}
    return Check("pages", ok, facts, None if ok else "Stop writing, keep the file, and restore the latest backup.")


def _projections(connection: apsw.Connection) -> Check:
    stored, rests = schema.projections_of(connection), side_tables(connection)
    facts = {"stored": stored, "code": fingerprint(), "rests": rests}
    ok = stored == fingerprint() and not rests
    return Check("projections", ok, facts, None if ok else "Run `refold migrate`: it folds them again, and tidies up.")


def _log(path: Path) -> Check:
    log = path.with_name(path.name + "-wal")
    size = log.stat().st_size if log.exists() else 0
    facts: dict[str, Any] = {"bytes": size}
    try:
        with closing(connect(path, write=True)) as writing:
            _, frames, checkpointed = query(writing, "PRAGMA wal_checkpoint(PASSIVE)")[0]
    except RefoldError as error:
        facts["not_tried"] = error.message
        return Check("log", size < _LARGE_LOG, facts, None if size < _LARGE_LOG else error.remedy)
    facts |= {"frames": frames, "checkpointed": checkpointed}
    held = checkpointed < frames
    remedy = "A long reader keeps the log from being emptied: end it (a backup, a shell, a stuck process)."
    return Check("log", not held or size < _LARGE_LOG, facts | {"held_by_a_reader": held}, remedy if held else None)


def _all_heads(connection: apsw.Connection) -> Iterator[HeadRow]:
    rows: Any = connection.execute(f"SELECT {heads.COLUMNS} FROM stream_heads ORDER BY stream_no")
    for row in rows:
        yield HeadRow(*row)


def _heads(connection: apsw.Connection) -> Check:
    count, damaged = 0, []
    for row in _all_heads(connection):
        count += 1
        if not row.intact:
            damaged.append(f"{row.tenant_id}/{row.workspace_id} {row.stream}")
    facts = {"streams": count, "damaged": damaged[:_SHOWN], "more": max(0, len(damaged) - _SHOWN)}
    return Check("heads", not damaged, facts, "Run `refold verify --all`, and restore a backup." if damaged else None)


def _secrets(connection: apsw.Connection) -> Check:
    rows = query(connection, "SELECT tenant_id, secret, row_digest FROM secrets WHERE name = 'digests'")
    damaged = [tenant for tenant, secret, digest in rows if heads.row_digest(tenant, secret) != digest]
    facts = {"tenants": len(rows), "damaged": damaged[:_SHOWN]}
    return Check(
        "secrets", not damaged, facts, "No digest of these can be checked: restore a backup." if damaged else None
    )


def _owners(connection: apsw.Connection, path: Path, clock: Clock) -> Check:
    lock = open_lock_file(str(path))
    try:
        judge = Incarnation(lock, clock)
        owned: dict[int, list[str]] = {}
        for row in _all_heads(connection):
            if row.owner is not None:
                owned.setdefault(row.owner, []).append(f"{row.tenant_id}/{row.workspace_id} {row.stream}")
        dead = {number: why for number in owned if (why := judge.is_dead(connection, number)) is not None}
    finally:
        lock.close()
    left = [{"stream": stream, "why": dead[number]} for number in dead for stream in owned[number]]
    facts = {"owned": sum(map(len, owned.values())), "left": left[:_SHOWN], "more": max(0, len(left) - _SHOWN)}
    return Check("owners", not left, facts, "Whoever opens these next takes them over at once." if left else None)


def _erasures(connection: apsw.Connection) -> Check:
    pending = [row.stream for row in erasing.unfinished(connection)]
    facts = {"pending": pending[:_SHOWN], "more": max(0, len(pending) - _SHOWN)}
    remedy = "Bytes of erased content may still be in files. End long readers, then erase one of these runs again."
    return Check("erasures", not pending, facts, remedy if pending else None)


def _snapshots(connection: apsw.Connection) -> Check:
    beyond = query(
        connection,
        "SELECT s.stream, s.seq FROM snapshots s JOIN stream_heads h USING (tenant_id, workspace_id, stream) "
        "WHERE s.seq > h.seq ORDER BY 1, 2",
    )
    facts = {"beyond_head": [f"{stream} at {seq}" for stream, seq in beyond[:_SHOWN]], "count": len(beyond)}
    remedy = "A stream lost its tail: run `refold verify --all`, and restore a backup. No snapshot of these is used."
    return Check("snapshots", not beyond, facts, remedy if beyond else None)


def _artifacts(connection: apsw.Connection, path: Path) -> Check:
    files = ArtifactFiles.beside(path)
    left = list(orphans(connection, files))
    keys: Any = connection.execute("SELECT storage_key FROM run_artifacts WHERE store = 'file' AND sha256 IS NOT NULL")
    missing = [key for (key,) in keys if not files.path(key).is_file()]
    facts = {
        "missing": missing[:_SHOWN],
        "missing_count": len(missing),
        "orphans": len(left),
        "orphan_bytes": sum(each.size for each in left),
    }
    remedy = None
    if missing:
        remedy = "Restore these files from a backup."
    elif left:
        remedy = "Nothing refers to the orphans; `refold doctor --collect-orphans` removes them."
    return Check("artifacts", remedy is None, facts, remedy)


def _doubts(connection: apsw.Connection) -> Check:
    """Doubts are not damage; they are shown here because somebody has to settle them."""
    intents = query(connection, "SELECT count(*) FROM tool_intents WHERE status = 'in_doubt'")[0][0]
    runs = query(connection, "SELECT count(DISTINCT run_id) FROM run_step_tool_calls WHERE status = 'in_doubt'")[0][0]
    return Check("doubts", True, {"intents": intents, "runs": runs})
