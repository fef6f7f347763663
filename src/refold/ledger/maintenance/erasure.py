"""Erasing what a closed run says, and keeping that it happened.

An event `content.erased` goes into the run's annex, with the basis in its content; in the same transaction everything
that holds text about the run goes out of the tables: content and views of the run's events and of the annex's earlier
ones (resolutions and feedback are about the run), blobs with salts, snapshots, the inbox. Digests, facts and hashes
stay, so the chain can still be proven. Then the files of its artifacts are removed, and the database file is written
anew, so that no free page and no log holds what was taken out.

What others took over is theirs and stays: a run that replayed a result of this one has its own copy; a backup made
before still holds everything.
"""

from __future__ import annotations

from typing import NamedTuple

import apsw

from refold.events.catalog.governance import ContentErased
from refold.events.identity import Stream, run_folder
from refold.ledger.drafts import Draft
from refold.ledger.errors import NotClosed
from refold.ledger.ledger import ScopedLedger
from refold.ledger.lookups import no_run
from refold.ledger.port import Committed, Lost, StreamBatch
from refold.ledger.sqlite import commit, erasing, heads
from refold.ledger.sqlite.access import Access
from refold.ledger.sqlite.heads import HeadRow
from refold.ledger.sqlite.narrow import sqlite_reader, sqlite_store

PATIENCE = 500
"""Milliseconds for which an erasure waits for readers before it leaves the last step to later."""


class Erasure(NamedTuple):
    """What an erasure took away: events that had content or a view, blobs, artifact files.

    `already`: there was nothing left to erase, and no event was written. `pending` is why bytes of the content may
    still be in a file, None when they are not: erase again when the reason is gone, or let the next process that writes
    to the ledger do it.
    """

    events: int
    blobs: int
    files: int
    already: bool = False
    pending: str | None = None


async def erase_run(scope: ScopedLedger, run_id: str, basis: str, actor: str) -> Erasure:
    """Erases the content of a closed run for good; `basis` says on whose request or by which rule, `actor` who did it.

    Raises RunNotFound, NotClosed, StreamOwned (somebody writes to the annex), and then nothing was erased. Calling it
    again finishes what was interrupted, and erases what the annex took in since.
    """
    run, streams = await _streams(scope, run_id)
    if not run.closed:
        raise NotClosed(f"Run {run_id} has not ended; its content may still be needed.", run_id=run_id)
    access = sqlite_store(scope.ledger.store).access
    if run.erased and not any(_content(scope, streams)):
        return Erasure(0, 0, 0, True, await _finish(access))
    async with await scope.writer(Stream.annex(run_id)) as writer:
        run, streams = await _streams(scope, run_id)
        found = _content(scope, streams)
        files = scope.ledger.files.count(run_folder(scope.scope, run_id))
        facts = ContentErased(events=found.events, blobs=found.blobs, files=files)
        writer.append(Draft(facts, content={"basis": basis}, input=basis, actor=actor))
        # Taken here and not by the group's commit: the event and what it says are one transaction.
        batch = writer.take_batch()
        assert batch is not None
        try:
            number = await access.write(lambda connection: _erase(connection, scope, run, batch))
        except Exception as error:
            writer.settle(Lost(error))
            raise
        writer.settle(Committed(number))
    return Erasure(*found, files, False, await _finish(access))


async def _streams(scope: ScopedLedger, run_id: str) -> tuple[HeadRow, list[HeadRow]]:
    async with sqlite_reader(scope) as reader:
        run = reader.head_row(Stream.run(run_id))
        annex = reader.head_row(Stream.annex(run_id))
    if run is None:
        raise no_run(scope.scope, run_id)
    return run, [run] if annex is None else [run, annex]


def _content(scope: ScopedLedger, streams: list[HeadRow]) -> erasing.Content:
    with sqlite_store(scope.ledger.store).access.reading() as connection:
        return erasing.content_of(connection, streams)


async def _finish(access: Access) -> str | None:
    return await access.threaded(lambda: access.finish_erasures(PATIENCE))


def _erase(connection: apsw.Connection, scope: ScopedLedger, run: HeadRow, batch: StreamBatch) -> int:
    store = sqlite_store(scope.ledger.store)
    owner = store.access.incarnation.register(connection)
    (outcome,) = commit.write_apart(connection, store.path, [batch], owner)
    if isinstance(outcome, Lost):
        raise outcome.error
    annex = heads.find(connection, scope.scope, batch.stream)
    assert annex is not None
    erasing.take_content(connection, run, annex, store.catalog)
    return outcome.stream_no
