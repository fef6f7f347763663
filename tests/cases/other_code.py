"""What the process of case 29 does: it runs with another copy of the package, whose folds were edited."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from pathlib import Path
from typing import Any

import msgspec

from refold.errors import RefoldError
from refold.events.identity import Stream
from refold.ledger.ledger import Ledger, open_ledger
from refold.ledger.maintenance.migration import migrate
from refold.ledger.maintenance.rebuild import rebuild
from refold.projections import fold, new_state
from refold.projections.fingerprint import fingerprint
from refold.projections.rows import StepRow


async def _nodes(ledger: Ledger, run_id: str) -> list[str]:
    async with ledger.scope().reader() as reader:
        return [row.node for row in await reader.rows(StepRow, {"run_id": run_id}, order=("seq",))]


async def _writer_refused(ledger: Ledger, run_id: str) -> str | None:
    try:
        await (await ledger.scope().writer(Stream.run(run_id))).close()
    except RefoldError as error:
        return error.code
    return None


async def _look(ledger: Ledger, run_id: str) -> dict[str, Any]:
    """What the code that runs here makes of the ledger."""
    scope = ledger.scope()
    stream = Stream.run(run_id)
    loaded = await ledger.store.load(scope.scope, stream)
    whole = fold(new_state(scope.scope, stream), [event async for event in scope.read(stream)])
    return {
        "events": len([event async for event in scope.read(stream)]),
        "loaded equals folded": msgspec.to_builtins(loaded.open) == msgspec.to_builtins(whole.open),
        "open nodes": [step.node for step in loaded.open.steps.values()],
        "nodes in the table": await _nodes(ledger, run_id),
    }


async def _all(path: Path, run_id: str) -> dict[str, Any]:
    async with await open_ledger(path, create=False) as ledger:
        before = {**await _look(ledger, run_id), "writer": await _writer_refused(ledger, run_id)}
    migrated = await migrate(path)
    async with await open_ledger(path, create=False) as ledger:
        after = {**await _look(ledger, run_id), "writer": await _writer_refused(ledger, run_id)}
    return {
        "fingerprint": fingerprint(),
        "before": before,
        "refolded": migrated.refolded,
        "after": after,
        "rebuilt equal": (await rebuild(path)).equal,
    }


if __name__ == "__main__":
    heard: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: heard.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("refold.ledger.snapshots").addHandler(handler)
    result = asyncio.run(_all(Path(sys.argv[1]), sys.argv[2]))
    print(json.dumps({**result, "heard": heard}))
