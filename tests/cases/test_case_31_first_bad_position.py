"""Case 31: a byte of a stored value was edited, and the audit called the record consistent. Here `verify` names the
first bad position, for an edited byte, for a tail that was cut, and for two events that changed places.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from refold.events.identity import Stream
from refold.ledger.ledger import Ledger
from refold.testing.damage import swap_rows
from tests.cases.support import LEDGER, add_step, begin, edit, in_ledger, look, proven, stream_number

EVENTS = 12
PLACES = range(1, EVENTS + 1)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Stream]:
    folder = tmp_path_factory.mktemp("recorded")

    async def work(ledger: Ledger) -> Stream:
        neighbours = [await begin(ledger.scope("other/space")), await begin(ledger.scope())]
        writer = await begin(ledger.scope(), {"input": "please"})
        for number in range(3, EVENTS + 1):
            add_step(writer, number, "words " * (200 if number % 2 else 2))
        for each in (*neighbours, writer):
            await each.close()
        return writer.stream

    stream = in_ledger(folder, work)
    proof = proven(folder)
    assert proof.ok
    assert proof.events == EVENTS + 4
    return folder, stream


def _bad(folder: Path) -> tuple[str, int, str]:
    proof = proven(folder)
    assert proof.first_bad is not None, "the damage was not found"
    return proof.first_bad


def _copy(recorded: tuple[Path, Stream], tmp_path: Path) -> tuple[Path, Stream, int]:
    folder, stream = recorded
    copy = shutil.copytree(folder, tmp_path / "copy")
    return copy, stream, stream_number(copy, stream)


@pytest.mark.parametrize("column", ["content", "view", "facts", "hash", "content_digest"])
def test_case_31_an_edited_byte_is_named_at_its_event(
    recorded: tuple[Path, Stream], tmp_path: Path, column: str
) -> None:
    folder, stream, number = _copy(recorded, tmp_path)
    found = look(folder, f"SELECT seq, {column} FROM events WHERE id >> 32 = ? ORDER BY id", number)
    places = [(seq, stored) for seq, stored in found if stored is not None]
    assert len(places) >= EVENTS - 1
    for seq, stored in places:
        for at in {0, len(stored) // 2, len(stored) - 1}:
            damaged = stored[:at] + bytes([stored[at] ^ 1]) + stored[at + 1 :]
            where = f"UPDATE events SET {column} = ? WHERE id = ?"
            assert edit(folder, where, damaged, number << 32 | seq) == 1
            assert _bad(folder)[:2] == (str(stream), seq), f"byte {at} of {column} of event {seq}"
            edit(folder, where, stored, number << 32 | seq)
    assert proven(folder).ok, "every edit was taken back"


def test_case_31_a_cut_tail_is_named_where_it_begins(recorded: tuple[Path, Stream], tmp_path: Path) -> None:
    folder, stream, number = _copy(recorded, tmp_path)
    for left in range(EVENTS - 1, -1, -1):
        assert edit(folder, "DELETE FROM events WHERE id = ?", number << 32 | left + 1) == 1
        assert _bad(folder)[:2] == (str(stream), left + 1), f"{left} events left"


def test_case_31_a_tail_that_was_cut_together_with_the_head_s_seq_is_named_too(
    recorded: tuple[Path, Stream], tmp_path: Path
) -> None:
    folder, stream, number = _copy(recorded, tmp_path)
    edit(folder, "DELETE FROM events WHERE id = ?", number << 32 | EVENTS)
    edit(folder, "UPDATE stream_heads SET seq = ? WHERE stream_no = ?", EVENTS - 1, number)
    assert _bad(folder)[0] == str(stream)


@pytest.mark.parametrize("first", PLACES[:-1])
def test_case_31_two_events_that_changed_places_are_named_at_the_first_of_them(
    recorded: tuple[Path, Stream], tmp_path: Path, first: int
) -> None:
    folder, stream, number = _copy(recorded, tmp_path)
    for second in (first + 1, EVENTS) if first + 1 < EVENTS else (EVENTS,):
        one, other = ({"id": number << 32 | seq} for seq in (first, second))
        swap_rows(folder / LEDGER, "events", one, other)
        assert _bad(folder)[:2] == (str(stream), first), f"{first} and {second}"
        swap_rows(folder / LEDGER, "events", one, other)
    assert proven(folder).ok, "every swap was taken back"


def test_case_31_the_earliest_of_several_bad_places_is_the_one_that_is_named(
    recorded: tuple[Path, Stream], tmp_path: Path
) -> None:
    folder, stream, number = _copy(recorded, tmp_path)
    for seq in (11, 9, 4):
        edit(folder, "UPDATE events SET content = zeroblob(30) WHERE id = ?", number << 32 | seq)
        assert _bad(folder)[:2] == (str(stream), seq)
