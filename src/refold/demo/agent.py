"""The demo's agent: it looks an order up, charges the customer, and credits a bonus with a partner.

    refold run settle --app refold.demo.agent:app --input '{"order": "7", "amount": "42.00"}' --key ticket-17

Where model and payment service are is in REFOLD_DEMO_MODEL and REFOLD_DEMO_PAYMENTS.
"""

from __future__ import annotations

import json
import os
from decimal import Decimal
from typing import Any, Literal, TypedDict

import httpx

from refold import (
    App,
    CannotTell,
    DidNotHappen,
    FixedPrices,
    Happened,
    Rates,
    Run,
    ToolFailed,
    current_call,
    openai_compatible,
)
from refold.gateway.http import async_client
from refold.gateway.tools import Doubt

ORDERS = {"7": {"customer": "C-1001", "open": "42.00"}, "8": {"customer": "C-1002", "open": "13.50"}}
PAYMENTS = os.environ.get("REFOLD_DEMO_PAYMENTS", "http://127.0.0.1:1")
MODEL = os.environ.get("REFOLD_DEMO_MODEL", "http://127.0.0.1:1")

app = App(
    "demo",
    models={"main": openai_compatible(f"{MODEL}/v1", "demo-model")},
    prices=FixedPrices({"demo-model": Rates(input="1.50", output="6.00")}),
)


class Ticket(TypedDict):
    """What a customer wants settled."""

    order: str
    amount: str


async def look_for_charge(doubt: Doubt) -> Happened | DidNotHappen | CannotTell:
    """Asks the payment service what it knows under the key that it was given."""
    try:
        async with httpx.AsyncClient(base_url=PAYMENTS) as client:
            answer = await client.get("/charges", params={"key": doubt.key})
    except httpx.HTTPError:
        return CannotTell()
    if answer.status_code == 404:
        return DidNotHappen()
    return Happened(answer.json()["id"])


@app.tool(effect="read")
async def look_up(order: str) -> dict[str, str]:
    """Look an order up."""
    return ORDERS.get(order, {})


@app.tool(effect="unsafe", key="charge:{order}", timeout=5, settle=0, probe=look_for_charge)
async def charge(order: str, amount: Decimal) -> str:
    """Charge the customer of an order."""
    return await _post("/charges", {"order": order, "amount": str(amount)})


@app.tool(effect="unsafe", key="bonus:{order}", timeout=5)
async def credit_bonus(order: str, points: int) -> str:
    """Credit bonus points with the partner. The partner cannot be asked what it did."""
    return await _post("/accounts/bonus/charges", {"order": order, "points": points})


async def _post(path: str, body: dict[str, Any]) -> str:
    async with async_client(base_url=PAYMENTS) as client:
        answer = await client.post(path, json=body, headers={"Idempotency-Key": current_call().key})
        if answer.status_code == 422:
            raise ToolFailed(f"refused: {answer.text}")
        answer.raise_for_status()
        booked: str = answer.json()["id"]
        return booked


@app.tool(effect="unsafe", name="pay", key="charge:{order}", timeout=20, settle=0, probe=look_for_charge)
async def pay(order: Literal["7"], amount: Literal["42.00"]) -> str:
    """Charge the customer of order 7. A very small model can say nothing but what is right here."""
    return await _post("/charges", {"order": order, "amount": amount})


def points_for(amount: str) -> int:
    """One point for each full unit."""
    return int(Decimal(amount))


@app.workflow(version=1)
async def settle(run: Run, ticket: Ticket) -> dict[str, Any]:
    """Lets the model decide, call by call, until it has nothing more to ask for."""
    points = await run.step(points_for, ticket["amount"])
    said = f"Settle order {ticket['order']}: charge {ticket['amount']} and credit {points} points."
    messages: list[dict[str, Any]] = [{"role": "user", "content": said}]
    done: dict[str, Any] = {}
    while True:
        answer = await run.infer("main", messages=messages, tools=[look_up, charge, credit_bonus])
        messages.append(answer.message)
        if not answer.calls:
            return {"said": answer.text, **done}
        for call in answer.calls:
            done[call.name] = result = await run.call(call)
            messages.append({"role": "tool", "tool_call_id": call.id, "content": json.dumps([call.name, result])})


@app.workflow(version=1)
async def settle_simply(run: Run, ticket: Ticket) -> dict[str, Any]:
    """One call and one sentence: what the smallest of real models can do."""
    said = f"Order {ticket['order']} is open with {ticket['amount']}. Charge it."
    messages: list[dict[str, Any]] = [{"role": "user", "content": said}]
    asked = await run.infer("main", messages=messages, tools=[pay], max_tokens=60)
    receipts = [await run.call(call) for call in asked.calls]
    messages.append(
        {"role": "user", "content": f"The charge has the number {receipts[0]}. Thank the customer briefly."}
    )
    thanks = await run.infer("main", messages=messages, max_tokens=60)
    return {"charge": receipts[0], "said": thanks.text}
