"""The writing side of a recording: one run, its requests and how each of them ended. Lives on the bridge's loop."""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Literal

from refold.errors import RefoldError
from refold.events import values
from refold.events.catalog.inference import (
    CostRecorded,
    InferenceCompleted,
    InferenceFailed,
    InferenceLost,
    InferenceRequested,
)
from refold.events.catalog.run import RunCreated, RunFailed, RunStarted, RunSucceeded
from refold.events.content import PartList
from refold.events.identity import Stream
from refold.events.values import canonical
from refold.interop.record.answers import Answer, dict_of, operation_of, read_answer, text_of
from refold.interop.record.bodies import keep_body, part_list, plain
from refold.interop.record.errors import NothingRecorded, RecordingExists, RecordingOver
from refold.interop.record.streams import read_stream
from refold.interop.record.traffic import Curtain, Ending, Exchange, Received, Sent
from refold.ledger.drafts import Draft
from refold.ledger.errors import StreamClosed, StreamOwned
from refold.ledger.ledger import Existing, ScopedLedger
from refold.ledger.writer import StreamWriter

RULES = "record/1"
"""What `run.created` says of the engine: by which rules requests were matched when the run was recorded."""
FINGERPRINT = "recorded request"
"""The purpose of the keyed digest that finds a recorded request."""

_log = logging.getLogger("refold.record")

Code = Literal["aborted", "provider_error", "timeout", "connection", "incomplete", "other"]


class Session:
    """A run that is being recorded. Its methods may be called by several requests at once."""

    def __init__(self, scope: ScopedLedger, writer: StreamWriter) -> None:
        self._ledger = scope.ledger
        self._writer = writer
        # Appends of one request stand together; their commits are awaited outside, so that requests share them.
        self._lock = asyncio.Lock()
        self._open: dict[Exchange, None] = {}
        self._over = False
        self._requests = 0
        self._hidden: dict[str, None] = {}
        self.curtain = Curtain(scope.ledger.redactor)

    @property
    def run_id(self) -> str:
        return self._writer.stream.run_id

    async def begin(self, exchange: Exchange) -> None:
        """Puts a request on record; when this returns it is durable, and may be sent."""
        async with self._lock:
            if self._over:
                raise RecordingOver(f"The block that records {self.run_id} has ended.", run_id=self.run_id)
            draft = await self._requested(exchange)
            self._writer.append(draft)
            self._open[exchange] = None
            self._requests += 1
            self._hidden.update(dict.fromkeys(exchange.sent.hidden))
            exchange.started = self._ledger.clock.monotonic()
        await self._writer.barrier()

    async def end(self, exchange: Exchange, how: Ending, error: BaseException | None = None) -> None:
        """Puts on record how a request ended, durably; what follows the first end of a request is none."""
        async with self._lock:
            if exchange not in self._open:
                return
            await self._ended(exchange, how, error)
        await self._writer.barrier()

    async def finish(self, error: BaseException | None) -> None:
        """Ends the run; requests still open were left by the code, and end as aborted. Raises NothingRecorded."""
        async with self._lock:
            self._over = True
            for exchange in list(self._open):
                await self._ended(exchange, "closed", None)
            silent = error is None and self._requests == 0
            self._writer.append(self._last(error, silent))
        await self._writer.close()
        if silent:
            raise NothingRecorded(
                f"The block that records {self.run_id} ended, and no request went through its clients.",
                run_id=self.run_id,
            )

    def _last(self, error: BaseException | None, silent: bool) -> Draft:
        if silent:
            return Draft(RunFailed(NothingRecorded.code), {"message": "No request."}, error="No request.")
        if error is None:
            return Draft(RunSucceeded())
        message = f"{type(error).__name__}: {self.curtain.text(str(error), self._hidden)}"
        return Draft(RunFailed(_error_code(error)), {"message": message}, error=message)

    async def _requested(self, exchange: Exchange) -> Draft:
        sent, writer = exchange.sent, self._writer
        body, parts = await keep_body(writer, sent.body, sent.json)
        request = {"method": sent.method, "url": sent.url, "headers": sent.headers, "removed": sent.removed, **body}
        exchange.step_id = self._ledger.ids.new("st")
        model, shown = _model(sent)
        facts = InferenceRequested(
            exchange.step_id,
            writer.name(model) if shown else model,
            writer.name(sent.host),
            operation=operation_of(sent.path),
            fingerprint=writer.digest(FINGERPRINT, fingerprinted(sent)),
        )
        said = _last_words(sent)
        return Draft(facts, {"request": request, **parts}, input=said, name=shown, provider=sent.host)

    async def _ended(self, exchange: Exchange, how: Ending, error: BaseException | None) -> None:
        received, writer, step = exchange.received, self._writer, exchange.step_id
        spent = (self._ledger.clock.monotonic() - exchange.started) // 1000
        answer = Answer() if received is None else read_received(received)
        code = _code(received, answer, how, error)
        content = await self._answered(exchange, answer, how, error)
        facts: InferenceCompleted | InferenceFailed
        if code is None:
            facts = InferenceCompleted(step, answer.finish, usage=answer.usage, duration_us=spent)
        else:
            facts = InferenceFailed(step, code, usage=answer.usage, duration_us=spent)
        model, shown = _model(exchange.sent)
        cost = CostRecorded(
            self._ledger.ids.new("cost"),
            f"{step}#1",
            step,
            provider=writer.name(exchange.sent.host),
            model=writer.name(model) if shown else model,
            usage=answer.usage,
            latency_us=spent,
            embeddings=answer.embeddings,
        )
        said = content.get("error")
        writer.append(Draft(facts, content, output=answer.text or None, error=None if code is None else said))
        writer.append(Draft(cost, name=shown, provider=exchange.sent.host))
        del self._open[exchange]
        exchange.ended = True

    async def _answered(
        self, exchange: Exchange, answer: Answer, how: Ending, error: BaseException | None
    ) -> dict[str, Any]:
        content: dict[str, Any] = {"ended": how}
        received = exchange.received
        if received is not None:
            chunks = list(received.chunks)
            content["response"] = {
                "status": received.status,
                "headers": received.headers,
                "removed": received.removed,
                "extensions": received.extensions,
                "body": plain(b"".join(chunks)),
                "chunks": [len(chunk) for chunk in chunks],
            }
        if error is not None:
            message = self.curtain.text(str(error), exchange.sent.hidden)
            content["raised"] = {"type": type(error).__name__, "message": message}
            content["error"] = f"{type(error).__name__}: {message}"
        elif answer.error is not None:
            content["error"] = answer.error
        if answer.raw_usage is not None:
            content["usage"] = answer.raw_usage
        if answer.response_id is not None:
            content["response_id"] = answer.response_id
        if answer.message is not None:
            kept = await self._message(answer.message)
            if kept is not None:
                content["message"] = kept
        return content

    async def _message(self, message: Any) -> PartList | None:
        try:
            return await part_list(self._writer, [message])
        except values.NotRecordable as error:
            # The body is kept whatever it says; only its reading is left out.
            _log.warning("the message of an answer in %s is not kept apart: %s", self.run_id, error.code)
            return None


