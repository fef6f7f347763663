"""Two tenants with the same keys and the same ids, and two workspaces of one: nothing of one is visible to another
through any function. Reading functions, importers, erasure and the command line here; the port's own are in the
conformance suite (`isolation`), and the statements themselves in `test_statements_name_the_tenant`.
"""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from refold.ledger.ledger import open_ledger
from refold.projections.rows import ToolCallRow
from tests.invariants.tenants import RUNS, SCOPES, VERBS, World, known_runs, marker, seen


async def _live(folder: Path, steps: list[tuple[int, str, int]]) -> None:
    world = World(folder)
    await world.open()
    try:
        for each in steps:
            run_ids = await known_runs(world)
            others = [index for index in range(len(SCOPES)) if index != each[0]]
            before = {index: repr(await seen(world.scope(index), run_ids)) for index in others}
            await world.apply(*each)
            for index in others:
                after = repr(await seen(world.scope(index), run_ids))
                assert after == before[index], f"{SCOPES[index]} noticed {each[1]} in {SCOPES[each[0]]}"
        run_ids = await known_runs(world)
        for index, scope in enumerate(SCOPES):
            text_ = repr(await seen(world.scope(index), run_ids))
            assert [other for other in SCOPES if other != scope and marker(other) in text_] == [], scope
    finally:
        await world.close()


STEPS = st.lists(
    st.tuples(st.integers(0, len(SCOPES) - 1), st.sampled_from(VERBS), st.integers(0, 1)), min_size=2, max_size=8
)


@settings(max_examples=20, deadline=None, derandomize=True)
@given(STEPS)
def test_whatever_one_scope_does_the_others_read_what_they_read_before(steps: list[tuple[int, str, int]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(_live(Path(folder), steps))


def test_scopes_that_do_the_same_have_the_same_ids_and_see_only_themselves(tmp_path: Path) -> None:
    """Everything there is, once in each scope, so that equal ids and keys meet in every table."""
    verbs = (
        "infer",
        "ask",
        "answer",
        "ask",
        "doubt",
        "keep",
        "ask",
        "keep",
        "say",
        "feedback",
        "post",
        "move",
        "import",
    )
    steps = [(index, verb, 0) for index in range(len(SCOPES)) for verb in (*verbs, "end")]
    asyncio.run(_live(tmp_path, [*steps, (1, "erase", 0)]))

    async def check() -> None:
        async with await open_ledger(tmp_path / "ledger.db") as ledger:
            calls = []
            for name in SCOPES:
                async with ledger.scope(name).reader() as reader:
                    calls.append({row.tool_call_id for row in await reader.rows(ToolCallRow, {"run_id": RUNS[0]})})
            assert calls[0] == calls[1] == calls[2] != set(), "the ids do meet"

    asyncio.run(check())
