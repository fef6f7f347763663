"""What an attempt may cost, and what it did: reservations before the send, one cost entry for each attempt after it."""

from __future__ import annotations

from decimal import Decimal
from typing import NamedTuple, Protocol

from refold.clock import Clock
from refold.events.catalog.inference import CostRecorded, Usage
from refold.gateway.ask import Ask
from refold.gateway.model_errors import InferenceFailed
from refold.gateway.models import Completion
from refold.gateway.prices import Price, PriceTable, amount_text, estimate, tokens_of
from refold.gateway.streaming import Gathered, written
from refold.ids import Ids
from refold.ledger.drafts import Draft


class Spending(NamedTuple):
    """Tokens, and money where a price is known."""

    tokens: int
    amount: Decimal | None = None
    currency: str | None = None


_NOTHING = Spending(0)
"""What this process has reserved of an attempt that another one made."""


class Budget(Protocol):
    """What a run may spend. A reservation that is never settled counts as spent."""

    def reserve(self, most: Spending) -> None:
        """Puts the most that an attempt is expected to use aside; raises when that is not there."""
        ...

    def settle(self, reserved: Spending, spent: Spending) -> None:
        """Replaces a reservation by what was used."""
        ...


class Used(NamedTuple):
    """What an attempt used; `estimated` when nobody counted."""

    usage: Usage
    estimated: bool = False


class Meter:
    """Reserves and settles the attempts of one run, and writes their cost entries."""

    def __init__(self, prices: PriceTable, clock: Clock, ids: Ids, budget: Budget) -> None:
        self._prices = prices
        self._clock = clock
        self._ids = ids
        self._budget = budget

    def reserve(self, ask: Ask, provider: str) -> Spending:
        """Reserves the most that an attempt is expected to use. Raises what the budget raises."""
        usage = estimate(ask.request)
        most = _spending(usage, self._price(ask, provider, usage))
        self._budget.reserve(most)
        return most

    def settle(
        self, ask: Ask, attempt: int, provider: str, reserved: Spending, used: Used, latency_us: int, sent: bool
    ) -> Draft:
        """The cost entry of an attempt that ended."""
        price = self._price(ask, provider, used.usage)
        self._budget.settle(reserved, _spending(used.usage, price))
        return self._entry(ask, attempt, provider, used, price, latency_us, requests=1 if sent else 0)

    def lost(self, ask: Ask, attempt: int, provider: str) -> Draft:
        """The cost entry of an attempt whose process died: the most that it is expected to have used, and spent."""
        used = Used(estimate(ask.request), estimated=True)
        price = self._price(ask, provider, used.usage)
        self._budget.settle(_NOTHING, _spending(used.usage, price))
        return self._entry(ask, attempt, provider, used, price, None)

    def never_sent(self, ask: Ask, attempt: int, provider: str) -> Draft:
        """The cost entry of an attempt that nobody wanted before it began."""
        return self._entry(ask, attempt, provider, Used(Usage()), self._price(ask, provider, Usage()), None, requests=0)

    def _price(self, ask: Ask, provider: str, usage: Usage) -> Price | None:
        return self._prices.price(provider, ask.request.model, usage, self._clock.now())

    def _entry(
        self,
        ask: Ask,
        attempt: int,
        provider: str,
        used: Used,
        price: Price | None,
        latency_us: int | None,
        requests: int = 1,
    ) -> Draft:
        facts = CostRecorded(
            self._ids.new("cost"),
            f"{ask.step_id}#{attempt}",
            ask.step_id,
            currency=None if price is None else price.currency,
            amount=None if price is None else amount_text(price.amount),
            estimated=used.estimated,
            pricing=None if price is None else price.version,
            provider=provider,
            model=ask.request.model,
            usage=used.usage,
            latency_us=latency_us,
            requests=requests,
        )
        return Draft(facts, site=ask.site)


def used_by(ask: Ask, ended: Completion | InferenceFailed, gathered: Gathered) -> Used:
    """What an attempt used. The provider's own count goes first; what it refused cost nothing; the rest is estimated:
    what was sent, and what came - or could have come, when nobody saw how far the answer was.
    """
    if ended.usage is not None:
        return Used(ended.usage)
    if isinstance(ended, Completion):
        return Used(estimate(ask.request, tokens_of(written(ended.message))), estimated=True)
    if not ended.sent or (ended.status is not None and ended.status >= 300):
        return Used(Usage())
    came = None if ask.stream is None else tokens_of(gathered.written())
    return Used(estimate(ask.request, came), estimated=True)


def _spending(usage: Usage, price: Price | None) -> Spending:
    tokens = usage.prompt + usage.completion
    return Spending(tokens) if price is None else Spending(tokens, price.amount, price.currency)
