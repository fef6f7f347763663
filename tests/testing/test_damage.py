"""The tools that damage files, on a small database with every kind of page and on plain files."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import apsw
import pytest

from refold.testing import damage

BTREES = ["events", "by_kind", "sqlite_autoindex_events_1", "heads", "heads_by_seq"]
TABLES = ["events", "heads"]
SEED = 20


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """1,000 events on several levels of pages, 10 of them with overflow pages; 90 heads without a rowid;
    1,000 notes without an index.
    """
    path = tmp_path_factory.mktemp("pristine") / "a ledger.db"
    dice = random.Random(SEED)
    with closing(apsw.Connection(str(path))) as db:
        for statement in (
            "PRAGMA page_size=1024",
            "PRAGMA journal_mode=WAL",
            "CREATE TABLE events(id INTEGER PRIMARY KEY, stream INT, seq INT, kind TEXT, body BLOB,"
            " UNIQUE(stream, seq))",
            "CREATE INDEX by_kind ON events(kind) WHERE kind <> 'common'",
            "CREATE TABLE heads(scope TEXT, stream INT, seq INT, PRIMARY KEY(scope, stream)) WITHOUT ROWID",
            "CREATE TABLE notes(id INTEGER PRIMARY KEY, note TEXT)",
            "CREATE INDEX heads_by_seq ON heads(seq DESC)",
            "CREATE TRIGGER append_only BEFORE DELETE ON events BEGIN SELECT RAISE(ABORT, 'append only'); END",
        ):
            db.execute(statement).fetchall()
        with db:
            for number in range(1000):
                kind = "rare" if number % 5 == 0 else "common"
                body = dice.randbytes(3000 if number % 100 == 0 else 60)
                db.execute("INSERT INTO events VALUES(?, ?, ?, ?, ?)", (number, number % 7, number, kind, body))
                db.execute("INSERT INTO notes VALUES(?, ?)", (number, "n" * 60))
            for number in range(90):
                db.execute("INSERT INTO heads VALUES(?, ?, ?)", (f"scope {number % 3}", number, number % 10))
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    return path.read_bytes()


@pytest.fixture
def ledger(tmp_path: Path, pristine: bytes) -> Path:
    path = tmp_path / "a ledger.db"
    path.write_bytes(pristine)
    return path


def scan(path: Path, table: str = "events") -> list[tuple[object, ...]] | str:
    """What one reader sees that walks the table from end to end."""
    try:
        with closing(apsw.Connection(f"{path.as_uri()}?immutable=1", flags=0x41)) as db:
            return db.execute(f"SELECT rowid, * FROM {table} NOT INDEXED").fetchall()
    except (apsw.Error, UnicodeDecodeError) as error:
        return repr(error)


def hits(ledger: Path, btrees: list[str], where: str, count: int) -> Iterator[damage.Flip]:
    """The first `count` flips that land on one kind of page."""
    drawn = damage.flips(ledger, btrees, 100_000, SEED)
    return itertools.islice((flip for flip in drawn if flip.where == where), count)


def test_a_flip_changes_one_bit_of_the_named_btrees_and_is_taken_back(ledger: Path, pristine: bytes) -> None:
    for flip in damage.flips(ledger, BTREES, 50, SEED):
        with flip.applied():
            damaged = ledger.read_bytes()
        changed = [at for at, (old, new) in enumerate(zip(pristine, damaged, strict=True)) if old != new]
        assert changed == [flip.offset]
        assert pristine[flip.offset] ^ damaged[flip.offset] == 1 << flip.bit
        assert flip.page == flip.offset // 1024 + 1
    assert ledger.read_bytes() == pristine


def test_a_flip_is_taken_back_when_the_test_fails(ledger: Path, pristine: bytes) -> None:
    flip = next(damage.flips(ledger, BTREES, 1, SEED))
    with pytest.raises(LookupError), flip.applied():
        raise LookupError
    assert ledger.read_bytes() == pristine


def test_flips_follow_from_the_seed_and_reach_every_kind_of_page(ledger: Path) -> None:
    drawn = list(damage.flips(ledger, BTREES, 2000, SEED))
    assert drawn == list(damage.flips(ledger, BTREES, 2000, SEED))
    assert drawn != list(damage.flips(ledger, BTREES, 2000, SEED + 1))
    assert len(drawn) == 2000
    assert {bit.bit for bit in drawn} == set(range(8))
    assert {flip.where for flip in drawn} >= {
        *("events leaf", "events internal", "events overflow", "by_kind leaf"),
        *("sqlite_autoindex_events_1 leaf", "sqlite_autoindex_events_1 internal", "heads leaf"),
    }


def test_flips_in_one_table_never_show_in_another(ledger: Path) -> None:
    events, heads = damage.logical_digest(ledger, ["events"]), damage.logical_digest(ledger, ["heads"])
    seen = set()
    for flip in damage.flips(ledger, ["heads", "heads_by_seq"], 60, SEED):
        with flip.applied():
            assert damage.logical_digest(ledger, ["events"]) == events
            seen.add(damage.logical_digest(ledger, ["heads"]) == heads)
    assert seen == {True, False}, "some hit rows, some hit slack"


def test_the_digest_tells_flips_in_rows_from_flips_in_slack(ledger: Path) -> None:
    intact = damage.logical_digest(ledger, TABLES)
    before = scan(ledger)
    slack = 0
    for flip in damage.flips(ledger, ["events"], 150, SEED):
        with flip.applied():
            same = damage.logical_digest(ledger, TABLES) == intact
            assert not same or scan(ledger) == before
            slack += same
    assert 0 < slack < 75


def test_every_flip_in_an_overflow_pages_content_shows(ledger: Path) -> None:
    intact = damage.logical_digest(ledger, ["events"])
    with closing(apsw.Connection(str(ledger))) as db:
        full = {page for (page,) in db.execute("SELECT pageno FROM dbstat WHERE pagetype = 'overflow' AND unused = 0")}
    for flip in hits(ledger, ["events"], "events overflow", 30):
        if flip.page in full:
            with flip.applied():
                assert damage.logical_digest(ledger, ["events"]) != intact


def test_the_digest_shows_rows_that_a_search_misses_and_a_scan_still_finds(ledger: Path) -> None:
    # Without an index no other road leads to the rows of this table by their keys.
    intact = damage.logical_digest(ledger, ["notes"])
    before = scan(ledger, "notes")
    hidden_from_searches = 0
    for flip in hits(ledger, ["notes"], "notes internal", 150):
        with flip.applied():
            if scan(ledger, "notes") == before and damage.logical_digest(ledger, ["notes"]) != intact:
                hidden_from_searches += 1
    assert hidden_from_searches


@pytest.mark.parametrize("index", ["by_kind", "sqlite_autoindex_events_1"])
def test_the_digest_shows_damage_to_an_index_of_a_sound_table(ledger: Path, index: str) -> None:
    intact = damage.logical_digest(ledger, ["events"])
    before = scan(ledger)
    shown = 0
    for flip in hits(ledger, [index], f"{index} leaf", 40):
        with flip.applied():
            assert scan(ledger) == before
            shown += damage.logical_digest(ledger, ["events"]) != intact
    assert shown > 10


def test_a_page_that_cannot_be_read_is_told_from_one_that_reads_differently(ledger: Path) -> None:
    page = next(hits(ledger, ["events"], "events leaf", 1)).page
    kind_of_page = damage.Flip(ledger, (page - 1) * 1024, 7, "events leaf", page)
    with kind_of_page.applied():
        assert damage.logical_digest(ledger, ["events"]).startswith("unreadable: CorruptError")


def test_indexes_of_a_table_include_those_of_its_keys(ledger: Path) -> None:
    assert damage.indexes_of(ledger, "events") == ["by_kind", "sqlite_autoindex_events_1"]
    assert damage.indexes_of(ledger, "heads") == ["heads_by_seq"]


def test_pages_still_in_the_wal_are_refused(ledger: Path) -> None:
    with closing(apsw.Connection(str(ledger))) as db:
        db.execute("UPDATE heads SET seq = 11")
        with pytest.raises(ValueError, match="checkpoint"):
            next(damage.flips(ledger, ["heads"], 1, SEED))
        with pytest.raises(ValueError, match="checkpoint"):
            damage.logical_digest(ledger, ["heads"])


def test_a_name_that_is_no_btree_is_refused(ledger: Path) -> None:
    with pytest.raises(ValueError, match="evnets"):
        next(damage.flips(ledger, ["events", "evnets"], 1, SEED))
    with pytest.raises(ValueError, match="evnets"):
        damage.logical_digest(ledger, ["evnets"])


def test_flips_of_plain_files_reach_each_in_proportion_to_its_size(tmp_path: Path) -> None:
    small, large, empty = tmp_path / "small", tmp_path / "large", tmp_path / "empty"
    small.write_bytes(bytes(10))
    large.write_bytes(bytes(90))
    empty.write_bytes(b"")
    drawn = list(damage.file_flips([small, empty, large], 1000, SEED))
    assert {flip.offset for flip in drawn if flip.path == small} == set(range(10))
    assert {flip.offset for flip in drawn if flip.path == large} == set(range(90))
    assert 50 < sum(flip.path == small for flip in drawn) < 150
    with drawn[0].applied():
        assert drawn[0].path.read_bytes().count(0) == drawn[0].path.stat().st_size - 1


def test_cutting_the_tail_takes_the_last_bytes_and_no_more_than_there_are(tmp_path: Path) -> None:
    path = tmp_path / "archive"
    path.write_bytes(b"0123456789")
    damage.cut_tail(path, 3)
    assert path.read_bytes() == b"0123456"
    with pytest.raises(ValueError, match="only 7 bytes"):
        damage.cut_tail(path, 8)


def test_swapped_rows_keep_their_keys_and_exchange_the_rest_past_triggers(ledger: Path) -> None:
    query = "SELECT stream, seq, id, kind, body FROM events WHERE stream = 3 AND seq IN (3, 10) ORDER BY seq"
    with closing(apsw.Connection(str(ledger))) as db:
        (third, tenth) = db.execute(query).fetchall()
    damage.swap_rows(ledger, "events", {"stream": 3, "seq": 3}, {"stream": 3, "seq": 10})
    with closing(apsw.Connection(str(ledger))) as db:
        assert db.execute(query).fetchall() == [(*third[:2], *tenth[2:]), (*tenth[:2], *third[2:])]
        assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


def test_swapping_with_a_row_that_is_not_there_changes_nothing(ledger: Path) -> None:
    intact = damage.logical_digest(ledger, TABLES)
    with pytest.raises(ValueError, match="0 rows"):
        damage.swap_rows(ledger, "events", {"stream": 3, "seq": 3}, {"stream": 3, "seq": 4})
    assert damage.logical_digest(ledger, TABLES) == intact
