"""Usage and money of a run: exact, by currency, and never zero for what has no price."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold.events.catalog.inference import Usage
from refold.ledger.ledger import Ledger
from refold.projections.rows import CostRow
from refold.replay.evidence import evidence
from refold.replay.money import Charges
from tests.replay.support import begin, with_ledger


def _entry(amount: str | None, currency: str | None = "USD") -> CostRow:
    return CostRow("cost_1", "run_1", 1, None, "ref", 0, currency, amount, False, None, "tokens", None, None, None)


def test_a_trace_sums_usage_and_charges_of_the_run(tmp_path: Path) -> None:
    async def work(ledger: Ledger) -> None:
        scope = ledger.scope()
        teller = await begin(scope)
        for amount in ("0.1", "0.2", "42.595907499999999555"):
            teller.inference(amount, "USD", Usage(prompt=100, completion=7))
        teller.inference("0.30", "EUR")
        teller.inference(None, None)
        await teller.writer.barrier()
        bundle = await evidence(scope, teller.run_id)
        spec = bundle["trace_spec"]
        assert spec["charge_summary"] == {"EUR": "0.30", "USD": "42.895907499999999555"}
        assert spec["usage_summary"] == {
            "tokens_prompt": 320,
            "tokens_completion": 31,
            "embedding_count": 5,
            "rerank_count": 0,
            "ms_total": 7.5,
            "storage_bytes": 15,
            "request_count": 5,
            "vector_count": 10,
        }
        assert spec["unpriced_count"] == 1
        assert [entry["amount"] for entry in spec["entries"]].count(None) == 1
        item = next(each for each in bundle["evidence_items"] if each["key"] == "cost_attribution")
        assert item["status"] == "warning"
        assert item["missing"] == [bundle["costs"][-1]["cost_id"]]
        assert "0.30 EUR, 42.895907499999999555 USD" in item["summary"]
        assert [len(spec[name]) for name in ("steps", "artifacts", "entries")] == [5, 0, 5]

    with_ledger(tmp_path, work)


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["USD", "EUR", "JPY"]),
            st.decimals(allow_nan=False, allow_infinity=False, places=20, min_value=-(10**12), max_value=10**12),
        )
    )
)
def test_sums_are_exact_in_any_order_and_keep_currencies_apart(entries: list[tuple[str, Decimal]]) -> None:
    forward, backward = Charges(), Charges()
    for currency, amount in entries:
        forward.add(_entry(str(amount), currency))
    for currency, amount in reversed(entries):
        backward.add(_entry(str(amount), currency))
    sums = forward.charge_summary()
    assert sums == backward.charge_summary()
    for currency in {each for each, _ in entries}:
        assert Fraction(sums[currency]) == sum(Fraction(amount) for each, amount in entries if each == currency)
    assert set(sums) == {each for each, _ in entries}


@pytest.mark.parametrize("amount", ["NaN", "Infinity", "1E+999999999", "1E-999999999", "a lot", ""])
def test_an_amount_that_is_none_is_counted_as_unpriced_and_spoils_no_sum(amount: str) -> None:
    charges = Charges()
    charges.add(_entry("0.10"))
    charges.add(_entry(amount))
    charges.add(_entry("1", currency=None))
    assert charges.charge_summary() == {"USD": "0.10"}
    assert charges.unpriced == 2
