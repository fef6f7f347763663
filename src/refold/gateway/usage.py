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


def responses_usage(raw: Mapping[str, Any]) -> Usage:
    """Usage as OpenAI's Responses API writes it: `input_tokens` includes what came from the cache."""
    input_details, output_details = raw.get("input_tokens_details"), raw.get("output_tokens_details")
    return Usage(
        prompt=tokens(raw, "input_tokens"),
        completion=tokens(raw, "output_tokens"),
        cached=tokens(input_details, "cached_tokens"),
        reasoning=tokens(output_details, "reasoning_tokens"),
    )


def messages_usage(raw: Mapping[str, Any]) -> Usage:
    """Usage as Anthropic's Messages API writes it: what its cache gave and took is not in `input_tokens`."""
    cached, written = tokens(raw, "cache_read_input_tokens"), tokens(raw, "cache_creation_input_tokens")
    return Usage(
        prompt=tokens(raw, "input_tokens") + cached + written,
        completion=tokens(raw, "output_tokens"),
        cached=cached,
        cache_write=written,
    )


def usage_of(raw: Mapping[str, Any]) -> Usage:
    """Usage of whichever of these, told apart by its names."""
    if "prompt_tokens" in raw or "completion_tokens" in raw:
        return openai_usage(raw)
    if "cache_read_input_tokens" in raw or "cache_creation_input_tokens" in raw:
        return messages_usage(raw)
    return responses_usage(raw)  # Without a cache the two say the same.


def tokens(raw: Any, name: str) -> int:
    """A count of tokens out of a provider's usage; 0 for what is none."""
    value = raw.get(name) if isinstance(raw, Mapping) else None
    return value if type(value) is int and 0 <= value < _MOST_TOKENS else 0
