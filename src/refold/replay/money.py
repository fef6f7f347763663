"""Sums of what was metered: usage as whole numbers, money as decimals, one sum a currency, exact to the last
digit.
"""

from __future__ import annotations

from decimal import Context, Decimal, Inexact, InvalidOperation, Overflow
from typing import Any

from refold.projections.rows import CostRow

_DIGITS = 1000
"""An amount with more digits than this before or behind the point is none: a sum with it would fill the
memory.
"""
# Wide enough that no sum of such amounts is ever rounded.
_EXACT = Context(prec=3 * _DIGITS, traps=[InvalidOperation, Overflow, Inexact])


def priced_at(currency: str | None, amount: str | None) -> tuple[str, Decimal] | None:
    """Currency and amount of a cost entry; None when it has no price, or none that can be added to another."""
    if amount is None or currency is None:
        return None
    try:
        value = Decimal(amount)
    except InvalidOperation:
        return None
    if not value.is_finite() or value.adjusted() > _DIGITS or -int(value.as_tuple().exponent) > _DIGITS:
        return None
    return currency, value


class Charges:
    """Adds up cost entries. Currencies are never added together, and an entry without a price is counted, not
    taken for zero.
    """

    def __init__(self) -> None:
        self._sums: dict[str, Decimal] = {}
        self._latency_us = 0
        self.unpriced = 0
        self.usage: dict[str, int | float] = {
            "tokens_prompt": 0,
            "tokens_completion": 0,
            "embedding_count": 0,
            "rerank_count": 0,
            "ms_total": 0.0,
            "storage_bytes": 0,
            "request_count": 0,
            "vector_count": 0,
        }

    def add(self, row: CostRow) -> None:
        usage = self.usage
        usage["tokens_prompt"] += row.tokens_prompt
        usage["tokens_completion"] += row.tokens_completion
        usage["embedding_count"] += row.embeddings
        usage["rerank_count"] += row.reranks
        usage["storage_bytes"] += row.storage_bytes
        usage["request_count"] += row.requests
        usage["vector_count"] += row.vectors
        if row.latency_ms is not None:
            self._latency_us += round(row.latency_ms * 1000)
            usage["ms_total"] = self._latency_us / 1000
        self.charge(row.currency, row.amount)

    def charge(self, currency: str | None, amount: str | None) -> None:
        """Adds only what an entry costs."""
        priced = priced_at(currency, amount)
        if priced is None:
            self.unpriced += 1
            return
        name, value = priced
        self._sums[name] = _EXACT.add(self._sums.get(name, Decimal(0)), value)

    def charge_summary(self) -> dict[str, str]:
        """Amounts as decimal strings by currency, in the currencies' order."""
        return {currency: format(self._sums[currency], "f") for currency in sorted(self._sums)}


def entry_json(row: CostRow) -> dict[str, Any]:
    """A cost entry as the trace shows it."""
    return {
        "cost_id": row.cost_id,
        "step_id": row.step_id,
        "provider": row.provider,
        "model": row.model,
        "tokens_prompt": row.tokens_prompt,
        "tokens_completion": row.tokens_completion,
        "tokens_cached": row.tokens_cached,
        "latency_ms": row.latency_ms,
        "currency": row.currency,
        "amount": row.amount,
        "estimated": row.estimated,
    }
