"""Tokens as providers count them, made one thing: `prompt` always includes what a cache gave or took."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from refold.events.catalog.inference import Usage

_MOST_TOKENS = 2**53


def openai_usage(raw: Mapping[str, Any]) -> Usage:
    """Usage as OpenAI's chat API writes it: `prompt_tokens` includes what came from the cache."""
    prompt_details, completion_details = raw.get("prompt_tokens_details"), raw.get("completion_tokens_details")
    return Usage(
        prompt=tokens(raw, "prompt_tokens"),
        completion=tokens(raw, "completion_tokens"),
        cached=tokens(prompt_details, "cached_tokens"),
        reasoning=tokens(completion_details, "reasoning_tokens"),
    )


def tokens(raw: Any, name: str) -> int:
    """A count of tokens out of a provider's usage; 0 for what is none."""
    value = raw.get(name) if isinstance(raw, Mapping) else None
    return value if type(value) is int and 0 <= value < _MOST_TOKENS else 0
