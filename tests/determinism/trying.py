"""Tries one misuse, in two halves: what differs between processes is tried between them, with this as a program."""

from __future__ import annotations

import asyncio
import json
import sys

from refold import InferenceSkipping, RunEnded, RunPaused, Stream
from refold.runtime.opened import Refold
from tests.determinism.misuses import app


async def first(ledger: str, name: str) -> str:
    """Brings the run to where it waits for its signal, or to its end; returns what it says when it ended badly."""
    async with app.open(ledger) as rf:
        run = await rf.start(name, key=name)
        async for event in rf.scope.follow(Stream.run(run.id)):
            if event.type in ("run.failed", "run.succeeded") or event.site.endswith("/keep#1"):
                break
        return await _outcome(rf, name) if event.type == "run.failed" else "waits"


async def second(ledger: str, name: str) -> str:
    """Opens it again, in an execution of its own, and lets it go to its end: `harmless`, or what is said."""
    async with app.open(ledger) as rf:
        run = await rf.start(name, key=name)
        if (await run.row()).ended_at is None:
            await rf.signal(run.id, "go")
        return await _outcome(rf, name)


async def _outcome(rf: Refold, name: str) -> str:
    run = await rf.start(name, key=name)
    try:
        await run.result()
    except RunEnded as error:
        replayed = await rf.replay(run.id, InferenceSkipping())
        assert replayed.equal, replayed.divergences
        return f"{error.facts['error_code']}: {error.message}"
    except RunPaused as error:
        (found,) = error.facts["divergences"]
        return f"drift: {found['first_difference']}; at {found['at']}; {found['remedy']}"
    replayed = await rf.replay(run.id, InferenceSkipping())
    assert replayed.equal, replayed.divergences
    return "harmless"


if __name__ == "__main__":
    half = first if sys.argv[1] == "first" else second
    print(json.dumps(asyncio.run(half(sys.argv[2], sys.argv[3]))))
