"""Erasing a run in the SQLite file: the transaction that takes its content away, and what makes the bytes go for good.

`stream_heads.erased` of a run says how far it is: 1, the content is gone from every table, and files, freed pages or
the write-ahead log may still hold bytes of it; 2, nothing is left anywhere. Whatever is at 1 is finished by the next
process that writes to the ledger.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from pathlib import Path
from typing import Any, NamedTuple

import apsw
import msgspec

from refold.events.catalog import Catalog
from refold.events.identity import Stream, run_folder
from refold.ledger.artifacts import ArtifactFiles
from refold.ledger.sqlite import heads
from refold.ledger.sqlite.commit import put_rows
from refold.ledger.sqlite.connection import BUSY_MILLISECONDS, query, transaction
from refold.ledger.sqlite.heads import SHIFT, HeadRow
from refold.ledger.sqlite.lockfile import MIGRATOR, LockFile
from refold.ledger.sqlite.refolding import refold_stream, rename_intents, scope_of, side_tables
from refold.projections import Row, new_state
from refold.projections.rows import IntentRow

_log = logging.getLogger("refold.ledger.erasing")

GONE, LEFT_NOWHERE = 1, 2

# What is to be erased of a stream. What says that something was erased, by whom and why, stays.
_CONTENT = (
    "id > ? AND id <= ? AND tenant_id = ? AND workspace_id = ? "
    "AND (content IS NOT NULL OR view IS NOT NULL) AND type <> 'content.erased'"
)
_BLOBS = "id > ? AND id <= ? AND tenant_id = ? AND workspace_id = ?"


class Content(NamedTuple):
    """How much of a run can be erased: events with content or view, and blobs."""

    events: int
    blobs: int


def content_of(connection: apsw.Connection, streams: list[HeadRow]) -> Content:
    """What these streams hold that can be erased."""
    events = blobs = 0
    for head in streams:
        events += query(connection, f"SELECT count(*) FROM events WHERE {_CONTENT}", _range(head))[0][0]
        blobs += query(connection, f"SELECT count(*) FROM blobs WHERE {_BLOBS}", _whole(head))[0][0]
    return Content(events, blobs)


def take_content(connection: apsw.Connection, run: HeadRow, annex: HeadRow, catalog: Catalog) -> None:
    """Takes the content of a run and its annex out of every table, in the transaction that is open.

    Content, views, blobs, snapshots and the inbox go; the rows of the run are folded again from what is left and
    written back, so that they equal a rebuild.
    """
    spoken = annex.seq > 1  # The last event is the one that says that the others are erased.
    for head, erased in ((run, GONE), (annex, LEFT_NOWHERE if spoken else annex.erased)):
        connection.execute(f"UPDATE events SET content = NULL, view = NULL WHERE {_CONTENT}", _range(head))
        connection.execute(f"DELETE FROM blobs WHERE {_BLOBS}", _whole(head))
        scope = scope_of(head)
        for table in ("snapshots", "inbox"):
            connection.execute(
                f"DELETE FROM {table} WHERE tenant_id = ? AND workspace_id = ? AND stream = ?", (*scope, head.stream)
            )
        heads.replace(connection, head, head._replace(erased=erased))
        state = new_state(scope, Stream.parse(head.stream))
        for rows in refold_stream(state, connection, head, catalog):
            made: dict[type[Row], list[tuple[Any, ...]]] = defaultdict(list)
            for row in rows:
                made[type(row)].append((*scope, *msgspec.structs.astuple(row)))
            put_rows(connection, made)
        rename_intents(connection, connection, head, IntentRow.TABLE.name, catalog)


def unfinished(connection: apsw.Connection) -> list[HeadRow]:
    """The runs whose content is gone and whose bytes may not be."""
    found = query(connection, f"SELECT {heads.COLUMNS} FROM stream_heads WHERE erased = {GONE}")
    return [HeadRow(*row) for row in found]


def finish(connection: apsw.Connection, path: Path, lock: LockFile, patience: int) -> str | None:
    """Finishes erasures that are under way, and says why it cannot when it cannot. No transaction may be open.

    `patience` is how many milliseconds readers are waited for.
    """
    runs = unfinished(connection)
    if not runs:
        return None
    rests = side_tables(connection)
    if rests and lock.is_alive(MIGRATOR):
        return "a migration is running, and finishes it"
    try:
        for name in rests:  # Of a migration that was killed: they may show what was erased since.
            connection.execute(f"DROP TABLE {name}")
        files = ArtifactFiles.beside(path)
        for head in runs:
            files.delete_run(run_folder(scope_of(head), Stream.parse(head.stream).run_id))
        why = scrub(connection, patience)
    except OSError as error:
        why = f"an artifact's file cannot be removed: {error}"
    if why is not None:
        _log.warning("the erasure of %d runs is not finished: %s", len(runs), why)
        return why
    with transaction(connection):
        for head in runs:
            heads.replace(connection, head, head._replace(erased=LEFT_NOWHERE))
    return None


def scrub(connection: apsw.Connection, patience: int) -> str | None:
    """Leaves no byte of deleted rows in the file or its log, and says why it cannot when it cannot.

    The log is emptied into the file first, then the file is written anew without its free pages, then that is brought
    from the log into the file. Each of the three has to wait for readers of older states.
    """
    reader = "a reader of an older state is open"
    connection.set_busy_timeout(patience)
    try:
        if query(connection, "PRAGMA wal_checkpoint(TRUNCATE)")[0][0]:
            return reader
        connection.execute("VACUUM")
        return reader if query(connection, "PRAGMA wal_checkpoint(TRUNCATE)")[0][0] else None
    except (apsw.BusyError, apsw.LockedError):
        return reader
    except apsw.FullError:
        return "there is no room to write the file anew"
    finally:
        connection.set_busy_timeout(BUSY_MILLISECONDS)


def _range(head: HeadRow) -> tuple[int, int, str, str]:
    base = head.stream_no << SHIFT
    return base, base | head.seq, head.tenant_id, head.workspace_id


def _whole(head: HeadRow) -> tuple[int, int, str, str]:
    base = head.stream_no << SHIFT
    return base, base | heads.SEQ_LIMIT, head.tenant_id, head.workspace_id
