"""An App for the commands that run code. What its tools really did stands in the file that AGENCY_TRUTH names."""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass
from pathlib import Path

from refold import App, DidNotHappen, Happened, Run, current_call
from refold.gateway.tools import Doubt

app = App("agency")
FACTOR = 2


@dataclass
class Order:
    """What is bought."""

    id: str
    amount: int


@dataclass
class Receipt:
    """What the other side says."""

    number: str


def truth() -> list[str]:
    """The downstream keys under which something was charged."""
    file = Path(os.environ["AGENCY_TRUTH"])
    return file.read_text().splitlines() if file.exists() else []


def look(doubt: Doubt) -> Happened | DidNotHappen:
    """Asks the other side, which remembers keys."""
    return Happened(Receipt(doubt.key)) if doubt.key in truth() else DidNotHappen()


def _act() -> Receipt:
    with Path(os.environ["AGENCY_TRUTH"]).open("a") as file:
        file.write(f"{current_call().key}\n")
    if os.environ.get("AGENCY_HANGS"):
        threading.Event().wait()
    if os.environ.get("AGENCY_RESETS"):
        raise ConnectionResetError
    return Receipt(current_call().key)


@app.tool(effect="unsafe")
def charge(amount: int) -> Receipt:
    """Charges; what it answers may get lost."""
    return _act()


@app.tool(effect="unsafe", probe=look)
def bill(amount: int) -> Receipt:
    """The same, and somebody can be asked."""
    return _act()


def times(number: int) -> int:
    return number * FACTOR


@app.workflow()
async def buy(run: Run, order: Order) -> list[str | int]:
    total = await run.step(times, order.amount)
    receipt = await charge(total)
    return [order.id, total, type(receipt).__name__]


@app.workflow()
async def invoice(run: Run, order: Order) -> str:
    return type(await bill(order.amount)).__name__


@app.workflow()
async def ask(run: Run) -> str:
    word: str = await run.signal("answer", str)
    return word


@app.workflow()
async def wait(run: Run) -> str:
    """Waits for a signal or a day; cleans up when it is told to stop."""
    try:
        won = await run.race(word=run.signal("answer", str), late=run.sleep(days=1))
    finally:
        await run.step(times, 1)
    return str(won.value)


@app.workflow()
async def fail(run: Run) -> None:
    raise ValueError("no such order")
