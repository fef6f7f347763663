"""Two tenants with the same names, under sequences of operations that hypothesis makes up and shrinks."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from refold.ledger.conformance.isolation import VERBS, Step, see_only_themselves
from tests.ledger.places import SqlitePlace

STEPS = st.lists(st.builds(Step, st.integers(0, 2), st.sampled_from(VERBS), st.integers(0, 1)), min_size=1, max_size=25)


@settings(max_examples=25, deadline=None, derandomize=True)
@given(STEPS)
def test_no_operation_in_one_scope_changes_what_another_reads(steps: list[Step]) -> None:
    with tempfile.TemporaryDirectory() as folder:

        async def live() -> None:
            ledger = await SqlitePlace(Path(folder)).open()
            try:
                await see_only_themselves(ledger, steps)
            finally:
                await ledger.close()

        asyncio.run(live())
