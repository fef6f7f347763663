"""What a recording left in its ledger, and a guard that lets nothing reach the network."""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import refold
from refold.events.envelope import Event
from refold.ledger.ledger import ScopedLedger, open_ledger
from refold.ledger.port import Reader
from refold.projections.rows import CostRow, RunRow, StepRow

T = TypeVar("T")
FILE = "ledger.db"
FINAL = ("inference.completed", "inference.failed", "inference.lost")


def within(folder: Path, work: Callable[[ScopedLedger, Reader], Awaitable[T]]) -> T:
    """What `work` finds in the ledger of this folder."""

    async def run() -> T:
        async with await open_ledger(folder / FILE, create=False) as ledger:
            scope = ledger.scope()
            async with scope.reader() as reader:
                return await work(scope, reader)

    return asyncio.run(run())


def events(folder: Path, run_id: str) -> list[Event]:
    return within(folder, lambda scope, reader: reader.events(refold.Stream.run(run_id)))


def content(folder: Path, run_id: str, event: Event) -> dict[str, Any]:
    return within(folder, lambda scope, reader: refold.exact_content(reader, refold.Stream.run(run_id), event))


def contents(folder: Path, run_id: str, *types: str) -> list[dict[str, Any]]:
    """The exact contents of a run's events of these types."""
    return [content(folder, run_id, event) for event in events(folder, run_id) if event.type in types]


def endings(folder: Path, run_id: str) -> list[tuple[str, str | None]]:
    """How each request ended: type and error code. Fails when a request has not exactly one end."""
    found = events(folder, run_id)
    steps = [event.facts.step_id for event in found if event.type == "inference.requested"]
    last = {event.facts.step_id: event for event in found if event.type in FINAL}
    assert sorted(steps) == sorted(event.facts.step_id for event in found if event.type in FINAL)
    return [(last[step].type.partition(".")[2], getattr(last[step].facts, "error_code", None)) for step in steps]


def run_row(folder: Path, run_id: str) -> RunRow:
    return within(folder, lambda scope, reader: reader.rows(RunRow, {"run_id": run_id}))[0]


def step_rows(folder: Path, run_id: str) -> list[StepRow]:
    return within(folder, lambda scope, reader: reader.rows(StepRow, {"run_id": run_id}, order=("seq",)))


def cost_rows(folder: Path, run_id: str) -> list[CostRow]:
    return within(folder, lambda scope, reader: reader.rows(CostRow, {"run_id": run_id}, order=("seq",)))


def state_of(folder: Path) -> Any:
    """All heads of the ledger, and every byte that it has stored."""

    async def look(scope: ScopedLedger, reader: Reader) -> Any:
        heads = await reader.heads()
        return [(head, [row.hash for row in await reader.raw_events(head.stream, limit=10_000)]) for head in heads]

    return within(folder, look)


_guarded = False
_hooked = False
_FORBIDDEN = frozenset(
    {"socket.connect", "socket.bind", "socket.getaddrinfo", "socket.gethostbyname", "socket.sendto", "subprocess.Popen"}
)


def _guard(name: str, arguments: tuple[Any, ...]) -> None:
    if not _guarded:
        return
    # A loop wakes itself through a pair of sockets of the local family; nothing leaves through those.
    made = name == "socket.__new__" and arguments[1] not in (socket.AF_UNIX, -1)
    if made or name in _FORBIDDEN:
        raise AssertionError(f"{name} {arguments[1:]} while nothing may reach the network")


@contextmanager
def offline() -> Iterator[None]:
    """Whatever reaches for the network in this block fails."""
    global _guarded, _hooked
    if not _hooked:
        sys.addaudithook(_guard)
        _hooked = True
    _guarded = True
    try:
        yield
    finally:
        _guarded = False