def read_received(received: Received) -> Answer:
    """What an answer says, its encoding undone."""
    body = received.decode(b"".join(received.chunks))
    if received.header("content-type").startswith("text/event-stream"):
        return read_stream(body)
    return read_answer(body)


def fingerprinted(sent: Sent) -> bytes:
    """The bytes of which a request's fingerprint is the keyed digest."""
    return canonical(values.encode(sent.matched()))


async def create(scope: ScopedLedger, name: str, key: str | None, user_id: str | None) -> Session:
    """Starts a recording. Raises RecordingExists, KeyConflict."""
    run_id = scope.ledger.ids.new("run")
    facts = RunCreated(name, run_id, run_id, subject_kind="session", user_id=user_id, engine=RULES)
    made = await scope.create(Draft(facts, {"input": None, "key": key}), run_id, key)
    if isinstance(made, Existing):
        raise await _existing(scope, made, str(key))
    made.append(Draft(RunStarted()))
    return Session(scope, made)


async def _existing(scope: ScopedLedger, found: Existing, key: str) -> RecordingExists:
    """Why a key cannot be used again; a recording that nobody writes any more is ended first."""
    run_id = found.run_id
    try:
        how = await _end_of_the_dead(scope, run_id)
    except StreamOwned:
        how = "is being recorded by a process that lives"
    except StreamClosed:
        how = f"has ended ({found.row.status})"
    return RecordingExists(f"Key {key!r} belongs to {run_id}, which {how}.", key=key, run_id=run_id)


async def _end_of_the_dead(scope: ScopedLedger, run_id: str) -> str:
    new = scope.ledger.ids.new
    async with await scope.writer(Stream.run(run_id)) as writer:
        waiting = [step for step in writer.state.open.steps.values() if step.status == "running"]
        for step in waiting:
            writer.append(Draft(InferenceLost(step.step_id, step.attempts)))
            source = f"{step.step_id}#{step.attempts}"
            writer.append(Draft(CostRecorded(new("cost"), source, step.step_id, estimated=True)))
        message = "The process that recorded it died."
        writer.append(Draft(RunFailed("process_lost"), {"message": message}, error=message))
    return f"ended with its process ({len(waiting)} of its requests unanswered)"


def _error_code(error: BaseException) -> str:
    if isinstance(error, RefoldError):
        return error.code
    return "exception" if isinstance(error, Exception) else "interrupted"


def _code(received: Received | None, answer: Answer, how: Ending, error: BaseException | None) -> Code | None:
    """Why an exchange gave no answer that counts; None for one that did."""
    if error is not None:
        names = {kind.__name__ for kind in type(error).__mro__}
        if "TimeoutException" in names or isinstance(error, TimeoutError):
            return "timeout"
        if "TransportError" in names or isinstance(error, OSError):
            return "connection"
        return "other" if isinstance(error, Exception) else "aborted"
    if answer.error is not None or (received is not None and received.status >= 400):
        return "provider_error"
    if how == "whole":
        return "incomplete" if answer.ended is False else None
    # Clients close a stream when they have seen its end, without waiting for that of the body.
    return None if answer.ended else "aborted"


def _model(sent: Sent) -> tuple[str, str | None]:
    """The model that a request names, and the same as its view shows it; `unknown` is nobody's name."""
    name = text_of(dict_of(sent.json.value).get("model")) if sent.json is not None else ""
    return (name, name) if name else ("unknown", None)


def _last_words(sent: Sent) -> str:
    """The text that a request ends with, for its summary."""
    body = dict_of(None if sent.json is None else sent.json.value)
    said = next((body[name] for name in ("messages", "input", "prompt") if name in body), None)
    last = said[-1] if isinstance(said, list) and said else said
    while isinstance(last, dict | list) and last:
        last = last[-1] if isinstance(last, list) else last.get("content", last.get("text", last.get("output")))
    return last if isinstance(last, str) else f"{sent.method} {sent.path}"
