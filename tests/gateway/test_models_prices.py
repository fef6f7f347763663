"""What usage costs: exact, once for each token, and None where nobody knows."""

from __future__ import annotations

from typing import Any

import pytest

from refold.events.catalog.inference import Usage
from refold.gateway.models import ModelRequest
from refold.gateway.prices import UNSAID_COMPLETION, FixedPrices, NoPrices, Rates, amount_text, estimate
from refold.gateway.usage import openai_usage

TABLE = {
    "m": Rates("2.50", "10", cached="1.25", cache_write="3.125"),
    ("p", "m"): Rates("1", "1"),
    "free": Rates("0", "0"),
}


@pytest.mark.parametrize(
    ("provider", "model", "usage", "amount"),
    [
        ("q", "m", Usage(prompt=1_000_000), "2.5"),
        ("q", "m", Usage(completion=1), "0.00001"),
        # Case 37: what came from the cache is part of the prompt, and paid once, at its own rate.
        ("q", "m", Usage(prompt=1000, cached=600, completion=10), "0.00185"),
        ("q", "m", Usage(prompt=1000, cached=600, cache_write=400), "0.002"),
        ("q", "m", Usage(prompt=100, cached=600), "0.00075"),
        ("p", "m", Usage(prompt=1000, cached=600, completion=10), "0.00101"),
        ("q", "m", Usage(prompt=2**53, completion=2**53), "112589990684.2624"),
        ("q", "free", Usage(prompt=5), "0"),
    ],
)
def test_usage_is_priced_to_the_last_digit(provider: str, model: str, usage: Usage, amount: str) -> None:
    price = FixedPrices(TABLE).price(provider, model, usage, 0)
    assert price is not None
    assert (amount_text(price.amount), price.currency) == (amount, "USD")


def test_no_price_is_known_for_what_the_table_lacks() -> None:
    assert FixedPrices(TABLE).price("q", "M", Usage(prompt=1), 0) is None
    assert FixedPrices({("p", "m"): Rates("1", "1")}).price("q", "m", Usage(prompt=1), 0) is None
    assert NoPrices().price("p", "m", Usage(prompt=1), 0) is None


def test_another_price_is_another_version() -> None:
    versions = {
        FixedPrices(TABLE).version,
        FixedPrices(dict(reversed(TABLE.items()))).version,
        FixedPrices({**TABLE, "free": Rates("0", "0.1")}).version,
        FixedPrices(TABLE, currency="EUR").version,
        FixedPrices(TABLE, version="2026-11").version,
    }
    assert len(versions) == 4


def test_a_price_that_is_a_float_is_refused() -> None:
    with pytest.raises(TypeError, match=r"'0\.1'"):
        FixedPrices({"m": Rates("1", 0.1)})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("raw", "usage"),
    [
        (
            {"prompt_tokens": 1000, "completion_tokens": 7, "prompt_tokens_details": {"cached_tokens": 600}},
            Usage(prompt=1000, completion=7, cached=600),
        ),
        ({"prompt_tokens": 1, "completion_tokens_details": {"reasoning_tokens": 5}}, Usage(prompt=1, reasoning=5)),
        ({"prompt_tokens": -1, "completion_tokens": 1.5, "prompt_tokens_details": []}, Usage()),
        ({"prompt_tokens": True, "completion_tokens": 10**30, "prompt_tokens_details": None}, Usage()),
    ],
)
def test_case_37_usage_is_normalised_once(raw: dict[str, Any], usage: Usage) -> None:
    assert openai_usage(raw) == usage


@pytest.mark.parametrize(
    ("settings", "completion"),
    [
        ({"max_tokens": 10}, 10),
        ({"max_completion_tokens": 20, "max_tokens": 10}, 20),
        ({"max_tokens": None}, UNSAID_COMPLETION),
    ],
)
def test_a_reservation_is_the_prompt_and_the_longest_answer(settings: dict[str, Any], completion: int) -> None:
    request = ModelRequest(model="m", messages=[{"role": "user", "content": "é" * 3000}], settings=settings)
    found = estimate(request)
    assert found.completion == completion
    assert 2000 <= found.prompt < 2100
    assert estimate(request, 5).completion == 5
