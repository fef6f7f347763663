"""Writes a session in pi's format, of any size and the same for the same seed: `generate_session.py FILE BYTES [SEED]`.

It has what real ones have: parallel calls, results above 8 KB, errors, aborted answers, calls that nobody answered,
changes of model, commands that the person ran, and a compaction whenever about two megabytes have been said.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

_START = datetime(2026, 3, 2, 9, 0, tzinfo=UTC)
_COMPACT_AFTER = 2_000_000
_SYLLABLES = ("ba", "ke", "lo", "mi", "nu", "ra", "se", "ti", "vo", "zu", "an", "er", "il", "on", "us")


class _Writer:
    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.now = _START
        self.records = 0
        self.said = 0
        self.calls = 0
        words = ["".join(self.random.choices(_SYLLABLES, k=self.random.randint(1, 4))) for _ in range(4000)]
        # Texts are cut from one long one: making each word by word would take longer than importing it.
        self.prose = " ".join(self.random.choices(words, k=120_000))

    def text(self, size: int) -> str:
        start = self.random.randrange(len(self.prose) - size)
        return self.prose[start : start + size]

    def line(self, record: dict[str, Any]) -> bytes:
        self.now += timedelta(milliseconds=self.random.randint(5, 9000))
        record = {"type": record.pop("type"), "timestamp": _iso(self.now), **record}
        data = json.dumps(record, separators=(",", ":"), ensure_ascii=False).encode() + b"\n"
        self.records += 1
        self.said += len(data)
        return data

    def message(self, **message: Any) -> bytes:
        began = self.now + timedelta(milliseconds=2)
        return self.line({"type": "message", "message": {**message, "timestamp": int(began.timestamp() * 1000)}})

    def answer(self, blocks: list[dict[str, Any]], stop: str, **more: Any) -> bytes:
        random = self.random
        usage: dict[str, Any] = {
            "input": random.randint(3, 900),
            "output": random.randint(5, 1500),
            "cacheRead": random.randint(0, 150_000),
            "cacheWrite": random.randint(0, 4000),
        }
        usage["totalTokens"] = sum(usage.values())
        prices = {"input": 3e-6, "output": 15e-6, "cacheRead": 3e-7, "cacheWrite": 3.75e-6}
        cost = {name: usage[name] * price for name, price in prices.items()}
        usage["cost"] = {**cost, "total": sum(cost.values())}
        about = {"api": "example-messages", "provider": "example", "model": "example-large", "usage": usage}
        return self.message(role="assistant", content=blocks, **about, stopReason=stop, **more)

    def turn(self) -> Iterator[bytes]:
        random = self.random
        if random.random() < 0.12:
            yield self.message(role="user", content=[{"type": "text", "text": self.text(random.randint(20, 900))}])
        if random.random() < 0.04:
            blocks = [{"type": "text", "text": self.text(random.randint(0, 300))}]
            yield self.answer(blocks, "aborted", errorMessage="Request was aborted.")
            return
        calls = [self.call() for _ in range(random.choice((1, 1, 1, 1, 2, 3)))]
        blocks = [{"type": "text", "text": self.text(random.randint(20, 600))}, *calls]
        yield self.answer(blocks, "toolUse")
        for call in calls:
            if random.random() > 0.01:
                yield self.result(call)

    def call(self) -> dict[str, Any]:
        self.calls += 1
        name = self.random.choice(("read", "bash", "edit", "write"))
        arguments = {
            "path": f"src/{self.text(12).replace(' ', '_')}.py",
            "text": self.text(self.random.randint(0, 700)),
        }
        return {"type": "toolCall", "id": f"call_{self.calls}", "name": name, "arguments": arguments}

    def result(self, call: dict[str, Any]) -> bytes:
        random = self.random
        size = random.randint(8193, 40_000) if random.random() < 0.04 else random.randint(10, 6000)
        return self.message(
            role="toolResult",
            toolCallId=call["id"],
            toolName=call["name"],
            content=[{"type": "text", "text": self.text(size)}],
            isError=random.random() < 0.03,
        )


def session(seed: int) -> Iterator[bytes]:
    """The lines of an endless session; its first is the header."""
    writer = _Writer(seed)
    yield writer.line({"type": "session", "id": f"generated-{seed}", "cwd": "/work", "provider": "example"})
    yield writer.message(role="user", content=[{"type": "text", "text": writer.text(200)}])
    while True:
        yield from writer.turn()
        chance = writer.random.random()
        if chance < 0.01:
            output = writer.text(300)
            yield writer.message(role="bashExecution", command="ls", output=output, exitCode=0, cancelled=False)
        elif chance < 0.02:
            yield writer.line({"type": "model_change", "provider": "example", "modelId": "example-small"})
        if writer.said > _COMPACT_AFTER:
            writer.said = 0
            kept = writer.records - 12
            yield writer.line(
                {
                    "type": "compaction",
                    "summary": writer.text(3000),
                    "firstKeptEntryIndex": kept,
                    "tokensBefore": 170_000,
                }
            )


def write_session(path: Path, size: int, seed: int = 1) -> int:
    """Writes whole lines of `session(seed)` until there are `size` bytes; returns how many lines."""
    count = written = 0
    with path.open("wb") as file:
        for line in session(seed):
            file.write(line)
            count, written = count + 1, written + len(line)
            if written >= size:
                return count
    return count


def _iso(moment: datetime) -> str:
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


if __name__ == "__main__":
    print(write_session(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]) if len(sys.argv) > 3 else 1), "lines")
