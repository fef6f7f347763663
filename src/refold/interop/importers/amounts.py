"""Money and tokens out of a file: from its own digits, and normalised once."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from refold.events.catalog.inference import Usage

_WIDEST = 60
"""Decimal places, and digits before the point, of an amount that is believed."""
_MOST_TOKENS = 2**53


def amount(value: Any) -> str | None:
    """A decimal string of exactly the file's digits, None for what is no amount (absent, NaN, 1e999999).

    Takes what a parser made that keeps digits (Decimal, int), never a float.
    """
    if isinstance(value, int) and not isinstance(value, bool):
        value = Decimal(value)
    if not isinstance(value, Decimal) or not value.is_finite():
        return None
    exponent = value.as_tuple().exponent
    if not isinstance(exponent, int) or exponent < -_WIDEST or value.adjusted() > _WIDEST:
        return None
    return format(value, "f")


def pi_usage(raw: Mapping[str, Any]) -> Usage:
    """Usage as pi writes it: `input` without what came from the cache - unless the file's own total says otherwise."""
    fresh, completion = _tokens(raw, "input"), _tokens(raw, "output")
    read, written = _tokens(raw, "cacheRead"), _tokens(raw, "cacheWrite")
    included = (read or written) and _tokens(raw, "totalTokens") == fresh + completion
    prompt = fresh if included else fresh + read + written
    return Usage(prompt=prompt, completion=completion, cached=read, cache_write=written)


def openai_usage(raw: Mapping[str, Any]) -> Usage:
    """Usage as OpenAI's chat API writes it: `prompt_tokens` includes what came from the cache."""
    prompt_details, completion_details = raw.get("prompt_tokens_details"), raw.get("completion_tokens_details")
    return Usage(
        prompt=_tokens(raw, "prompt_tokens"),
        completion=_tokens(raw, "completion_tokens"),
        cached=_tokens(prompt_details, "cached_tokens"),
        reasoning=_tokens(completion_details, "reasoning_tokens"),
    )


def _tokens(raw: Any, name: str) -> int:
    value = raw.get(name) if isinstance(raw, Mapping) else None
    return value if type(value) is int and 0 <= value < _MOST_TOKENS else 0
