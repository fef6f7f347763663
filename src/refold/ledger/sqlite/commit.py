"""One transaction for many streams: heads by compare-and-set, events, blobs, projections, snapshots, inbox.

Nearly always nothing stands in the way of any stream, so all are written together, table by table. Where something
does, the transaction is begun again and each stream is written in a savepoint, which keeps one stream's conflict from
its neighbours. When COMMIT itself fails, whether it took effect is not known: the connection is thrown away and the
heads are read again.
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
from refold.ledger.errors import Fenced, KeyConflict, SchemaOutdated
from refold.ledger.port import Committed, Lost, Outcome, Snapshot, StreamBatch
from refold.ledger.sqlite import heads, intents
from refold.ledger.sqlite.connection import changed_all, translate
from refold.ledger.sqlite.heads import SHIFT, HeadRow
from refold.ledger.sqlite.schema import projections_of, upsert
from refold.projections import ROWS, Row
from refold.projections.fingerprint import fingerprint

_EVENT = "INSERT INTO events VALUES (" + ", ".join("?" * 18) + ")"
_BLOB = "INSERT INTO blobs VALUES (" + ", ".join("?" * 8) + ")"
_SNAPSHOT = "INSERT OR REPLACE INTO snapshots VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
_DELIVERED = (
    "UPDATE inbox SET delivered_seq = ? WHERE tenant_id = ? AND workspace_id = ? AND stream = ? AND key = ? "
    "AND delivered_seq IS NULL"
)
_KEEP_SNAPSHOTS = 2
_ORDER = {row: place for place, row in enumerate(ROWS)}


class _Stale(Exception):
    """A head, or an item of the inbox, is not as a batch takes it to be."""


_REFUSED = (_Stale, intents.Stale, apsw.Error, OverflowError, UnicodeError)


def write_together(
    connection: apsw.Connection, path: Path, batches: Sequence[StreamBatch], owner: int
) -> list[Outcome] | None:
    """Writes batches in the transaction that is open. None: one of them cannot be written, and the transaction is to be
    rolled back. Raises what makes the whole transaction impossible.
    """
    _require_this_code(connection, path)
    try:
        return [Committed(number) for number in _write(connection, batches, owner)]
    except _REFUSED:
        return None


def write_apart(connection: apsw.Connection, path: Path, batches: Sequence[StreamBatch], owner: int) -> list[Outcome]:
    """Writes batches in the transaction that is open, each in a savepoint. Raises only what makes the whole
    transaction impossible.
    """
    _require_this_code(connection, path)
    outcomes: list[Outcome] = []
    for batch in batches:
        connection.execute("SAVEPOINT stream")
        try:
            (number,) = _write(connection, [batch], owner)
            outcomes.append(Committed(number))
        except _REFUSED as error:
            if connection.getautocommit():
                raise  # SQLite has rolled the whole transaction back: a full or failing disk is everybody's.
            connection.execute("ROLLBACK TO stream")
            outcomes.append(Lost(_reason(connection, path, batch, error)))
        connection.execute("RELEASE stream")
    return outcomes


def _require_this_code(connection: apsw.Connection, path: Path) -> None:
    if projections_of(connection) != fingerprint():
        raise SchemaOutdated(f"{path.name} was migrated by other code while this process ran.", ledger=str(path))


def _write(connection: apsw.Connection, batches: Sequence[StreamBatch], owner: int) -> list[int]:
    numbers = _move_heads(connection, batches, owner)
    events: list[tuple[Any, ...]] = []
    blobs: list[tuple[Any, ...]] = []
    rows: dict[type[Row], list[tuple[Any, ...]]] = defaultdict(list)
    delivered: list[tuple[Any, ...]] = []
    for batch, number in zip(batches, numbers, strict=True):
        scope, base = batch.scope, number << SHIFT
        events += [(base | event[0], *scope, *event[1:]) for event in batch.events]
        blobs += [(base | blob[0], *scope, *blob[1:]) for blob in batch.blobs]
        for table, row in batch.rows:
            rows[table].append((*scope, *row))
        delivered += [(seq, *scope, str(batch.stream), key) for key, seq in batch.delivered]
    connection.executemany(_EVENT, events)
    if blobs:
        connection.executemany(_BLOB, blobs)
    intents.move(connection, [(*batch.scope, each) for batch in batches for each in batch.intents])
    put_rows(connection, rows)
    for batch in batches:
        if batch.snapshot is not None:
            _keep_snapshot(connection, (*batch.scope, str(batch.stream)), batch.snapshot)
    if not changed_all(connection, _DELIVERED, delivered):
        raise _Stale
    return numbers


def _move_heads(connection: apsw.Connection, batches: Sequence[StreamBatch], owner: int) -> list[int]:
    """The numbers of the batches' streams, whose heads are where the batches put them. Raises _Stale."""
    numbers, moves = [], []
    for batch in batches:
        previous, head = batch.previous, batch.head
        if batch.stream_no is None:
            name = str(batch.stream)
            row = HeadRow(0, *batch.scope, name, head.seq, head.hash, head.epoch, owner, int(batch.closed), 0, b"")
            numbers.append(heads.insert(connection, row).stream_no)
            continue
        # An annex goes on after its run was erased, and what it said before stays marked as erased.
        found = heads.find(connection, batch.scope, batch.stream) if batch.stream.kind == "annex" else None
        erased = 0 if found is None else found.erased
        moves.append(
            heads.move(batch.stream_no, batch.scope, str(batch.stream), previous, head, owner, batch.closed, erased)
        )
        numbers.append(batch.stream_no)
    if not changed_all(connection, heads.MOVE, moves):
        raise _Stale
    return numbers


def _keep_snapshot(connection: apsw.Connection, stream: tuple[str, str, str], snapshot: Snapshot) -> None:
    connection.execute(_SNAPSHOT, (*stream, *snapshot))
    connection.execute(
        "DELETE FROM snapshots WHERE tenant_id = ?1 AND workspace_id = ?2 AND stream = ?3 AND seq NOT IN "
        "(SELECT seq FROM snapshots WHERE tenant_id = ?1 AND workspace_id = ?2 AND stream = ?3 "
        "ORDER BY seq DESC LIMIT ?4)",
        (*stream, _KEEP_SNAPSHOTS),
    )


def put_rows(connection: apsw.Connection, rows: dict[type[Row], list[tuple[Any, ...]]]) -> None:
    """Puts projection rows, tenant and workspace in front, parents before children."""
    for table in sorted(rows, key=_ORDER.__getitem__):
        connection.executemany(upsert(table), rows[table])


def _reason(connection: apsw.Connection, path: Path, batch: StreamBatch, error: Exception) -> RefoldError:
    """Why a batch was refused, in the state in which it was."""
    match error:
        case _Stale():
            return _fenced(batch, batch.previous, batch.head)
        case intents.Stale() | apsw.ConstraintError():
            return intents.refusal(connection, batch) or _conflict(batch, error)
        case apsw.Error():
            return translate(error, path)
        case _:
            why = f"{batch.stream} has something for the tables that SQLite cannot hold: {error}."
            return NotRecordable(why, path="$", type="", reason=str(error))


def _fenced(batch: StreamBatch, previous: Head, head: Head) -> Fenced:
    return Fenced(
        f"{batch.stream} was taken over or written by another process; "
        f"events {previous.seq + 1} to {head.seq} were dropped.",
        stream=str(batch.stream),
        first_dropped=previous.seq + 1,
        last_dropped=head.seq,
        epoch=previous.epoch,
    )


def _conflict(batch: StreamBatch, error: Exception) -> RefoldError:
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
