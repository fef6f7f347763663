"""Folding whole streams into tables again: for a rebuild to compare with, a migration to swap in, an erasure to write.

`Refolding` folds every stream of a ledger into tables of any name, in any database, in bounded memory. It remembers in
a table of its own how far each stream came, so that it can be called again to catch up with writers.

Intents cross streams. A stream whose next event needs a revision that another stream has not yet brought is left where
it stands and taken up again afterwards. What was committed had an order, so this always ends; if nothing moves any
more, a revision is missing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

import apsw
import msgspec

from refold.events.catalog import CATALOG, Catalog
from refold.events.envelope import Event, StreamRef
from refold.events.identity import Scope, Stream
from refold.ledger.errors import LedgerDamaged
from refold.ledger.sqlite import heads
from refold.ledger.sqlite.heads import SHIFT, HeadRow
from refold.ledger.sqlite.reader import FOLD_COLUMNS, decode_for_fold
from refold.ledger.sqlite.schema import columns, create_table, upsert
from refold.projections import ROWS, BrokenFold, FoldState, Row, fold, freeze, new_state, thaw
from refold.projections.intents import is_closed
from refold.projections.rows import IntentRow

PLACES = "refolding_places"
"""The table in which a refolding keeps how far it came."""

Names = Mapping[type[Row], str]
Progress = Callable[[int], None]
Turn = Callable[[], AbstractContextManager[object]]

_EVENTS = 2000
_HEADS = 1000
_ROWS = 20_000
_PAGE = f"SELECT {FOLD_COLUMNS} FROM events WHERE id > ? AND id <= ? ORDER BY id LIMIT {_EVENTS}"


class _Place(NamedTuple):
    """How far a stream came. `stale`: some of its rows show what was erased meanwhile, and have to be made again."""

    seq: int
    erased: int
    stale: int
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
        self._touching = intent_events(catalog)
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
        while True:
            before = self.folded
            blocked = self._pass(read)
            if blocked is None:
                return self.folded - first
            if self.folded == before:
                raise blocked

    def _pass(self, read: apsw.Connection) -> BrokenFold | None:
        blocked, after = None, 0
        while page := _heads(read, after):
            known = self._known(after, page[-1].stream_no)
            for head in page:
                place = known.get(head.stream_no)
                if place is None or place.seq != head.seq or (head.erased and not place.erased):
                    blocked = self._fold(read, head, place) or blocked
                if self._pending >= _ROWS:
                    self._flush()
            after = page[-1].stream_no
        self._flush()
        return blocked

    def _known(self, after: int, last: int) -> dict[int, _Place]:
        rows: list[Any] = self._write.execute(
            f"SELECT stream_no, seq, erased, stale, state FROM {PLACES} WHERE stream_no > ? AND stream_no <= ?",
            (after, last),
        ).fetchall()
        return {number: _Place(*rest) for number, *rest in rows}

    def _fold(self, read: apsw.Connection, head: HeadRow, place: _Place | None) -> BrokenFold | None:
        scope, stream = scope_of(head), Stream.parse(head.stream)
        if place is None or place.state is None:
            state = new_state(scope, stream)
        else:
            state = thaw(StreamRef(scope, stream), place.state)
        stale = place is not None and bool(place.stale or (head.erased and not place.erased))
        waits = None
        while state.open.seq < head.seq and waits is None:
            first = state.open.seq
            events = events_after(read, head, first, self._catalog)
            # In an annex this event says that everything before it is erased.
            stale = stale or (place is not None and any(event.type == "content.erased" for event in events))
            waits = self._apply(state, events)
            self.folded += state.open.seq - first
            self._take(state)
            if self._pending >= _ROWS:
                self._flush()
        if stale and waits is None:
            state = self._redo(read, head)
        self._place(head, state, stale=stale and waits is not None)
        return waits

    def _apply(self, state: FoldState, events: list[Event]) -> BrokenFold | None:
        """Folds the events, or those before the first that has to wait, and says what that waits for."""
        start = 0
        for place, event in enumerate(events):
            if event.type in self._touching:
                fold(state, events[start:place])
                start = place
                if not self._adopt(state, event):
                    what = f"revision {event.facts.revision} of an intent whose earlier ones are missing:"
                    return state.broken(event, what, event.facts.intent_id)
        fold(state, events[start:])
        return None

    def _adopt(self, state: FoldState, event: Event) -> bool:
        """Brings the intent to where the event before this one left it, in whatever stream that stands."""
        needed = event.facts.revision - 1
        row = state.open.intents.get(event.facts.intent_id)
        if needed == (0 if row is None else row.revision):
            return True
        self._take(state)
        self._flush()
        stored = stored_intent(self._write, state.ref.scope, event.facts.intent_id, self._names[IntentRow])
        if stored is None or stored.revision < needed:
            return False
        state.open.intents[stored.intent_id] = stored
        return True

    def _redo(self, read: apsw.Connection, head: HeadRow) -> FoldState:
        scope = scope_of(head)
        state = new_state(scope, Stream.parse(head.stream))
        self._flush()
        for rows in refold_stream(state, read, head, self._catalog, self._write, self._names[IntentRow]):
            self._keep(scope, rows)
        self.folded += head.seq
        self.redone.append(head)
        return state

    def _place(self, head: HeadRow, state: FoldState, stale: bool) -> None:
        done = head.closed and state.open.seq == head.seq
        kept = None if done else freeze(state)
        self._places.append((head.stream_no, state.open.seq, int(bool(head.erased)), int(stale), kept))
        self._pending += 1

    def _take(self, state: FoldState) -> None:
        self._keep(state.ref.scope, state.take())

    def _keep(self, scope: Scope, rows: list[Row]) -> None:
        for row in rows:
            self._rows[type(row)].append((*scope, *msgspec.structs.astuple(row)))
        self._pending += len(rows)

    def _flush(self) -> None:
        if not self._pending:
            return
        with self._turn():
            for table in ROWS:  # Parents before children.
                rows = self._rows.get(table)
                if rows:
                    self._write.executemany(upsert(table, self._names[table]), rows)
            self._write.executemany(f"INSERT OR REPLACE INTO {PLACES} VALUES (?, ?, ?, ?, ?)", self._places)
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
        "stale INTEGER NOT NULL, state BLOB)"
    )


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
    return Refolding(write, names, catalog, progress=progress).catch_up(read)


def refold_stream(
    state: FoldState, read: apsw.Connection, head: HeadRow, catalog: Catalog, intents: apsw.Connection, table: str
) -> Iterator[list[Row]]:
    """Folds a stream again from its first event into a new `state`, and yields the rows as they are to be stored.

    For a stream whose views were erased. An intent may have gone on in other streams since, so its row in `table` is
    kept but for the one field that a view decides: the tool's name, which came from the event that made the intent.
    """
    while state.open.seq < head.seq:
        events = events_after(read, head, state.open.seq, catalog)
        named_again = fold_alone(state, events, intents, catalog, table)
        yield [row for row in state.take() if not isinstance(row, IntentRow)] + named_again
    state.open.intents.clear()  # What was stepped back is no state to go on from.


def fold_alone(
    state: FoldState,
    events: Iterable[Event],
    intents: apsw.Connection,
    catalog: Catalog = CATALOG,
    table: str = IntentRow.TABLE.name,
) -> list[Row]:
    """Folds events of one stream without the others that touch its intents: those are stepped back from how they stand.

    The rows of intents that this puts are not to be stored. Returned are the stored rows of those that the events made,
    with the tool's name as the events have it now.
    """
    touching = intent_events(catalog)
    named_again: list[Row] = []
    for event in events:
        stored = None
        if event.type in touching:
            stored = stored_intent(intents, state.ref.scope, event.facts.intent_id, table)
            _step_back(state, event, stored)
        fold(state, (event,))
        if stored is not None and event.facts.revision == 1:
            stored.tool = state.open.intents[stored.intent_id].tool
            named_again.append(stored)
    return named_again


def take_up_intents(state: FoldState, connection: apsw.Connection) -> None:
    """Puts every open intent of a state to where it stands now, whatever streams brought it there."""
    for intent_id in list(state.open.intents):
        row = stored_intent(connection, state.ref.scope, intent_id, IntentRow.TABLE.name)
        if row is None or is_closed(row):
            del state.open.intents[intent_id]
        else:
            state.open.intents[intent_id] = row


def _step_back(state: FoldState, event: Event, stored: IntentRow | None) -> None:
    """Gives the fold an intent at the revision before the event's, which is all that it needs to go on."""
    needed = event.facts.revision - 1
    row = state.open.intents.get(event.facts.intent_id)
    if needed and stored is not None and (row is None or row.revision != needed):
        state.open.intents[stored.intent_id] = msgspec.structs.replace(stored, revision=needed)


def intent_events(catalog: Catalog) -> frozenset[str]:
    """The types of events that carry a revision of an intent."""
    return frozenset(each.name for each in catalog if "revision" in each.facts.__struct_fields__)


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
    rows = read.execute(_PAGE, (base | after, base | head.seq)).fetchall()
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
