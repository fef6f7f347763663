"""What a run may spend. Enforced before the event that would spend it."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import msgspec

from refold.gateway.metering import Spending
from refold.ledger.port import Reader
from refold.projections.rows import CostRow, StepRow
from refold.runtime.errors import BudgetExceeded


class Budget(msgspec.Struct, frozen=True, omit_defaults=True):
    """Limits of one run; None: no limit. `money` is in one currency, `seconds` counts from the run's start.

    What crashed attempts had reserved counts as spent, so that a crash loop cannot spend without end.
    """

    steps: int | None = None
    calls: int | None = None
    tokens: int | None = None
    money: Decimal | None = None
    currency: str = "USD"
    seconds: float | None = None


class Spent:
    """What a run has spent and reserved so far, counted from its record."""

    def __init__(self, budget: Budget, started_us: int = 0) -> None:
        self.budget = budget
        self._started_us = started_us
        self.steps = self.calls = self.tokens = 0
        self.money = Decimal(0)

    def time(self, now_us: int) -> None:
        """Raises BudgetExceeded when the run's time is used up."""
        self._check("seconds", self.budget.seconds, (now_us - self._started_us) / 1_000_000, 0)

    def step(self) -> None:
        """Raises BudgetExceeded when one more step would be over."""
        self._check("steps", self.budget.steps, self.steps, 1)
        self.steps += 1

    def call(self) -> None:
        """Raises BudgetExceeded when one more tool call would be over."""
        self._check("calls", self.budget.calls, self.calls, 1)
        self.calls += 1

    def reserve(self, most: Spending) -> None:
        """Puts the most that an inference may use aside. Raises BudgetExceeded when that is not there."""
        self._check("tokens", self.budget.tokens, self.tokens, most.tokens)
        amount = most.amount if most.amount is not None and most.currency == self.budget.currency else Decimal(0)
        self._check(f"{self.budget.currency}", self.budget.money, self.money, amount)
        self.tokens += most.tokens
        self.money += amount

    def settle(self, reserved: Spending, spent: Spending) -> None:
        """Replaces a reservation by what was used."""
        self.tokens += spent.tokens - reserved.tokens
        if self.budget.currency in (reserved.currency, spent.currency):
            self.money += (spent.amount or Decimal(0)) - (reserved.amount or Decimal(0))

    def _check(self, what: str, limit: Any, used: Any, more: Any) -> None:
        if limit is not None and used + more > limit:
            raise BudgetExceeded(
                f"The run's budget of {limit} {what} is used up ({used} so far, {more} more wanted).",
                budget=what,
                limit=str(limit),
                used=str(used),
            )


async def spent_so_far(reader: Reader, run_id: str, budget: Budget, started_us: int) -> Spent:
    """What a run's record says it has spent: steps begun, calls sent, tokens and money with reservations that nothing
    settled.
    """
    spent = Spent(budget, started_us)
    if budget == Budget():
        return spent
    of_run = {"run_id": run_id}
    async for step in reader.each(StepRow, of_run):
        spent.steps += 1
        spent.calls += step.type == "tool"
    async for cost in reader.each(CostRow, of_run):
        spent.tokens += cost.tokens_total
        if cost.amount is not None and cost.currency == budget.currency:
            spent.money += Decimal(cost.amount)
    return spent
