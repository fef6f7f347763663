"""Case 6: a state that held everything was written again at each step, so that a thousand steps of one kilobyte took
half a gigabyte. Here a step costs its own bytes, however many came before it; the bytes are counted, nothing is timed.
"""

from __future__ import annotations

import base64
import random
from pathlib import Path

import pytest

from refold.events.catalog.inference import InferenceCompleted, InferenceRequested
from refold.events.content import PartChain
from refold.ledger.drafts import Draft
from refold.ledger.ledger import Ledger
from tests.cases.support import LEDGER, add_step, begin, in_ledger

KILOBYTE = 1024
SEED = 6
SHORT = (100, 1000, 5000)
LONG = (100, 1000, 10_000)


def _texts(count: int) -> list[str]:
    """Texts of a kilobyte that hardly compress."""
    dice = random.Random(SEED)
    return [base64.b64encode(dice.randbytes(KILOBYTE * 3 // 4)).decode() for _ in range(count)]


async def _empty(ledger: Ledger) -> None:
    await (await begin(ledger.scope())).close()


def _size(folder: Path) -> int:
    """Bytes of the ledger's file after the checkpoint that its closing made."""
    log = folder / (LEDGER + "-wal")
    assert not log.exists() or log.stat().st_size == 0
    return (folder / LEDGER).stat().st_size


def _ratios(folder: Path, counts: tuple[int, ...], record: object) -> list[float]:
    (folder / "empty").mkdir()
    in_ledger(folder / "empty", _empty)
    empty = _size(folder / "empty")
    ratios = []
    for count in counts:
        place = folder / str(count)
        place.mkdir()

        async def work(ledger: Ledger, count: int = count) -> None:
            await record(ledger, _texts(count))  # type: ignore[operator]

        in_ledger(place, work)
        ratios.append((_size(place) - empty) / (count * KILOBYTE))
    print(f"seed {SEED}: stored bytes a byte of payload at {counts}: {[round(each, 3) for each in ratios]}")
    return ratios


async def _steps(ledger: Ledger, texts: list[str]) -> None:
    writer = await begin(ledger.scope())
    for number, text in enumerate(texts):
        add_step(writer, number, text)
        if number % 50 == 0:
            await writer.barrier()
    await writer.close()


async def _conversation(ledger: Ledger, texts: list[str]) -> None:
    """Each request holds every message before it: what an agent really sends."""
    writer = await begin(ledger.scope())
    chain = PartChain()
    for number, text in enumerate(texts):
        part = await writer.part({"role": "user", "content": text})
        chain.add(part.number, part.leaf)
        step = f"st_{number}"
        writer.append(Draft(InferenceRequested(step, "m", "p"), content={"messages": chain.as_list()}))
        writer.append(Draft(InferenceCompleted(step, "stop")))
        if number % 20 == 0:
            await writer.barrier()
    await writer.close()


def _flat(ratios: list[float], most: float) -> None:
    assert max(ratios) <= most, ratios
    assert max(ratios) / min(ratios) < 1.1, ratios


@pytest.mark.parametrize("counts", [SHORT, pytest.param(LONG, marks=pytest.mark.soak)], ids=["short", "long"])
def test_case_06_steps_of_a_kilobyte_cost_a_flat_number_of_bytes_each(tmp_path: Path, counts: tuple[int, ...]) -> None:
    _flat(_ratios(tmp_path, counts, _steps), 2.0)


@pytest.mark.parametrize("counts", [(100, 1000), pytest.param(LONG, marks=pytest.mark.soak)], ids=["short", "long"])
def test_case_06_a_request_that_holds_all_messages_before_it_costs_only_the_new_one(
    tmp_path: Path, counts: tuple[int, ...]
) -> None:
    _flat(_ratios(tmp_path, counts, _conversation), 2.5)
