"""Writes the session that `make demo` imports: `src/refold/interop/samples/demo-session.jsonl`.

A support agent of a bicycle shop, invented for this project: it looks into a late order, one answer is aborted by the
person, a tool fails, a log is larger than a row, a tool prints an access key, and a refund is on the wire when the
payment service goes down.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

TARGET = Path(__file__).parents[1] / "src/refold/interop/samples/demo-session.jsonl"
START = datetime(2026, 11, 3, 8, 15, 2, 137000, tzinfo=UTC)
# Per million tokens, as floats come out of other people's sums: costs get digits that a float would lose.
PRICES = {
    "input": Decimal("3.1000000000000001"),
    "output": Decimal("15.449999999999999"),
    "cacheRead": Decimal("0.31000000000000005"),
    "cacheWrite": Decimal("3.875"),
}
# Built, not written: nobody's key, and no scanner of this repository stumbles over it.
FAKE_KEY = "sk-" + "proj-" + "q7Zt2LmVb9" + "Xc4RwKd8Yp" + "T1sNf6Hj3G" + "a5Eu0QiOzB"


class Story:
    def __init__(self) -> None:
        self.now = START
        self.lines: list[str] = []

    def record(self, seconds: float, **record: Any) -> None:
        self.now += timedelta(seconds=seconds)
        stamp = self.now.isoformat(timespec="milliseconds").replace("+00:00", "Z")
        self.lines.append(_dump({"type": record.pop("type"), "timestamp": stamp, **record}))

    def message(self, seconds: float, **message: Any) -> None:
        began = self.now + timedelta(milliseconds=3)
        message["timestamp"] = int(began.timestamp() * 1000)
        self.record(seconds, type="message", message=message)

    def user(self, seconds: float, text: str) -> None:
        self.message(seconds, role="user", content=[{"type": "text", "text": text}])

    def answer(self, seconds: float, tokens: tuple[int, int, int, int], stop: str, *blocks: Any, **more: Any) -> None:
        counts = dict(zip(PRICES, tokens, strict=True))
        costs = {name: counts[name] * PRICES[name] / 1_000_000 for name in PRICES}
        usage: dict[str, Any] = {**counts, "totalTokens": sum(counts.values())}
        usage["cost"] = {**costs, "total": sum(costs.values())}
        about = {"api": "chat-completions", "provider": "northwind", "model": "northwind-large-2", "usage": usage}
        self.message(seconds, role="assistant", content=list(blocks), **about, stopReason=stop, **more)

    def result(self, seconds: float, identity: str, name: str, text: str, *, error: bool = False) -> None:
        content = [{"type": "text", "text": text}]
        self.message(seconds, role="toolResult", toolCallId=identity, toolName=name, content=content, isError=error)


def _dump(value: Any) -> str:
    # The standard encoder writes floats itself; digits of our own go in as text and lose their quotation marks again.
    text_ = json.dumps(_marked(value), ensure_ascii=False, separators=(",", ":"))
    return text_.replace('"<digits>', "").replace('</digits>"', "")


def _marked(value: Any) -> Any:
    if isinstance(value, Decimal):
        return f"<digits>{value.normalize():f}</digits>"
    if isinstance(value, dict):
        return {name: _marked(each) for name, each in value.items()}
    return [_marked(each) for each in value] if isinstance(value, list) else value


def call(identity: str, name: str, **arguments: Any) -> dict[str, Any]:
    return {"type": "toolCall", "id": identity, "name": name, "arguments": arguments}


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def carrier_log() -> str:
    places = ("Hamburg hub", "Kassel sorting centre", "Leipzig hub", "Dresden depot")
    notes = ("scanned", "loaded", "unloaded", "weighed at 14.2 kg", "held: address label damaged", "relabelled")
    rows = []
    for number in range(170):
        moment = START - timedelta(minutes=31 * (170 - number))
        place, note = places[number // 43], notes[(number * 7 + number // 5) % len(notes)]
        rows.append(f"{moment:%Y-%m-%d %H:%M} | parcel NW-88412-{number % 3 + 1} | {place} | {note}")
    return "\n".join(rows) + "\n"


def story() -> list[str]:
    tell = Story()
    tell.record(
        0,
        type="session",
        id="3c1f9e52-demo-4b7a-9d0e-b1cyc1e5h0p1",
        cwd="/srv/support-agent",
        provider="northwind",
        modelId="northwind-large-2",
        thinkingLevel="off",
    )
    tell.user(1.2, "Ticket 4711: Mrs. Okafor's cargo bike was due on Friday. Find out where it is and make it right.")
    tell.answer(
        3.874,
        (1873, 96, 0, 1502),
        "toolUse",
        text("I will look at the order and at the carrier's log together."),
        call("call_a1", "find_order", order="88412"),
        call("call_a2", "carrier_log", tracking="NW-88412"),
    )
    tell.result(0.613, "call_a2", "carrier_log", carrier_log())
    order = {"order": "88412", "customer": "A. Okafor", "item": "cargo bike Lastenrad 3", "price": "2349.00 EUR"}
    tell.result(0.2, "call_a1", "find_order", json.dumps({**order, "due": "2026-10-30", "state": "in transit"}))
    tell.answer(
        4.118,
        (211, 187, 3375, 640),
        "toolUse",
        text("The parcel was held in Leipzig for a damaged label. The rule for late orders decides what we may offer."),
        call("call_b1", "read_policy", topic="late delivery"),
    )
    tell.result(0.094, "call_b1", "read_policy", "PermissionError: policy store refused the agent's role", error=True)
    tell.answer(
        2.731,
        (388, 58, 4015, 0),
        "toolUse",
        text("The rule is not readable for me. I will see how this service is set up."),
        call("call_c1", "show_config", service="policy-store"),
    )
    config = f"service: policy-store\nrole: support-readonly\nAPI_KEY={FAKE_KEY}\nregion: eu-central\n"
    tell.result(0.047, "call_c1", "show_config", config)
    tell.answer(
        1.402,
        (97, 41, 4403, 512),
        "aborted",
        text("With this key I could read the policy store as"),
        errorMessage="Request was aborted.",
    )
    tell.user(
        21.9, "Stop. Do not use that key. Late by more than two days is 10 percent back; you may refund that yourself."
    )
    tell.record(4.3, type="thinking_level_change", thinkingLevel="high")
    tell.answer(
        6.057,
        (602, 233, 4915, 0),
        "toolUse",
        {"type": "thinking", "thinking": "10 % of 2349.00 EUR is 234.90 EUR. One refund, on the order itself."},
        text("Understood. Ten percent of 2349.00 EUR is 234.90 EUR. First I note it on the ticket."),
        call(
            "call_d1",
            "note_on_ticket",
            ticket="4711",
            text="Late by 4 days; refund of 234.90 EUR agreed with the shift lead.",
        ),
    )
    tell.result(0.138, "call_d1", "note_on_ticket", "noted")
    tell.answer(
        2.946,
        (144, 72, 5517, 318),
        "toolUse",
        text("Now the refund."),
        call("call_e1", "refund", order="88412", amount="234.90", currency="EUR"),
    )
    tell.message(
        31.5, role="bashExecution", command="systemctl status payments", output="payments.service: failed\n", exitCode=3
    )
    tell.record(2.1, type="model_change", provider="northwind", modelId="northwind-small-1")
    tell.user(8.8, "The payment service went down just now. Did the refund go through?")
    tell.answer(
        2.205,
        (433, 64, 5917, 0),
        "stop",
        text("I do not know. I sent the refund and got no answer; sending it again could pay twice."),
    )
    return tell.lines


if __name__ == "__main__":
    TARGET.parent.mkdir(exist_ok=True)
    TARGET.write_text("\n".join(story()) + "\n", encoding="utf-8")
    print(f"{TARGET.name}: {TARGET.stat().st_size} bytes")
