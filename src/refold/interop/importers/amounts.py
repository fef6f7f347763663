"""Money and tokens out of a file: from its own digits, and normalised once."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from refold.events.catalog.inference import Usage
from refold.gateway.usage import tokens

_WIDEST = 60
"""Decimal places, and digits before the point, of an amount that is believed."""


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
    fresh, completion = tokens(raw, "input"), tokens(raw, "output")
    read, written = tokens(raw, "cacheRead"), tokens(raw, "cacheWrite")
    included = (read or written) and tokens(raw, "totalTokens") == fresh + completion
    prompt = fresh if included else fresh + read + written
    return Usage(prompt=prompt, completion=completion, cached=read, cache_write=written)
