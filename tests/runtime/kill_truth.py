"""Compares what a ledger and a run's result say was done with what the services' logs say."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import msgspec

from refold.events.envelope import Event
from refold.events.identity import Stream
from refold.gateway.identity import downstream_key
from refold.ledger.ledger import ScopedLedger
from refold.projections.rows import IntentRow, RunRow
from tests.runtime.kill_apps import receipt


class Tally(msgspec.Struct):
    """Of one killed run, or of many.

    doubled: charges of an order beyond those that the code asked for. lost: what one of result and log has and the
    other has not, and charges under keys that the ledger does not know. guessed: outcomes in the ledger, resolved or
    not, that the log does not bear out.
    """

    doubled: int = 0
    lost: int = 0
    guessed: int = 0
    effects: int = 0
    doubts: int = 0
    happened: int = 0
    did_not_happen: int = 0
    by_probe: int = 0
    by_person: int = 0

    def write(self, path: Path) -> None:
        with path.open("ab") as file:
            file.write(msgspec.json.encode(self) + b"\n")

    @classmethod
    def read(cls, path: Path) -> Tally:
        """The sum of what was written."""
        lines = [msgspec.json.decode(line, type=cls) for line in path.read_bytes().splitlines()]
        return cls(*(sum(getattr(line, name) for line in lines) for name in cls.__struct_fields__))

    def __str__(self) -> str:
        return ", ".join(f"{name} {getattr(self, name)}" for name in self.__struct_fields__)


async def judged(
    scope: ScopedLedger,
    runs: list[RunRow],
    intents: list[IntentRow],
    receipts: list[dict[str, Any]],
    charges: list[dict[str, Any]],
) -> Tally:
    """`receipts` is what the run's result claims, `charges` are the lines of the services' logs."""
    tally = Tally(effects=len(charges))
    _compare_result(tally, receipts, charges)
    keys = Counter(str(line["key"]) for line in charges)
    known: set[str] = set()
    for row in intents:
        mine = [downstream_key(scope.secret, row.intent_id, settled) for settled in range(row.settled + 1)]
        known.update(mine)
        # Under the last key it was done if the ledger says so; under those that were given up it never was.
        tally.guessed += any(keys[key] for key in mine[:-1])
        tally.guessed += row.effect != "read" and bool(keys[mine[-1]]) != (row.status == "succeeded")
    tally.lost += len(keys.keys() - known)
    for run in runs:
        await _compare_resolutions(tally, scope, run, keys)
    return tally


def _compare_result(tally: Tally, receipts: list[dict[str, Any]], charges: list[dict[str, Any]]) -> None:
    claimed, charged = (Counter(each["id"] for each in side) for side in (receipts, map(receipt, charges)))
    tally.lost += ((claimed - charged) + (charged - claimed)).total()
    wanted = Counter(each["request"]["order"] for each in receipts)
    made = Counter(line["body"]["order"] for line in charges)
    tally.doubled += (made - wanted).total()


async def _compare_resolutions(tally: Tally, scope: ScopedLedger, run: RunRow, keys: Counter[str]) -> None:
    given_up: Counter[str] = Counter()
    async for event in scope.read(Stream.run(run.run_id)):
        tally.doubts += event.type == "tool.doubted"
        if event.type == "tool.resolved":
            intent = event.facts.intent_id
            key = downstream_key(scope.secret, intent, given_up[intent])
            tally.guessed += bool(keys[key]) != (event.facts.resolution == "happened")
            given_up[intent] += event.facts.resolution == "did_not_happen"
            _count(tally, event)


def _count(tally: Tally, event: Event) -> None:
    tally.happened += event.facts.resolution == "happened"
    tally.did_not_happen += event.facts.resolution == "did_not_happen"
    tally.by_probe += event.facts.by == "probe"
    tally.by_person += event.facts.by == "person"
