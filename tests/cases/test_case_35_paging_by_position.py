"""Case 35: pages were cut by the clock and by an offset, so that what was written between two pages made the next one
skip events or repeat them. Here the order is the seq (or the id) alone, and a page begins behind the last row of the
one before: whatever is inserted meanwhile, everything that was there is listed once.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from refold.events.identity import Stream
from refold.ledger.ledger import Ledger, ScopedLedger
from refold.ledger.sqlite.listing import calls_page, runs_page
from refold.projections.rows import RunRow, StepRow
from refold.testing.simulated import SimulatedClock
from tests.cases.support import add_step, begin, in_ledger
from tests.cli.conftest import Call
from tests.cli.support import on_ledger, record_run
from tests.replay.support import begin as tell

SEED = 35


class WildClock(SimulatedClock):
    """A wall clock that jumps to and fro by hours: what is newer may look older."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self._dice = random.Random(seed)

    def now(self) -> int:
        return super().now() + self._dice.randrange(-3600, 3600) * 1_000_000

    def since_boot(self) -> int:
        return super().now()


Position = Any
Page = Callable[[ScopedLedger, Position | None, int], Awaitable[list[tuple[Position, str]]]]


async def _rows(scope: ScopedLedger, after: Position | None, limit: int) -> list[tuple[Position, str]]:
    async with scope.reader() as reader:
        rows = await reader.rows(RunRow, after=after, limit=limit)
    return [((row.run_id,), row.run_id) for row in rows]


async def _newest_first(scope: ScopedLedger, after: Position | None, limit: int) -> list[tuple[Position, str]]:
    async with scope.reader() as reader:
        return [(each.run_id, each.run_id) for each in await runs_page(reader, before=after, limit=limit)]


async def _heads(scope: ScopedLedger, after: Position | None, limit: int) -> list[tuple[Position, str]]:
    async with scope.reader() as reader:
        return [(each.stream, str(each.stream)) for each in await reader.heads(after, limit=limit)]


async def _calls(scope: ScopedLedger, after: Position | None, limit: int) -> list[tuple[Position, str]]:
    async with scope.reader() as reader:
        return [(each, each) for each in await calls_page(reader, after=after, limit=limit)]


async def _one_more(scope: ScopedLedger) -> None:
    teller = await tell(scope)
    teller.dispatch("mail")
    await teller.writer.close()


async def _all(page: Page, scope: ScopedLedger) -> list[str]:
    return [name for _, name in await page(scope, None, 10_000)]


@pytest.mark.parametrize("page", [_rows, _newest_first, _heads, _calls], ids=["rows", "runs", "heads", "calls"])
def test_case_35_paging_while_rows_come_in_skips_and_repeats_nothing(tmp_path: Path, page: Page) -> None:
    dice = random.Random(SEED)

    async def work(ledger: Ledger) -> None:
        scope = ledger.scope()
        for _ in range(30):
            await _one_more(scope)
            await _one_more(ledger.scope("other/space"))
        for limit in (1, 2, 7):
            there = await _all(page, scope)
            seen: list[str] = []
            after: Position | None = None
            inserted = 0
            while found := await page(scope, after, limit):
                seen += [name for _, name in found]
                after = found[-1][0]
                assert len(seen) < 1000, "the pages never end"
                if dice.random() < 0.5 and inserted < 15:
                    await _one_more(scope)
                    inserted += 1
            assert inserted > 2
            assert not [name for name, times in Counter(seen).items() if times > 1], "something came twice"
            assert not set(there) - set(seen), "something was skipped"
            order = sorted(seen, reverse=page is _newest_first)
            assert seen == order, "one order over all pages"

    print(f"seed {SEED}")
    in_ledger(tmp_path, work, clock=WildClock(SEED))


def test_case_35_events_are_ordered_by_seq_whatever_the_clock_said(tmp_path: Path) -> None:
    async def work(ledger: Ledger) -> None:
        scope = ledger.scope()
        writer = await begin(scope)
        seen: list[int] = []
        times: list[int] = []
        for number in range(3, 120):
            add_step(writer, number)
            if number % 4 == 0:
                await writer.barrier()
                async with scope.reader() as reader:
                    page = await reader.events(writer.stream, seen[-1] if seen else 0, limit=3)
                seen += [event.seq for event in page]
                times += [event.recorded_at for event in page]
        await writer.close()
        async for event in scope.read(writer.stream, seen[-1]):
            seen.append(event.seq)
            times.append(event.recorded_at)
        assert seen == list(range(1, 120))
        assert times != sorted(times), "the clock did go backwards"
        async with scope.reader() as reader:
            steps = await reader.rows(StepRow, {"run_id": writer.stream.run_id}, order=("seq",))
        assert [row.seq for row in steps] == list(range(3, 120))

    in_ledger(tmp_path, work, clock=WildClock(SEED))


@settings(max_examples=40, deadline=None, derandomize=True)
@given(pages=st.lists(st.tuples(st.integers(1, 5), st.integers(0, 4)), min_size=1, max_size=12))
def test_case_35_any_pages_and_any_appends_between_them_give_every_event_once(
    tmp_path_factory: pytest.TempPathFactory, pages: list[tuple[int, int]]
) -> None:
    async def work(ledger: Ledger) -> None:
        scope = ledger.scope()
        writer = await begin(scope)
        other = await begin(scope)
        seen: list[int] = []
        for limit, appended in pages:
            for number in range(appended):
                add_step(writer, number)
                add_step(other, number)
            await writer.barrier()
            async with scope.reader() as reader:
                seen += [row.seq for row in await reader.raw_events(writer.stream, len(seen), limit=limit)]
        head = writer.head.seq
        await writer.close()
        await other.close()
        async with scope.reader() as reader:
            seen += [row.seq for row in await reader.raw_events(Stream.run(writer.stream.run_id), len(seen))]
        assert seen == list(range(1, head + 1))

    in_ledger(tmp_path_factory.mktemp("pages"), work, clock=WildClock(SEED))


@pytest.mark.parametrize(("command", "key", "name"), [("runs", "runs", "run_id"), ("tool-calls", "tool_calls", "id")])
def test_case_35_the_pages_of_the_command_line_skip_and_repeat_nothing(
    tmp_path: Path, call: Call, monkeypatch: pytest.MonkeyPatch, command: str, key: str, name: str
) -> None:
    path = tmp_path / "ledger.db"
    monkeypatch.setenv("REFOLD_LEDGER", str(path))
    for _ in range(5):
        on_ledger(path, record_run)
    there = {row[name] for row in call(command, "--json").json[key]}
    seen: list[str] = []
    token: str | None = None
    while True:
        answer = call(command, "--json", "--limit", "2", *(("--next", token) if token else ())).json
        seen += [row[name] for row in answer[key]]
        token = answer["next"]
        assert len(seen) < 1000, "the pages never end"
        if token is None:
            break
        if len(seen) < 9:
            on_ledger(path, record_run)  # Somebody writes while the pages are turned.
    assert len(seen) == len(set(seen))
    assert there <= set(seen)
