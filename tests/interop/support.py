"""Ledgers to import into, a small session, and streams made comparable."""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pytest

from refold.events.catalog import CATALOG
from refold.events.content import PartList, decode_content, unseal
from refold.events.envelope import decode_view
from refold.events.identity import Stream
from refold.interop.importers import Report, import_paths
from refold.ledger.ledger import Ledger, ScopedLedger, open_ledger
from refold.ledger.port import BlobRow

T = TypeVar("T")
_ID = re.compile(rb"\b(?:run|st|tc|int|art|cost|fb)_[0-9A-HJKMNP-TV-Z]{26}|~?\b[0-9a-f]{32,64}\b")


def in_ledger(folder: Path, work: Callable[[Ledger], Awaitable[T]]) -> T:
    """What `work` returns, in the ledger of this folder."""

    async def run() -> T:
        async with await open_ledger(folder / "ledger.db") as ledger:
            return await work(ledger)

    return asyncio.run(run())


def imported(folder: Path, *paths: Path, kind: str = "pi", scope: str = "t/w") -> Report:
    """The report of an import into the ledger of this folder."""
    return in_ledger(folder, lambda ledger: import_paths(ledger.scope(scope), kind, paths))


async def heads(scope: ScopedLedger) -> list[Any]:
    """Where the scope's streams stand, owners included."""
    async with scope.reader() as reader:
        return await reader.heads(limit=100_000)


def heads_of(folder: Path, scope: str = "t/w") -> list[Any]:
    return in_ledger(folder, lambda ledger: heads(ledger.scope(scope)))


async def told(scope: ScopedLedger, run_id: str) -> list[Any]:
    """A run's events with their contents and parts, ids and digests numbered in the order in which they appear."""
    found: list[Any] = []
    stream = Stream.run(run_id)
    async with scope.reader() as reader:
        blobs = {blob.number: blob for blob in await reader.blobs(stream, limit=100_000)}
        for row in await reader.raw_events(stream, limit=100_000):
            facts = CATALOG.decode(row.type, row.version, row.facts, stream, row.seq)
            content: Any = None
            if row.content is not None:
                stored = decode_content(row.content)
                parts = {name: _shown(each, blobs) for name, each in stored.parts.items()}
                content = [msgspec.json.decode(stored.values), parts]
            view = None if row.view is None else decode_view(unseal(row.view))
            found.append([row.seq, row.type, row.occurred_at, row.cause, msgspec.to_builtins(facts), content, view])
    numbered: dict[bytes, bytes] = {}
    text = _ID.sub(lambda match: numbered.setdefault(match[0], b"#%d" % len(numbered)), msgspec.json.encode(found))
    result: list[Any] = json.loads(text)
    return result


def _shown(parts: PartList, blobs: dict[int, BlobRow]) -> Any:
    if len(parts) > 50:  # A long conversation, sent again each turn: its parts are shown where they first stand.
        return [list(each) for each in parts.ranges]
    return [unseal(blobs[number].stored or b"").decode() for number in parts.numbers()]


def told_of(folder: Path, run_id: str | None, scope: str = "t/w") -> list[Any]:
    assert run_id is not None
    return in_ledger(folder, lambda ledger: told(ledger.scope(scope), run_id))


def shared(pattern: str) -> Path:
    """The first recorded file of this pattern; skips where there is none."""
    named = os.environ.get("REFOLD_SHARED")
    root = Path(named) if named else Path(__file__).resolve().parents[2].parent / "shared"
    files = sorted((root / "data").glob(pattern))
    if not files:
        pytest.skip(f"no recorded sessions at {root / 'data' / pattern}: set REFOLD_SHARED to have them read")
    return files[0]


def line(record: dict[str, Any]) -> bytes:
    return json.dumps(record, ensure_ascii=False).encode("utf-8", "surrogatepass") + b"\n"


HEADER = {"type": "session", "id": "5e55", "timestamp": "2026-01-02T03:04:05.678Z", "cwd": "/work"}


def stamp(second: int) -> str:
    return f"2026-01-02T03:{second // 60:02}:{second % 60:02}.250Z"


def user(second: int, text: str) -> dict[str, Any]:
    return _message(second, {"role": "user", "content": [{"type": "text", "text": text}]})


def call(identity: str, name: str = "read", **arguments: Any) -> dict[str, Any]:
    return {"type": "toolCall", "id": identity, "name": name, "arguments": arguments}


def answer(
    second: int, *blocks: dict[str, Any], stop: str = "stop", usage: dict[str, Any] | None = None, **more: Any
) -> dict[str, Any]:
    usage = usage or {"input": 10, "output": 5, "cacheRead": 0, "cacheWrite": 0, "cost": {"total": 0.1}}
    about = {"api": "a", "provider": "acme", "model": "acme-1", "usage": usage, "stopReason": stop}
    return _message(second, {"role": "assistant", "content": list(blocks), **about, **more})


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def result(second: int, identity: str, words: str, *, error: bool = False, name: str = "read") -> dict[str, Any]:
    about = {"role": "toolResult", "toolCallId": identity, "toolName": name, "isError": error}
    return _message(second, {**about, "content": [{"type": "text", "text": words}]})


def _message(second: int, message: dict[str, Any]) -> dict[str, Any]:
    milliseconds = 1_767_323_045_000 + second * 1000
    return {"type": "message", "timestamp": stamp(second), "message": {**message, "timestamp": milliseconds}}


def small_session() -> list[dict[str, Any]]:
    """Every kind of record once or twice."""
    return [
        HEADER,
        user(1, "look at the plan"),
        answer(2, text("reading"), call("c1"), call("c2", "write", path="a", amount=12.5), stop="toolUse"),
        result(3, "c2", "written"),
        result(4, "c1", "x" * 9000),
        answer(5, text("hm"), stop="aborted", errorMessage="Request was aborted."),
        {"type": "thinking_level_change", "timestamp": stamp(6), "thinkingLevel": "high"},
        user(7, "go on"),
        answer(8, call("c1", path="b"), stop="toolUse"),
        result(9, "c1", "no such file", error=True),
        _message(10, {"role": "bashExecution", "command": "ls", "output": "a b", "exitCode": 0}),
        {
            "type": "compaction",
            "timestamp": stamp(11),
            "summary": "the plan was read",
            "firstKeptEntryIndex": 7,
            "tokensBefore": 1234,
        },
        {"type": "novelty", "timestamp": stamp(12), "what": [1, None, 0.5]},
        answer(13, text("paying"), call("p1", "pay", amount=90), stop="toolUse"),
        user(14, "did it go through?"),
        result(15, "nobody", "late"),
        answer(16, text("I do not know")),
    ]


def write(path: Path, records: list[dict[str, Any]]) -> Path:
    path.write_bytes(b"".join(line(record) for record in records))
    return path
