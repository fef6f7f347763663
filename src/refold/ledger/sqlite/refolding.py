"""Folding whole streams into tables again: for a rebuild to compare with, a migration to swap in, an erasure to write.

`Refolding` folds every stream of a ledger into tables of any name, in any database, in bounded memory. It remembers in
a table of its own how far each stream came, so that it can be called again to catch up with writers.

Intents cross streams. An event that brings a later revision than the next one waits until the streams that bring those
between have been read; what still waits when all have been read shows that a revision is missing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

import apsw
import msgspec

from refold.events.catalog import CATALOG, Catalog
from refold.events.envelope import Event, StreamRef
from refold.events.identity import Scope, Stream
from refold.ledger.errors import LedgerDamaged
from refold.ledger.sqlite import heads
from refold.ledger.sqlite.connection import query
from refold.ledger.sqlite.heads import SHIFT, HeadRow
from refold.ledger.sqlite.reader import FOLD_COLUMNS, decode_for_fold
from refold.ledger.sqlite.schema import columns, create_table, upsert
from refold.projections import INTENT_EVENTS, ROWS, FoldState, Intents, Row, fold, freeze, new_state, thaw
from refold.projections.rows import IntentRow

PLACES = "refolding_places"
"""The table in which a refolding keeps how far it came."""

Names = Mapping[type[Row], str]
Progress = Callable[[int], None]
Turn = Callable[[], AbstractContextManager[object]]

_EVENTS = 500  # A page is still in the processor's cache when it is folded; with 2,000 it is not.
_HEADS = 1000
_ROWS = 5000
_PAGE = (
    f"SELECT {FOLD_COLUMNS} FROM events WHERE id > ? AND id <= ? AND tenant_id = ? AND workspace_id = ? "
    f"ORDER BY id LIMIT {_EVENTS}"
)


class _Place(NamedTuple):
    """How far a stream came, whether it was erased then, and its open state unless it was closed."""

    seq: int
    erased: int
    state: bytes | None


class Refolding:
    """A fold of a whole ledger into the tables `names`, which exist in `write`, whatever database that is.

    Each write happens inside `turn()`; `progress` is told after each how many events were folded so far.
    """

    def __init__(
        self,
        write: apsw.Connection,
        names: Names,
        catalog: Catalog = CATALOG,
        turn: Turn = nullcontext,
        progress: Progress | None = None,
    ) -> None:
        self._write = write
        self._names = names
        self._catalog = catalog
        self._turn = turn
        self._progress = progress
        self.folded = 0
        """Events folded so far."""
        self._intents = Intents()
        self._touched: dict[str, tuple[Scope, IntentRow]] = {}
        self._early: dict[str, dict[int, tuple[Event, StreamRef]]] = defaultdict(dict)
        self._rows: dict[type[Row], list[tuple[Any, ...]]] = defaultdict(list)
        self._places: list[tuple[Any, ...]] = []
        self._pending = 0
        self.redone: list[HeadRow] = []
        """Streams that had been folded and were erased afterwards: their rows were made again."""

    def catch_up(self, read: apsw.Connection) -> int:
        """Folds every event that was not folded yet and says how many those were.

        Without a read transaction on `read`, streams that grow meanwhile are left behind by what they grew; call again.
        Raises BrokenFold, UnknownEvent, LedgerDamaged.
        """
        first = self.folded
        after = 0
        while page := _heads(read, after):
            known = self._known(after, page[-1].stream_no)
            for head in page:
                place = known.get(head.stream_no)
                if place is None or place.seq != head.seq or (head.erased and not place.erased):
                    self._fold(read, head, place)
                if self._pending >= _ROWS:
                    self._flush()
            after = page[-1].stream_no
        self._flush()
        return self.folded - first

    def finish(self) -> None:
        """To be called when every event was folded. Raises BrokenFold where a revision of an intent never came."""
        for waiting in self._early.values():
            for event, ref in waiting.values():
                Intents().apply(event, str(ref.stream), ref.stream.run_id)

    def _known(self, after: int, last: int) -> dict[int, _Place]:
        rows: list[Any] = self._write.execute(
            f"SELECT stream_no, seq, erased, state FROM {PLACES} WHERE stream_no > ? AND stream_no <= ?",
            (after, last),
        ).fetchall()
        return {number: _Place(*rest) for number, *rest in rows}

    def _fold(self, read: apsw.Connection, head: HeadRow, place: _Place | None) -> None:
        scope, stream = scope_of(head), Stream.parse(head.stream)
        ref = StreamRef(scope, stream)
        state = new_state(scope, stream) if place is None or place.state is None else thaw(ref, place.state)
        if place is not None:
            state.open.seq = place.seq  # Of a stream that is closed and folded, no state was kept.
        erased_since = place is not None and bool(head.erased and not place.erased)
        while state.open.seq < head.seq:
            first = state.open.seq
            events = events_after(read, head, first, self._catalog)
            # In an annex this event says that everything before it is erased.
            erased_since = erased_since or (place is not None and any(each.type == "content.erased" for each in events))
            fold(state, events)
            for event in events:
                if event.type in INTENT_EVENTS:
                    self._touch(event, ref)
            self.folded += state.open.seq - first
            self._keep(scope, state.take())
            if self._pending >= _ROWS:
                self._flush()
        if erased_since:
            state = self._redo(read, head)
        self._place(head, state)

    def _touch(self, event: Event, ref: StreamRef) -> None:
        """Applies an event to its intent, and after it those that came before their turn."""
        intent = event.facts.intent_id
        if intent not in self._intents.rows and event.facts.revision > 1:
            stored = stored_intent(self._write, ref.scope, intent, self._names[IntentRow])
            if stored is not None:
                self._intents.rows[intent] = stored
        if not self._intents.is_next(event):
            self._early[intent][event.facts.revision] = (event, ref)
            return
        waiting = self._early.pop(intent, {})
        while True:
            row = self._intents.apply(event, str(ref.stream), ref.stream.run_id)
            following = waiting.pop(row.revision + 1, None)
            if following is None:
                break
            event, ref = following
        if waiting:
            self._early[intent] = waiting
        self._touched[intent] = (ref.scope, row)
        self._pending += 1

    def _redo(self, read: apsw.Connection, head: HeadRow) -> FoldState:
        """Makes the rows of a stream again that was erased after it was folded."""
        scope = scope_of(head)
        state = new_state(scope, Stream.parse(head.stream))
        self._flush()
        for rows in refold_stream(state, read, head, self._catalog):
            self._keep(scope, rows)
        self._flush()
        self._intents.rows.clear()  # They are in the table; what is kept here has the erased names.
        rename_intents(self._write, read, head, self._names[IntentRow], self._catalog)
        self.folded += head.seq
        self.redone.append(head)
        return state

    def _place(self, head: HeadRow, state: FoldState) -> None:
        kept = None if head.closed else freeze(state)
        self._places.append((head.stream_no, state.open.seq, int(bool(head.erased)), kept))
        self._pending += 1

    def _keep(self, scope: Scope, rows: list[Row]) -> None:
        for row in rows:
            self._rows[type(row)].append((*scope, *msgspec.structs.astuple(row)))
        self._pending += len(rows)

    def _flush(self) -> None:
        if not self._pending:
            return
        for scope, row in self._touched.values():
            self._rows[IntentRow].append((*scope, *msgspec.structs.astuple(row)))
        self._touched.clear()
        with self._turn():
            for table in ROWS:  # Parents before children.
                rows = self._rows.get(table)
                if rows:
                    self._write.executemany(upsert(table, self._names[table]), rows)
            self._write.executemany(f"INSERT OR REPLACE INTO {PLACES} VALUES (?, ?, ?, ?)", self._places)
        self._intents.forget_closed()
        self._rows.clear()
        self._places.clear()
        self._pending = 0
        if self._progress is not None:
            self._progress(self.folded)


def make_tables(connection: apsw.Connection, names: Names) -> None:
    """Makes the tables that a refolding fills, and the one in which it keeps its places."""
    for row, name in names.items():
        for statement in create_table(row, name):
            connection.execute(statement)
    connection.execute(
        f"CREATE TABLE {PLACES} (stream_no INTEGER PRIMARY KEY, seq INTEGER NOT NULL, erased INTEGER NOT NULL, "
        "state BLOB)"
    )


def side_tables(connection: apsw.Connection) -> list[str]:
    """The tables beside the real ones that a migration works with, or that one which was killed has left."""
    names = [name for (name,) in query(connection, "SELECT name FROM sqlite_schema WHERE type = 'table'")]
    return [name for name in names if "__" in name or name == PLACES]


def refold_into(
    read: apsw.Connection,
    write: apsw.Connection,
    names: Names,
    progress: Progress | None = None,
    catalog: Catalog = CATALOG,
) -> int:
    """Folds the whole ledger that `read` sees into new tables `names` of `write`, and says how many events that were.

    Meant for one consistent state: `read` is in a read transaction, and `write` in the transaction that the caller
    ends. Raises BrokenFold, UnknownEvent, LedgerDamaged.
    """
    make_tables(write, names)
    refolding = Refolding(write, names, catalog, progress=progress)
    events = refolding.catch_up(read)
    refolding.finish()
    return events


def refold_stream(
    state: FoldState, read: apsw.Connection, head: HeadRow, catalog: Catalog = CATALOG
) -> Iterator[list[Row]]:
    """Folds a stream from its first event into a new `state`, and yields its rows. For a stream whose views were
    erased.
    """
    while state.open.seq < head.seq:
        fold(state, events_after(read, head, state.open.seq, catalog))
        yield state.take()


def rename_intents(
    write: apsw.Connection, read: apsw.Connection, head: HeadRow, table: str, catalog: Catalog = CATALOG
) -> None:
    """Gives the intents that a stream made the names that are left in their facts, after its views were erased.

    Nothing else of an intent comes from a view; the rest of the row, which other streams may have brought further,
    stays.
    """
    after = 0
    while after < head.seq:
        events = events_after(read, head, after, catalog)
        for event in events:
            if event.type in INTENT_EVENTS and event.facts.revision == 1:
                write.execute(
                    f"UPDATE {table} SET tool = ? WHERE tenant_id = ? AND workspace_id = ? AND intent_id = ?",
                    (event.facts.claim.tool, head.tenant_id, head.workspace_id, event.facts.intent_id),
                )
        after = events[-1].seq


def stored_intent(connection: apsw.Connection, scope: Scope, intent_id: str, table: str) -> IntentRow | None:
    """An intent's row as it stands in `table`."""
    names = columns(IntentRow)
    listed = ", ".join(f'"{name}"' for name in names)
    rows = connection.execute(
        f"SELECT {listed} FROM {table} WHERE tenant_id = ? AND workspace_id = ? AND intent_id = ?", (*scope, intent_id)
    ).fetchall()
    return msgspec.convert(dict(zip(names, rows[0], strict=True)), IntentRow, strict=False) if rows else None


def events_after(read: apsw.Connection, head: HeadRow, after: int, catalog: Catalog) -> list[Event]:
    """The next page of a stream up to its head, for folding. Raises LedgerDamaged when there is none."""
    base = head.stream_no << SHIFT
    rows = read.execute(_PAGE, (base | after, base | head.seq, *scope_of(head))).fetchall()
    if not rows or rows[0][0] != after + 1:
        raise LedgerDamaged(
            f"{head.stream} has no event {after + 1}, and its head is at seq {head.seq}.",
            stream=head.stream,
            seq=after + 1,
        )
    return decode_for_fold(rows, catalog, Stream.parse(head.stream))


def scope_of(head: HeadRow) -> Scope:
    return Scope(head.tenant_id, head.workspace_id)


def _heads(read: apsw.Connection, after: int) -> list[HeadRow]:
    rows: list[Any] = read.execute(
        f"SELECT {heads.COLUMNS} FROM stream_heads WHERE stream_no > ? ORDER BY stream_no LIMIT {_HEADS}", (after,)
    ).fetchall()
    return [HeadRow(*row) for row in rows]
