"""Runs that ask models, for tests: a real ledger, a scripted or a real provider, and what stands on record after."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

from refold.events.catalog.run import RunCreated, RunStarted
from refold.events.envelope import Event
from refold.gateway.answers import content_of, outcome
from refold.gateway.ask import Ask
from refold.gateway.inference import Inference
from refold.gateway.metering import Spending
from refold.gateway.models import Completion, Provider, request_for
from refold.gateway.prices import FixedPrices, PriceTable, Rates
from refold.gateway.retry import Retry
from refold.ledger.drafts import Draft
from refold.ledger.ledger import Ledger, ScopedLedger
from refold.ledger.lookups import each_event
from refold.ledger.reading import exact_content
from refold.ledger.writer import StreamWriter
from tests.ledger.building import open_simulated

T = TypeVar("T")

PRICES = FixedPrices({"scripted": Rates("2", "8", "0.5")}, version="v1")
AT_ONCE = Retry(attempts=3, first=0)


class Purse:
    """A budget that writes down what is asked of it, and gives no more than `tokens`."""

    def __init__(self, tokens: int = 10**9) -> None:
        self.left = tokens
        self.reserved: list[Spending] = []
        self.settled: list[tuple[Spending, Spending]] = []

    def reserve(self, most: Spending) -> None:
        if most.tokens > self.left:
            raise BudgetGone(f"{most.tokens} tokens are wanted and {self.left} are left")
        self.left -= most.tokens
        self.reserved.append(most)

    def settle(self, reserved: Spending, spent: Spending) -> None:
        self.left += reserved.tokens - spent.tokens
        self.settled.append((reserved, spent))


class BudgetGone(Exception):
    pass


class Seen:
    """A front end that remembers."""

    def __init__(self) -> None:
        self.told: list[tuple[Any, ...]] = []

    def delta(self, step_id: str, attempt: int, part: Any) -> None:
        self.told.append(("delta", attempt, part.text))

    def discarded(self, step_id: str, attempt: int) -> None:
        self.told.append(("discarded", attempt))


async def begin(scope: ScopedLedger) -> StreamWriter:
    """A run that has started."""
    made = await scope.create(Draft(RunCreated("support", "d", "root")))
    assert isinstance(made, StreamWriter)
    made.append(Draft(RunStarted()))
    return made


class Desk:
    """One run that asks one provider, as a runtime would: it appends what `perform` returns and decodes the outcome."""

    def __init__(
        self,
        ledger: Ledger,
        writer: StreamWriter,
        provider: Provider,
        *,
        prices: PriceTable = PRICES,
        purse: Purse | None = None,
        watcher: Any = None,
    ) -> None:
        self.ledger, self.scope, self.writer, self.provider = ledger, ledger.scope(), writer, provider
        self.purse = purse or Purse()
        self.inference = Inference(
            writer, {"main": provider}, prices, ledger.clock, ledger.ids, self.purse, watcher=watcher
        )
        self.parts: list[Event] = []

    def ask(self, text: str = "hello", *, step: str = "st_1", messages: Any = None, **options: Any) -> Ask:
        """A question, tried again at once."""
        settings, tools = options.pop("settings", None), options.pop("tools", ())
        messages = messages or [{"role": "user", "content": text}]
        request = request_for(self.provider, messages, settings, tools)
        options.setdefault("retry", AT_ONCE)
        return Ask(step_id=step, site=f"main/infer#{step}", request=request, provider="main", **options)

    def stream(self, draft: Draft) -> None:
        """Appends a part, as the executor does when it delivers it."""
        self.parts.append(self.writer.append(draft))

    async def answer(self, ask: Ask) -> Completion:
        """Performs and delivers; raises what code would get."""
        drafts = await self.inference.perform(ask)
        content = content_of(drafts[0])
        event, *_ = [self.writer.append(draft) for draft in drafts]
        return outcome(event, content)

    async def record(self, *types: str) -> list[Event]:
        """The events on record, of these types."""
        await self.writer.barrier()
        async with self.scope.reader() as reader:
            events = [event async for event in each_event(reader, self.writer.stream)]
        return [event for event in events if not types or event.type in types]

    async def exact(self, event: Event) -> dict[str, Any]:
        """What the record holds of an event."""
        async with self.scope.reader() as reader:
            return await exact_content(reader, self.writer.stream, event)

    async def replayed(self) -> Completion:
        """What code gets from the record alone; raises likewise."""
        (event,) = [
            each
            for each in await self.record("inference.completed", "inference.failed")
            if not getattr(each.facts, "retrying", False)
        ]
        return outcome(event, await self.exact(event))


def at_desk(folder: Path, provider: Provider, work: Callable[[Desk], Awaitable[T]], **options: Any) -> T:
    """What `work` returns at the desk of a new run."""

    async def run() -> T:
        async with await open_simulated(folder / "ledger.db") as ledger:
            writer = await begin(ledger.scope())
            async with writer:
                try:
                    return await work(Desk(ledger, writer, provider, **options))
                finally:
                    await provider.aclose()

    return asyncio.run(run())


def amounts(events: list[Event]) -> list[Any]:
    """What cost entries say: amount, whether it is estimated, and prompt and completion tokens."""
    facts = [event.facts for event in events if event.type == "cost.recorded"]
    return [(each.amount, each.estimated, each.usage.prompt, each.usage.completion) for each in facts]


def reply(text: str, **usage: int) -> dict[str, Any]:
    """The body of a chat answer."""
    message = {"role": "assistant", "content": text}
    body: dict[str, Any] = {"id": "r1", "model": "m-1", "choices": [{"index": 0, "message": message}]}
    body["choices"][0]["finish_reason"] = "stop"
    if usage:
        body["usage"] = usage
    return body
