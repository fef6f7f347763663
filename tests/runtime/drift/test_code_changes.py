"""The code of a killed run is changed before it is resumed: never an effect, never a silent old result."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from refold import InferenceSkipping, RunPaused, Stream
from refold.runtime.errors import CodeUnavailable
from refold.runtime.opened import Refold
from tests.runtime.drift.changes import CHANGES
from tests.runtime.drift.support import copy_of, effects, kill_one, ledger, line_of, load, watch_looks

WHOLE = [
    84,
    [[1, 2], "found 7", "yes", True, "here", [0, 10], "box 7", "found customer of 7"],
    42,
    "they said no",
    "shipped 7",
]
DONE = ["charge 7 42", "decline 7"]
"""The effects of the first life."""

DRIFTS = {name: change for name, change in CHANGES.items() if change.drift is not None}
HARMLESS = {name: change for name, change in CHANGES.items() if change.drift is None}


@pytest.fixture(scope="session")
def killed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    folder = tmp_path_factory.mktemp("drift") / "killed"
    return folder, kill_one(folder)


@pytest.fixture
def shop(killed: tuple[Path, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, str]:
    folder = copy_of(killed[0], tmp_path / "shop")
    monkeypatch.setenv("SHOP", str(folder))
    monkeypatch.setenv("SHOP_HOME", "here")
    return folder, killed[1]


async def paused_report(rf: Refold, run_id: str) -> dict[str, Any]:
    """The one report that the run is paused with."""
    run = await rf.get(run_id)
    with pytest.raises(RunPaused) as paused:
        await run.result()
    row = await run.row()
    assert (paused.value.reason, row.status, row.reason) == ("diverged", "paused", "diverged")
    (report,) = paused.value.facts["divergences"]
    return dict(report)


def test_there_are_as_many_changes_as_promised() -> None:
    assert len(DRIFTS) >= 30
    assert len(HARMLESS) >= 5


@pytest.mark.parametrize("name", DRIFTS)
async def test_a_change_of_what_is_recorded_pauses_the_run_with_a_report(shop: tuple[Path, str], name: str) -> None:
    folder, run_id = shop
    edits, drift, _ = DRIFTS[name]
    assert drift is not None
    edited = load(folder, edits)
    async with edited.app.open(ledger(folder)) as rf:
        report = await paused_report(rf, run_id)
        head = await rf.scope.run_head(run_id)
        replayed = await rf.replay(run_id, InferenceSkipping())
        assert (replayed.head_before, replayed.head_after) == (head, head)
        (event,) = [each async for each in rf.scope.read(Stream.run(run_id)) if each.seq == report["seq"]]
    assert report["kind"] == drift.kind
    assert report["step"] == (event.site or None)
    assert drift.site is None or str(report["step"]).endswith(drift.site)
    assert drift.says in report["first_difference"]
    assert report["remedy"]
    if drift.at is not None:
        assert report.get("at") == line_of(folder, drift.at)
    else:
        assert (report.get("at") is None) == (report["attempted"] is None)
    first = replayed.divergences[0]
    assert (first.seq, first.step, first.kind) == (report["seq"], report["step"], report["kind"])
    assert first.first_difference == report["first_difference"]
    assert effects(folder) == DONE


@pytest.mark.parametrize("name", DRIFTS)
async def test_a_drift_is_left_alone_until_somebody_resumes_the_code_that_was(
    shop: tuple[Path, str], name: str
) -> None:
    folder, run_id = shop
    edited = load(folder, DRIFTS[name].edits)
    async with edited.app.open(ledger(folder)) as rf:
        await paused_report(rf, run_id)
        head = await rf.scope.run_head(run_id)
    async with edited.app.open(ledger(folder)) as rf:
        assert await rf.recover() == []
        await paused_report(rf, run_id)
        assert await rf.scope.run_head(run_id) == head
    reverted = load(folder)
    async with reverted.app.open(ledger(folder)) as rf:
        assert await rf.scope.run_head(run_id) == head
        assert await (await rf.resume(run_id)).result() == WHOLE
        assert (await rf.replay(run_id, InferenceSkipping())).equal
    assert effects(folder) == [*DONE, "ship 7"]


@pytest.mark.parametrize("name", HARMLESS)
async def test_a_change_that_the_record_does_not_hold_lets_the_run_go_on(shop: tuple[Path, str], name: str) -> None:
    folder, run_id = shop
    change = HARMLESS[name]
    edited = load(folder, change.edits)
    async with edited.app.open(ledger(folder)) as rf:
        result = await (await rf.get(run_id)).result()
        assert result == [change.returns.get(place, each) for place, each in enumerate(WHOLE)]
        assert (await rf.replay(run_id, InferenceSkipping())).equal
    assert effects(folder) == [*DONE, "ship 7"]


async def test_a_workflow_whose_version_is_gone_waits_for_its_code(shop: tuple[Path, str]) -> None:
    folder, run_id = shop
    edited = load(folder, [("@app.workflow(version=1)", "@app.workflow(version=2)")])
    async with edited.app.open(ledger(folder)) as rf:
        head = await rf.scope.run_head(run_id)
        assert await rf.recover() == []
        run = await rf.resume(run_id)
        with pytest.raises(CodeUnavailable, match="in version 2, and not in version 1"):
            await run.result()
        with pytest.raises(CodeUnavailable):
            await rf.replay(run_id, InferenceSkipping())
        assert (await rf.scope.run_head(run_id)).hash == head.hash
    assert effects(folder) == DONE
    async with load(folder).app.open(ledger(folder)) as rf:
        assert await (await rf.get(run_id)).result() == WHOLE


async def test_what_is_posted_to_a_drifted_run_does_not_try_it_again(shop: tuple[Path, str]) -> None:
    folder, run_id = shop
    edited = load(folder, DRIFTS["a step is renamed"].edits)
    async with edited.app.open(ledger(folder)) as rf:
        await paused_report(rf, run_id)
        head = await rf.scope.run_head(run_id)
        looks = watch_looks(rf)
        await rf.signal(run_id, "go", False)
        for _ in range(3):
            await looks.get()
        assert await rf.scope.run_head(run_id) == head
