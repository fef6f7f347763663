"""What the processes of the crash tests of inferences do: ask over real HTTP, die, and be followed by the next."""

from __future__ import annotations

import asyncio
import json
import os
from collections import Counter
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import quote, unquote
from urllib.request import urlopen

from refold.events.catalog.run import RunCreated
from refold.events.identity import Stream
from refold.gateway.answers import outcome, standing
from refold.gateway.providers.openai_compatible import openai_compatible
from refold.gateway.retry import Retry
from refold.ledger.drafts import Draft
from refold.ledger.ledger import Existing, ScopedLedger, open_ledger
from refold.ledger.lookups import each_event
from refold.ledger.reading import exact_content
from refold.ledger.writer import StreamWriter
from refold.testing import faults
from refold.testing.crash import Ack
from tests.gateway.models_support import Desk, reply
from tests.invariants.checks import check_all

ENDS = ("inference.completed", "inference.failed", "inference.lost")
STEPS = ("st_1", "st_2")


def asks_twice(url: str, directory: Path, ack: Ack) -> None:
    """Two questions to a server that refuses each of them once."""
    (directory / "name").write_text(os.urandom(8).hex())
    asyncio.run(_goes_on(url, directory, ack, faults.register()))


def _name(directory: Path) -> str:
    """What tells the questions of this run from those of the others."""
    return (directory / "name").read_text()


async def _goes_on(url: str, directory: Path, ack: Ack, vfs: str | None = None) -> None:
    async with await open_ledger(directory / "ledger.db", vfs=vfs) as ledger:
        writer = await _writer(ledger.scope())
        async with writer:
            provider = openai_compatible(url, "scripted", name="loopback")
            desk = Desk(ledger, writer, provider)
            for step in STEPS:
                events = [event for event in await desk.record() if getattr(event.facts, "step_id", None) == step]
                if any(event.type == "inference.completed" for event in events):
                    continue
                found = standing(events)
                ask = desk.ask(f"{_name(directory)} {step}", step=step, retry=Retry(first=0.001))
                if found.unanswered is not None:
                    for draft in desk.inference.lost(ask, found.attempts):
                        writer.append(draft)
                ask.attempt, ask.failures = found.attempts + 1, found.failures
                answer = await desk.answer(ask)
                await writer.barrier()
                ack(f"{step} {answer.text}")
            await provider.aclose()


async def _writer(scope: ScopedLedger) -> StreamWriter:
    made = await scope.create(Draft(RunCreated("support", "d", "root")), key="the run")
    return await scope.writer(Stream.run(made.run_id)) if isinstance(made, Existing) else made


def nothing_repeated_or_missing(url: str, directory: Path, acks: list[str]) -> None:
    """The next process goes on; then each attempt has one end and one cost entry, and what was answered was not asked
    again. The server's own count is the truth.
    """
    before = {step: _sent(url, f"{_name(directory)} {step}") for step in STEPS}
    answered = {line.split()[0] for line in acks}
    told: list[str] = []
    asyncio.run(_goes_on(url, directory, told.append))
    for step in STEPS:
        if step in answered:
            assert _sent(url, f"{_name(directory)} {step}") == before[step], f"{step} was answered and asked again"
    asyncio.run(_judge(url, directory))
    check_all(directory / "ledger.db")


async def _judge(url: str, directory: Path) -> None:
    async with await open_ledger(directory / "ledger.db") as ledger:
        found = await ledger.scope().find("the run")
        assert found is not None
        stream = Stream.run(found.run_id)
        async with ledger.scope().reader() as reader:
            events = [event async for event in each_event(reader, stream)]
            for step in STEPS:
                mine = [event for event in events if getattr(event.facts, "step_id", None) == step]
                asked = [event.facts.attempt for event in mine if event.type == "inference.requested"]
                ended = [event.facts.attempt for event in mine if event.type in ENDS]
                paid = [event.facts.source_ref for event in mine if event.type == "cost.recorded"]
                assert asked == ended == list(range(1, len(asked) + 1)), (step, asked, ended)
                assert paid == [f"{step}#{attempt}" for attempt in asked]
                assert len(asked) <= 3, "a kill costs one attempt at most"
                # A request that was killed on its way may have left or not; nothing leaves that is not on record.
                lost = sum(event.type == "inference.lost" for event in mine)
                sent = _sent(url, f"{_name(directory)} {step}")
                assert len(asked) - lost <= sent <= len(asked), (step, len(asked), lost, sent)
                assert mine[-2].type == "inference.completed"
                answer = outcome(mine[-2], await exact_content(reader, stream, mine[-2]))
                assert answer.text == f"answer to {_name(directory)} {step}"


def _sent(url: str, text: str) -> int:
    with urlopen(f"{url}/sent?{quote(text)}") as response:
        return int(response.read())


class Provider(BaseHTTPRequestHandler):
    """Refuses each question once, answers it from then on, and says how often it was asked."""

    asked: ClassVar[Counter[str]] = Counter()
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["content-length"])))
        text = request["messages"][0]["content"]
        self.asked[text] += 1
        if self.asked[text] == 1:
            self._say(503, b"busy")
        else:
            body = reply(f"answer to {text}", prompt_tokens=10, completion_tokens=2)
            self._say(200, json.dumps(body).encode())

    def do_GET(self) -> None:
        self._say(200, str(self.asked[unquote(self.path.partition("?")[2])]).encode())

    def _say(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing is said about what was asked."""
