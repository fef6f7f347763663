"""What a metered call costs: exact decimals, and None where no price is known - never zero for that."""

from __future__ import annotations

import json
from collections.abc import Mapping
from decimal import Context, Decimal, Inexact, InvalidOperation, Overflow
from hashlib import sha256
from typing import Any, NamedTuple, Protocol

from refold.events.catalog.inference import Usage
from refold.gateway.models import ModelRequest

_PER = Decimal(1_000_000)
# Tokens are below 2^53 and prices have a few digits: nothing is ever rounded, and if it were, it would be an error.
_EXACT = Context(prec=100, traps=[InvalidOperation, Overflow, Inexact])

UNSAID_COMPLETION = 4096
"""Tokens that an answer is expected to have at most when the request does not limit it."""
_BYTES_A_TOKEN = 3
_TOKENS_A_MESSAGE = 8


class Price(NamedTuple):
    """An amount in a currency's unit, and the version of the table that it comes from."""

    amount: Decimal
    currency: str
    version: str


class PriceTable(Protocol):
    """Where prices come from."""

    def price(self, provider: str, model: str, usage: Usage, at: int) -> Price | None:
        """What this usage cost at a time (microseconds UTC), or None when no price is known."""
        ...


class Rates(NamedTuple):
    """Prices of a million tokens, as decimal strings or Decimals. Without a rate of their own, tokens read from or
    written to a cache cost what other input does.
    """

    input: Decimal | str
    output: Decimal | str
    cached: Decimal | str | None = None
    cache_write: Decimal | str | None = None


class FixedPrices:
    """Prices that the operator wrote down: `{"model": Rates(...)}` or `{("provider", "model"): Rates(...)}`; a
    provider's own rate goes first.

    The version is a digest of the table unless one is given, so that a changed price is another version. Raises
    TypeError for a rate that is a float: it is not the number that was written.
    """

    def __init__(
        self, rates: Mapping[str | tuple[str, str], Rates], *, currency: str = "USD", version: str | None = None
    ) -> None:
        self._rates = {key: _decimals(key, each) for key, each in rates.items()}
        self._currency = currency
        self.version = version or _digest(self._rates, currency)

    def price(self, provider: str, model: str, usage: Usage, at: int) -> Price | None:
        rates = self._rates.get((provider, model)) or self._rates.get(model)
        if rates is None:
            return None
        fresh = max(0, usage.prompt - usage.cached - usage.cache_write)
        counted = (
            (fresh, rates[0]),
            (usage.completion, rates[1]),
            (usage.cached, rates[2]),
            (usage.cache_write, rates[3]),
        )
        total = Decimal(0)
        for tokens, rate in counted:
            total = _EXACT.add(total, _EXACT.multiply(Decimal(tokens), rate))
        return Price(_EXACT.divide(total, _PER), self._currency, self.version)


class NoPrices:
    """Knows no price, so that every cost entry is unpriced."""

    def price(self, provider: str, model: str, usage: Usage, at: int) -> Price | None:
        return None


def amount_text(amount: Decimal) -> str:
    """An amount as facts hold it: plain decimal digits, none of them idle."""
    return format(amount.normalize(_EXACT), "f")


def estimate(request: ModelRequest, max_tokens: int | None = None) -> Usage:
    """The most that a request is expected to use: three bytes a token of what is sent (English has about four, code and
    Chinese three), and as many tokens of an answer as it may have.
    """
    sent = len(json.dumps([request.messages, request.tools], ensure_ascii=False).encode("utf-8", "replace"))
    prompt = -(-sent // _BYTES_A_TOKEN) + _TOKENS_A_MESSAGE * len(request.messages)
    return Usage(prompt=prompt, completion=max_completion(request) if max_tokens is None else max_tokens)


def max_completion(request: ModelRequest) -> int:
    """How many tokens the answer may have, as the request's settings say."""
    for name in ("max_completion_tokens", "max_tokens"):
        limit = request.settings.get(name)
        if type(limit) is int and limit > 0:
            return limit
    return UNSAID_COMPLETION


def tokens_of(text: str) -> int:
    """How many tokens a text is thought to have."""
    return -(-len(text.encode("utf-8", "replace")) // _BYTES_A_TOKEN)


def _decimals(key: Any, rates: Rates) -> tuple[Decimal, Decimal, Decimal, Decimal]:
    asked = (rates.input, rates.output, rates.cached, rates.cache_write)
    for rate in asked:
        if isinstance(rate, float):
            raise TypeError(f"the price {rate!r} of {key!r} is a float: write it as a string, such as {str(rate)!r}")
    input_, output, cached, written = (None if rate is None else Decimal(rate) for rate in asked)
    assert input_ is not None
    assert output is not None
    return input_, output, input_ if cached is None else cached, input_ if written is None else written


def _digest(rates: Mapping[Any, tuple[Decimal, ...]], currency: str) -> str:
    lines = sorted(f"{key!r} {' '.join(str(rate) for rate in each)}" for key, each in rates.items())
    return "fixed-" + sha256("\n".join([currency, *lines]).encode()).hexdigest()[:12]
