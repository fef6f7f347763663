"""The thirteen items of runs that workflows made: what is there passes, what no version of refold does yet fails."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from refold import App, erase_run, evidence, evidence_items
from refold.runtime.opened import Refold
from tests.replay.code_runs import app
from tests.replay.conftest import Made

Items = dict[str, dict[str, Any]]


async def items_of(rf: Refold, run_id: str, code: App | None = None) -> Items:
    async with rf.scope.reader() as reader:
        return {item["key"]: item for item in await evidence_items(reader, run_id, rf.ledger.files, code)}


@pytest.fixture(scope="module")
def items(made: Made) -> dict[str, Items]:
    async def all_of_them() -> dict[str, Items]:
        async with app.open(str(made[0] / "l.db"), recover=False) as rf:
            return {name: await items_of(rf, run_id, app) for name, run_id in made[1].items()}

    return asyncio.run(all_of_them())


def supported(item: dict[str, Any]) -> list[int]:
    return [kind["number"] for kind in item["kinds"] if kind["supported"]]


def test_what_ran_is_pinned_and_its_timeline_is_whole(items: dict[str, Items]) -> None:
    for each in items.values():
        assert each["subject_version"]["status"] == "pass"
        assert each["trace_timeline"]["status"] == "pass"
        assert each["secret_boundary"]["status"] == "pass"
        assert each["knowledge_citation"]["status"] == "not_applicable"
    assert items["failed"]["subject_version"]["summary"] == "workflow fails version 1."


def test_an_ended_run_is_ready_and_one_that_goes_on_says_what_it_lacks(items: dict[str, Items]) -> None:
    for name in ("succeeded", "streaming", "with children", "checkpointed", "without await", "failed", "canceled"):
        assert items[name]["replay_ready"]["status"] == "pass", items[name]["replay_ready"]
    for name in ("paused", "waiting"):
        assert items[name]["replay_ready"]["missing"] == ["end of the run"]
    doubt = items["in doubt"]
    assert doubt["tool_call"]["status"] == "fail"
    assert doubt["replay_ready"]["missing"] == [f"receipt of {doubt['tool_call']['references'][0]}", "end of the run"]
    assert "in doubt" in doubt["trace_timeline"]["summary"]


def test_the_code_of_every_run_can_be_replayed_and_a_reply_needs_a_receipt(items: dict[str, Items]) -> None:
    for name, each in items.items():
        receipt = [3] if name == "succeeded" else []
        assert supported(each["replay_ready"]) == sorted([1, 2, 5, 6, 7, *receipt])


def test_what_was_metered_asked_and_started_is_counted(items: dict[str, Items]) -> None:
    whole = items["succeeded"]
    assert whole["capability_binding"]["summary"].startswith("1 inference, 1 tool call, 0 child runs")
    assert whole["tool_call"]["status"] == "pass"
    assert (whole["cost_attribution"]["status"], len(whole["cost_attribution"]["missing"])) == ("warning", 1)
    assert items["with children"]["child_workflow"]["summary"] == "3 child runs, each with its own events."
    assert items["canceled"]["audit_record"]["status"] == "pass"


def test_no_call_has_a_policy_yet_and_that_is_said(items: dict[str, Items]) -> None:
    doubt = items["in doubt"]
    for key in ("permission_scope", "egress_policy", "audit_record"):
        assert (doubt[key]["status"], len(doubt[key]["missing"])) == ("fail", 1)


def test_without_its_code_a_run_is_not_replayed_and_the_item_names_what_is_missing(made: Made) -> None:
    bare, newer = App("bare"), App("newer")
    newer.workflow(name="fails", version=2)(lambda run: None)

    async def ask() -> list[list[str]]:
        async with app.open(str(made[0] / "l.db"), recover=False) as rf:
            found = [(await items_of(rf, made[1]["failed"], code))["replay_ready"] for code in (bare, newer)]
        assert all(supported(each) == [1, 2, 5] for each in found)
        return [each["kinds"][5]["why"] for each in found]

    assert asyncio.run(ask()) == [
        ["the code: No workflow 'fails' is registered with the App (registered: none)."],
        ["the code: Workflow 'fails' is registered in version 2, and not in version 1."],
    ]


def test_an_erased_run_says_what_its_code_would_not_get(tmp_path: Path) -> None:
    other = App("t")

    @other.workflow()
    async def work(run: Any) -> int:
        return int(await run.step(abs, -3))

    async def erased() -> Items:
        async with other.open(str(tmp_path / "l.db")) as rf:
            run = await rf.start(work)
            await run.result()
            await erase_run(rf.scope, run.id, "asked to", "ann")
            assert (await evidence(rf.scope, run.id))["evidence_items"][12]["status"] == "fail"
            return await items_of(rf, run.id, other)

    ready = asyncio.run(erased())["replay_ready"]
    assert supported(ready) == [1, 2, 5]
    (why,) = ready["kinds"][5]["why"]
    assert why.startswith("content of ")
    assert why.endswith("_1")
