"""The code whose changes are tried: a workflow with every kind of operation, killed while it waits for a tool.

Its process dies by SIGKILL inside `hold`, when everything before is durable. Every effect is a line in a file.
"""

import asyncio
import os
import signal
from dataclasses import dataclass
from pathlib import Path

from refold import App, Run, Scripted, ToolFailed

FOLDER = Path(os.environ["SHOP"])
MESSAGE = "Is order 7 fine?"

app = App("shop", models={"main": Scripted(["yes", "no", "no", "no"])})


def note(what: str) -> None:
    with (FOLDER / "effects").open("a") as file:
        file.write(what + "\n")


@dataclass
class Order:
    number: str
    amount: int


@dataclass
class Score:
    points: int


@dataclass
class Receipt:
    number: str
    paid: int


def weigh(order: Order) -> Score:
    return Score(order.amount * 2)


def count(number: int) -> int:
    return number


def pick(number: int) -> int:
    return number * 10


def label(number: str) -> str:
    return f"box {number}"


@app.tool(effect="read")
async def look_up(number: str) -> str:
    return f"found {number}"


@app.tool(effect="unsafe", version=1)
async def charge(number: str, amount: int) -> Receipt:
    note(f"charge {number} {amount}")
    return Receipt(number, amount)


@app.tool(effect="unsafe")
async def decline(number: str) -> None:
    note(f"decline {number}")
    raise ToolFailed("they said no")


@app.tool(effect="read")
async def hold() -> None:
    if not (FOLDER / "resumed").exists():
        os.kill(os.getpid(), signal.SIGKILL)


@app.tool(effect="unsafe")
async def ship(number: str) -> str:
    note(f"ship {number}")
    return f"shipped {number}"


@app.workflow()
async def pack(run: Run, number: str) -> str:
    return await run.step(label, number)


async def tell(number: str) -> str:
    return await look_up(f"customer of {number}")


@app.workflow(version=1)
async def sell(run: Run, order: Order) -> list[object]:
    score = await run.step(weigh, order)  # at: weigh
    counted = await asyncio.gather(
        run.step(count, 1),
        run.step(count, 2),
    )
    async with run.scope(order.number):
        found = await look_up(order.number)  # at: look_up
    answer = await run.infer(  # at: infer
        "main", messages=[{"role": "system", "content": "Be short."}, {"role": "user", "content": MESSAGE}], heat=0
    )
    await run.sleep(0.01)  # at: sleep
    go = await run.signal("go", bool)
    home = await run.env("SHOP_HOME")
    picked = [await run.step(pick, each) for each in range(2)]  # at: pick
    boxed = await run.child(pack, order.number)  # at: child
    told = await asyncio.create_task(tell(order.number), name="customer")
    paid = await charge(order.number, order.amount) if score.points > 10 else None  # at: charge
    try:
        await decline(order.number)  # at: decline
        declined = "accepted"
    except ToolFailed as error:
        declined = error.message
    await hold()  # at: hold
    shipped = await ship(order.number)
    facts = [counted, found, answer.text, go, home, picked, boxed, told]
    return [score.points, facts, None if paid is None else paid.paid, declined, shipped]
