"""Running a group commit in this process's turn, and finding out what became of a COMMIT that failed."""

from __future__ import annotations

from collections.abc import Sequence

import apsw

from refold.errors import RefoldError
from refold.ledger.errors import CommitUnknown, Fenced
from refold.ledger.port import Committed, Lost, Outcome, StreamBatch
from refold.ledger.sqlite import commit, heads
from refold.ledger.sqlite.access import Access
from refold.ledger.sqlite.connection import query, translate


async def run_commit(access: Access, batches: Sequence[StreamBatch]) -> list[Outcome]:
    """Commits batches in one transaction; each outcome says what became of its batch."""
    access.here()
    # When nobody else writes, the commit runs right here: a hand-off to a thread costs as much as the commit.
    if access.try_turn():
        return _commit_and_leave(access, batches)
    return await access.threaded(lambda: _wait_and_commit(access, batches))


def _wait_and_commit(access: Access, batches: Sequence[StreamBatch]) -> list[Outcome]:
    access.take_turn()
    return _commit_and_leave(access, batches)


def _commit_and_leave(access: Access, batches: Sequence[StreamBatch]) -> list[Outcome]:
    try:
        return _commit(access, list(batches), retry=True)
    finally:
        access.leave_turn()


def _commit(access: Access, batches: list[StreamBatch], retry: bool) -> list[Outcome]:
    try:
        connection = access.writer()
        outcomes = _begin(access, connection, batches)
    except (apsw.Error, RefoldError) as error:
        return _all_lost(access, batches, error)
    try:
        connection.execute("COMMIT")
    except apsw.Error as error:
        return _find_out(access, batches, outcomes, error, retry)
    return outcomes


def _begin(access: Access, connection: apsw.Connection, batches: Sequence[StreamBatch]) -> list[Outcome]:
    """Begins a transaction and writes the batches in it: together, or where that cannot be, each by itself."""
    try:
        connection.execute("BEGIN IMMEDIATE")
        owner = access.incarnation.register(connection)
        outcomes = commit.write_together(connection, access.path, batches, owner)
        if outcomes is None:
            _roll_back(access, connection)
            connection.execute("BEGIN IMMEDIATE")
            owner = access.incarnation.register(connection)
            outcomes = commit.write_apart(connection, access.path, batches, owner)
        return outcomes
    except BaseException:
        _roll_back(access, connection)
        raise


def _roll_back(access: Access, connection: apsw.Connection) -> None:
    access.incarnation.rolled_back()
    if not connection.getautocommit():
        connection.execute("ROLLBACK")


def _find_out(
    access: Access, batches: list[StreamBatch], outcomes: list[Outcome], error: apsw.Error, retry: bool
) -> list[Outcome]:
    """COMMIT failed: whether it took effect is not known, and is read from the heads on a new connection."""
    access.incarnation.rolled_back()
    try:
        access.drop_writer()
        connection = access.writer()
        rows = [heads.find(connection, batch.scope, batch.stream) for batch in batches]
        fates = [commit.fate(row, batch) for row, batch in zip(rows, batches, strict=True)]
        if "committed" in fates:
            # The call that failed may have been the fsync: only a full checkpoint makes these bytes durable for
            # certain.
            query(connection, "PRAGMA wal_checkpoint(FULL)")
    except (apsw.Error, RefoldError) as later:
        unknown = CommitUnknown(
            f"A commit to {access.path.name} failed ({error}), and the ledger cannot be read: {later}."
        )
        return _all_lost(access, batches, unknown)
    result: list[Outcome] = []
    for batch, outcome, row, fate in zip(batches, outcomes, rows, fates, strict=True):
        if isinstance(outcome, Lost):
            result.append(outcome)
        elif row is not None and fate == "committed":
            result.append(Committed(row.stream_no))
        elif fate == "fenced":
            result.append(Lost(Fenced(f"{batch.stream} was written by another process during a failed commit.")))
        elif retry:
            result.extend(_commit(access, [batch], retry=False))
        else:
            result.append(Lost(translate(error, access.path)))
    return result


def _all_lost(access: Access, batches: Sequence[StreamBatch], error: apsw.Error | RefoldError) -> list[Outcome]:
    told = translate(error, access.path) if isinstance(error, apsw.Error) else error
    return [Lost(told) for _ in batches]
