"""Asking models on behalf of one run: at least once, each attempt an event with its own cost entry.

What the next process finds, wherever this one is killed: before `inference.requested` is durable, nothing - and nothing
has left; after it, a request that nothing follows, which is `lost`, with what it may have cost; between two tries, the
failure of the first, and the count goes on.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from contextlib import aclosing
from typing import Any, Protocol

import msgspec

from refold.clock import Clock
from refold.events import values
from refold.events.catalog.inference import InferenceCompleted, InferenceLost, InferencePart, InferenceRequested
from refold.events.catalog.inference import InferenceFailed as FailedFacts
from refold.events.content import PartChain
from refold.events.values import NotRecordable
from refold.gateway.answers import AnswerDraft, completed_content, failed_content, part_content
from refold.gateway.ask import Ask
from refold.gateway.metering import Budget, Meter, used_by
from refold.gateway.model_errors import (
    AnswerIncomplete,
    InferenceAborted,
    InferenceFailed,
    InferenceTimeout,
    ProviderError,
)
from refold.gateway.models import Completion, Part, Provider, fingerprint, shown
from refold.gateway.prices import PriceTable, amount_text
from refold.gateway.streaming import Coalescer, Gathered
from refold.ids import Ids
from refold.ledger.drafts import Draft
from refold.ledger.writer import StreamWriter

__all__ = ["Ask", "Inference", "Watcher"]

_log = logging.getLogger("refold.gateway.inference")


class Watcher(Protocol):
    """A front end. What it is shown is provisional: an attempt that fails or is lost was in vain."""

    def delta(self, step_id: str, attempt: int, part: Part) -> None: ...

    def discarded(self, step_id: str, attempt: int) -> None: ...


class Inference:
    """Asks models for one run, on the host's loop."""

    def __init__(
        self,
        writer: StreamWriter,
        providers: Mapping[str, Provider],
        prices: PriceTable,
        clock: Clock,
        ids: Ids,
        budget: Budget,
        watcher: Watcher | None = None,
    ) -> None:
        self._writer = writer
        self._providers = providers
        self._clock = clock
        self._meter = Meter(prices, clock, ids, budget)
        self._watcher = watcher

    async def perform(self, ask: Ask) -> list[Draft]:
        """Asks until there is an answer or no further try, and returns the drafts of how it ended, the outcome first.

        Requests, and failures that are followed by another try, are appended on the way. Raises what the budget
        raises. When the caller is cancelled nothing more is recorded and the attempt is lost; whoever does not want
        the answer any more sets `ask.cut` and gets the drafts that say so.
        """
        attempt, failures = ask.attempt, ask.failures
        while True:
            ended, cost, duration_us = await self._attempt(ask, attempt)
            if isinstance(ended, Completion):
                try:
                    return [await self._completed(ask, attempt, ended, duration_us), cost]
                except NotRecordable as error:
                    ended = ProviderError(f"The answer cannot be recorded: {error.message}", usage=ended.usage)
            failures += 1
            pause = ask.retry.pause(failures, ended.retry_after) if ended.retryable else None
            failed = await self._failed(ask, attempt, ended, duration_us, retrying=pause is not None)
            if pause is None:
                return [failed, cost]
            self._discarded(ask, attempt)
            # Both at once, so that no death leaves an attempt on record without its cost.
            self._writer.append(failed)
            self._writer.append(cost)
            if pause:
                # The failure of this attempt is known now; without a pause the next request's commit has it.
                await self._writer.barrier()
            attempt += 1
            if await _cut_within(ask, pause):
                unwanted = await self._failed(ask, attempt, _aborted(sent=False), None)
                return [unwanted, self._meter.never_sent(ask, attempt, self._provider(ask).name)]

    def lost(self, ask: Ask, attempt: int) -> list[Draft]:
        """The drafts for an attempt whose process died: it is lost, and its cost what it may have used at most."""
        self._discarded(ask, attempt)
        lost = Draft(InferenceLost(ask.step_id, attempt), site=ask.site)
        return [lost, self._meter.lost(ask, attempt, self._provider(ask).name)]

    def _provider(self, ask: Ask) -> Provider:
        return self._providers[ask.provider]

    async def _attempt(self, ask: Ask, attempt: int) -> tuple[Completion | InferenceFailed, Draft, int]:
        """One attempt: how it ended, its cost entry, and how long it took in microseconds."""
        provider = self._provider(ask)
        requested = await self._requested(ask, attempt, provider)
        reserved = self._meter.reserve(ask, provider.name)
        requested.facts = msgspec.structs.replace(
            requested.facts,
            reserved_tokens=reserved.tokens,
            reserved_amount=None if reserved.amount is None else amount_text(reserved.amount),
            reserved_currency=reserved.currency,
        )
        self._writer.append(requested)
        await self._writer.barrier()
        gathered = Gathered()
        started = self._clock.monotonic()
        ended = await self._ended(ask, attempt, provider, gathered)
        duration_us = (self._clock.monotonic() - started) // 1000
        if isinstance(ended, InferenceFailed) and ended.answer_so_far is None:
            ended.answer_so_far = gathered.message()
        used = used_by(ask, ended, gathered)
        sent = isinstance(ended, Completion) or ended.sent
        return ended, self._meter.settle(ask, attempt, provider.name, reserved, used, duration_us, sent), duration_us

    async def _ended(
        self, ask: Ask, attempt: int, provider: Provider, gathered: Gathered
    ) -> Completion | InferenceFailed:
        """What came of asking, or that it was cut."""
        if ask.cut.is_set():
            return _aborted(sent=False)
        work = asyncio.create_task(self._answered(ask, attempt, provider, gathered))
        cut = asyncio.create_task(ask.cut.wait())
        try:
            await asyncio.wait({work, cut}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            finished = work.done()
            for task in (work, cut):
                task.cancel()
            # Before anything is said of the attempt its connection is closed and its last part given out.
            await asyncio.gather(work, cut, return_exceptions=True)
        return work.result() if finished else _aborted()

    async def _answered(
        self, ask: Ask, attempt: int, provider: Provider, gathered: Gathered
    ) -> Completion | InferenceFailed:
        try:
            async with asyncio.timeout(ask.timeout):
                if ask.stream is None:
                    return await provider.complete(ask.request, timeout=ask.timeout)
                return await self._streamed(ask, attempt, provider, gathered)
        except InferenceFailed as error:
            return error
        except TimeoutError:
            return InferenceTimeout(f"{provider.name} did not answer within {ask.timeout:g} s.", timeout=ask.timeout)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            if (task := asyncio.current_task()) is not None and task.cancelling():
                raise
            _log.warning("provider %s raised %s", provider.name, type(error).__name__)
            return InferenceFailed(f"{provider.name} raised {type(error).__name__}: {error}")

    async def _streamed(self, ask: Ask, attempt: int, provider: Provider, gathered: Gathered) -> Completion:
        parts = Coalescer(lambda part: self._give(ask, part), attempt)
        try:
            async with aclosing(provider.stream(ask.request, timeout=ask.timeout)) as items:
                async for item in items:
                    if isinstance(item, Completion):
                        parts.flush()
                        return item
                    gathered.add(item)
                    parts.add(item)
                    if self._watcher is not None:
                        self._watcher.delta(ask.step_id, attempt, item)
        finally:
            parts.stop()
        raise AnswerIncomplete(f"{provider.name} ended its stream without an answer.")

    def _give(self, ask: Ask, part: Part) -> None:
        if ask.stream is None or ask.cut.is_set():
            return
        facts = InferencePart(ask.step_id, part.index, part.attempt)
        ask.stream(Draft(facts, part_content(part), output=part.text or None, site=ask.site))

    def _discarded(self, ask: Ask, attempt: int) -> None:
        if self._watcher is not None:
            self._watcher.discarded(ask.step_id, attempt)

    async def _requested(self, ask: Ask, attempt: int, provider: Provider) -> Draft:
        request, writer = ask.request, self._writer
        messages, tools = PartChain(), PartChain()
        last: Any = None
        for message in request.messages:
            part = await writer.part(message)
            messages.add(part.number, part.leaf)
            last = part.shown
        for tool in request.tools:
            part = await writer.part(tool)
            tools.add(part.number, part.leaf)
        facts = InferenceRequested(
            ask.step_id,
            request.model,
            provider.name,
            attempt,
            fingerprint=fingerprint(writer.secret, request),
        )
        content: dict[str, Any] = {"messages": messages.as_list(), "settings": request.settings}
        if request.tools:
            content["tools"] = tools.as_list()
        return Draft(facts, content, input=None if last is None else shown(last) or None, site=ask.site)

    async def _completed(self, ask: Ask, attempt: int, answer: Completion, duration_us: int) -> Draft:
        """Raises NotRecordable."""
        facts = InferenceCompleted(ask.step_id, answer.finish, attempt, answer.usage, duration_us)
        ended = AnswerDraft(facts, completed_content(answer), site=ask.site)
        values.encode(ended.content)
        await self._put_message(ended, answer.message)
        return ended

    async def _failed(
        self, ask: Ask, attempt: int, error: InferenceFailed, duration_us: int | None, *, retrying: bool = False
    ) -> Draft:
        facts = FailedFacts(ask.step_id, error.error_code, attempt, error.usage, duration_us, retrying)
        ended = AnswerDraft(facts, failed_content(error), error=error.message, site=ask.site)
        if error.answer_so_far is not None:
            await self._put_message(ended, error.answer_so_far)
        return ended

    async def _put_message(self, draft: AnswerDraft, message: dict[str, Any]) -> None:
        """Puts a message into a draft as a part list of one, and what is shown of it into its view."""
        part = await self._writer.part(message)
        chain = PartChain()
        chain.add(part.number, part.leaf)
        draft.content = {"message": chain.as_list(), **(draft.content or {})}
        draft.message = values.encode(message)
        draft.output = shown(part.shown) or None


def _aborted(*, sent: bool = True) -> InferenceAborted:
    return InferenceAborted("The answer was not wanted any more.", sent=sent)


async def _cut_within(ask: Ask, seconds: float) -> bool:
    """Waits, and says at once when the answer is not wanted any more."""
    try:
        async with asyncio.timeout(seconds):
            await ask.cut.wait()
    except TimeoutError:
        return False
    return True
