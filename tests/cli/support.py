"""A ledger for the commands to read, and ways to call them."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, NamedTuple

from refold.events.catalog import inference, run, steps, tool
from refold.ledger.artifacts import store_artifact
from refold.ledger.drafts import Draft
from refold.ledger.ledger import Ledger, open_ledger
from refold.ledger.writer import StreamWriter

HOSTILE = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202egnp.exe\u2066\x00\r\n\ttext"
"""What an agent may write: a window title, a cleared screen, an 8-bit CSI, reversed text, NUL."""


class Answer(NamedTuple):
    """How a command ended."""

    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def error(self) -> Any:
        return json.loads(self.err)["error"]

    @property
    def lines(self) -> list[Any]:
        return [json.loads(line) for line in self.out.splitlines()]


def on_ledger(path: Path, work: Callable[[Ledger], Awaitable[Any]]) -> Any:
    """Opens (or makes) a ledger, does something with it, closes it."""

    async def go() -> Any:
        async with await open_ledger(path) as ledger:
            return await work(ledger)

    return asyncio.run(go())


async def record_run(
    ledger: Ledger, scope: str = "default/default", key: str | None = None, text: str = "hello"
) -> str:
    """A session as an import leaves it: a priced and an unpriced inference, an answered call, a doubt, an artifact."""
    ids = ledger.ids
    created = run.RunCreated(workflow="support", effect_domain="d", lineage_root="r", origin="imported")
    writer = await ledger.scope(scope).create(Draft(created, content={"input": text}, input=text), key=key)
    assert isinstance(writer, StreamWriter)
    writer.append(Draft(run.RunStarted()))
    for number, amount in enumerate(("0.100000000000000000055", None)):
        step = ids.new("st")
        writer.append(Draft(inference.InferenceRequested(step_id=step, model="m", provider="p"), input=text))
        writer.append(Draft(inference.InferenceCompleted(step_id=step, finish="stop"), output=text))
        source = f"{writer.stream}/{number}"
        currency = None if amount is None else "USD"
        cost = inference.CostRecorded(
            cost_id=ids.new("cost"), source_ref=source, step_id=step, currency=currency, amount=amount
        )
        writer.append(Draft(cost))
    for answered in (True, False):
        intent, call, step = ids.new("int"), ids.new("tc"), ids.new("st")
        claim = tool.Claim(step_id=step, tool="bash", key=intent, fingerprint="f", effect_domain="d")
        sent = tool.ToolDispatched(intent_id=intent, tool_call_id=call, revision=1, observed=True, claim=claim)
        writer.append(Draft(sent, content={"arguments": text}, input=text))
        if answered:
            writer.append(
                Draft(tool.ToolAnswered(intent_id=intent, tool_call_id=call, revision=2, result_bytes=2), output=text)
            )
    await store_artifact(
        writer,
        ledger.files,
        text.encode() * 10,
        artifact_id=ids.new("art"),
        kind="output",
        type_="text",
        mime="text/plain",
    )
    writer.append(Draft(steps.StepCompleted(step_id=ids.new("st"), name="tidy"), output=text))
    writer.append(Draft(run.RunPaused(reason="imported")))
    await writer.close()
    return str(writer.stream)


def process(*args: str, environment: dict[str, str] | None = None, **settings: Any) -> subprocess.Popen[bytes]:
    """The program as a process of its own."""
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **(environment or {})}
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **settings}
    return subprocess.Popen([sys.executable, "-m", "refold.cli.main", *args], env=environ, **streams)


def finished(started: subprocess.Popen[bytes]) -> Answer:
    out, err = started.communicate(timeout=60)
    return Answer(started.returncode, out.decode(), err.decode())
