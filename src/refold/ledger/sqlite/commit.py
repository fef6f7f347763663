"""One transaction for many streams: heads by compare-and-set, events, blobs, projections, snapshots, inbox.

A savepoint a stream keeps one stream's conflict from its neighbours. When COMMIT itself fails, whether it took effect
is not known: the connection is thrown away and the heads are read again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import apsw

from refold.errors import RefoldError
from refold.events.envelope import Head
from refold.events.values import NotRecordable
from refold.ledger.errors import Fenced, IntentMoved, KeyConflict, SchemaOutdated
from refold.ledger.port import Committed, Lost, Outcome, StreamBatch
from refold.ledger.sqlite import heads, intents
from refold.ledger.sqlite.connection import translate
from refold.ledger.sqlite.heads import SHIFT, HeadRow
from refold.ledger.sqlite.schema import projections_of, upsert
from refold.projections import ROWS, Row
from refold.projections.fingerprint import fingerprint

_EVENT = "INSERT INTO events VALUES (" + ", ".join("?" * 18) + ")"
_BLOB = "INSERT INTO blobs VALUES (" + ", ".join("?" * 8) + ")"
_SNAPSHOT = "INSERT OR REPLACE INTO snapshots VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
_KEEP_SNAPSHOTS = 2
_ORDER = {row: place for place, row in enumerate(ROWS)}


def write_batches(connection: apsw.Connection, path: Path, batches: Sequence[StreamBatch], owner: int) -> list[Outcome]:
    """Writes batches in the transaction that is open. Raises only what makes the whole transaction impossible."""
    if projections_of(connection) != fingerprint():
        raise SchemaOutdated(f"{path.name} was migrated by other code while this process ran.", ledger=str(path))
    outcomes: list[Outcome] = []
    for batch in batches:
        connection.execute("SAVEPOINT stream")
        try:
            outcome: Outcome = Committed(_write(connection, batch, owner))
        except (Fenced, IntentMoved, KeyConflict) as error:
            outcome = Lost(error)
        except apsw.ConstraintError as error:
            outcome = Lost(_conflict(batch, error))
        except apsw.Error as error:
            if connection.getautocommit():
                raise  # SQLite has rolled the whole transaction back: a full or failing disk is everybody's.
            outcome = Lost(translate(error, path))
        except (OverflowError, UnicodeError) as error:
            why = f"{batch.stream} has something for the tables that SQLite cannot hold: {error}."
            outcome = Lost(NotRecordable(why, path="$", type="", reason=str(error)))
        if isinstance(outcome, Lost):
            connection.execute("ROLLBACK TO stream")
        connection.execute("RELEASE stream")
        outcomes.append(outcome)
    return outcomes


def _write(connection: apsw.Connection, batch: StreamBatch, owner: int) -> int:
    scope, previous, head = batch.scope, batch.previous, batch.head
    number = _move_head(connection, batch, owner)
    tenant, workspace = scope
    base = number << SHIFT
    connection.executemany(_EVENT, [(base | event[0], tenant, workspace, *event[1:]) for event in batch.events])
    if batch.blobs:
        connection.executemany(_BLOB, [(base | blob[0], tenant, workspace, *blob[1:]) for blob in batch.blobs])
    intents.move(connection, scope, batch.stream, batch.intents)
    write_rows(connection, tenant, workspace, batch.rows)
    stream = str(batch.stream)
    if batch.snapshot is not None:
        connection.execute(_SNAPSHOT, (tenant, workspace, stream, *batch.snapshot))
        connection.execute(
            "DELETE FROM snapshots WHERE tenant_id = ?1 AND workspace_id = ?2 AND stream = ?3 AND seq NOT IN "
            "(SELECT seq FROM snapshots WHERE tenant_id = ?1 AND workspace_id = ?2 AND stream = ?3 "
            "ORDER BY seq DESC LIMIT ?4)",
            (tenant, workspace, stream, _KEEP_SNAPSHOTS),
        )
    for key, seq in batch.delivered:
        connection.execute(
            "UPDATE inbox SET delivered_seq = ? WHERE tenant_id = ? AND workspace_id = ? AND stream = ? AND key = ? "
            "AND delivered_seq IS NULL",
            (seq, tenant, workspace, stream, key),
        )
        if connection.changes() != 1:
            raise _fenced(batch, previous, head)
    return number


def _move_head(connection: apsw.Connection, batch: StreamBatch, owner: int) -> int:
    scope, previous, head = batch.scope, batch.previous, batch.head
    if batch.stream_no is None:
        row = HeadRow(0, *scope, str(batch.stream), head.seq, head.hash, head.epoch, owner, int(batch.closed), 0, b"")
        return heads.insert(connection, row).stream_no
    erased = 0
    if batch.stream.kind == "annex":
        # It goes on after its run was erased, and what it said before stays marked as erased.
        found = heads.find(connection, scope, batch.stream)
        erased = 0 if found is None else found.erased
    old = HeadRow(
        batch.stream_no,
        *scope,
        str(batch.stream),
        previous.seq,
        previous.hash,
        previous.epoch,
        owner,
        0,
        erased,
        b"",
    )
    new = old._replace(seq=head.seq, hash=head.hash, epoch=head.epoch, closed=int(batch.closed))
    if not heads.replace(connection, old, new):
        raise _fenced(batch, previous, head)
    return batch.stream_no


def write_rows(
    connection: apsw.Connection,
    tenant: str,
    workspace: str,
    rows: Sequence[tuple[type[Row], tuple[Any, ...]]],
) -> None:
    """Puts projection rows, parents before children."""
    by_table: dict[type[Row], list[tuple[Any, ...]]] = defaultdict(list)
    for table, row in rows:
        by_table[table].append((tenant, workspace, *row))
    for table in sorted(by_table, key=_ORDER.__getitem__):
        connection.executemany(upsert(table), by_table[table])


def _fenced(batch: StreamBatch, previous: Head, head: Head) -> Fenced:
    return Fenced(
        f"{batch.stream} was taken over or written by another process; "
        f"events {previous.seq + 1} to {head.seq} were dropped.",
        stream=str(batch.stream),
        first_dropped=previous.seq + 1,
        last_dropped=head.seq,
        epoch=previous.epoch,
    )


def _conflict(batch: StreamBatch, error: apsw.ConstraintError) -> RefoldError:
    if "runs.key_digest" in str(error):
        return KeyConflict(f"Another process has just created a run with this key ({batch.stream} was not created).")
    if "stream_heads" in str(error):
        return _fenced(batch, batch.previous, batch.head)
    return KeyConflict(
        f"Something in {batch.stream} must be unique in its scope and is not: {error}.",
        stream=str(batch.stream),
    )


def fate(row: HeadRow | None, batch: StreamBatch) -> str:
    """What a head row says of a batch whose COMMIT failed: `committed`, `absent` (the same bytes can be appended
    again) or `fenced`.
    """
    if row is None:
        return "absent" if batch.stream_no is None else "fenced"
    if row.head == batch.head:
        return "committed"
    return "absent" if row.head == batch.previous and batch.stream_no is not None else "fenced"
