"""Bad values, names and positions: a typed error that says what, or a correct result; and nothing half-written."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from refold.errors import RefoldError
from refold.events.catalog.governance import FeedbackAdded
from refold.events.catalog.inference import CostRecorded, Usage
from refold.events.catalog.run import RunCanceled, RunPaused, RunStarted
from refold.events.catalog.steps import StepCompleted
from refold.events.identity import BadName, Stream
from refold.events.values import NotRecordable
from refold.ledger.artifacts import store_artifact
from refold.ledger.conformance.place import all_events, content_of, creation, new_run, step, verified
from refold.ledger.drafts import Draft
from refold.ledger.errors import (
    BeyondHead,
    RunNotFound,
)
from refold.ledger.ledger import Ledger
from refold.projections import BrokenFold
from refold.projections.rows import AuditRow, RunRow
from refold.projections.runs import InvalidTransition
from tests.ledger.hostile_support import SCOPE, completed, dump, goes_on, live, nested

# Values and facts


@pytest.mark.parametrize(
    ("content", "path"),
    [
        ({"o": {"a": [1, object()]}}, "$.o.a[1]"),
        ({"o": nested(10_000)}, "$.o[0][0]"),
        ({"o": [lambda: None]}, "$.o[0]"),
    ],
    ids=["an object", "nested ten thousand deep", "a function"],
)
def test_a_value_that_cannot_be_recorded_is_named_by_its_path(
    content: dict[str, Any], path: str, tmp_path: Path
) -> None:
    async def work(ledger: Ledger) -> None:
        writer = await new_run(ledger.scope(SCOPE))
        before = dump(ledger.path)
        with pytest.raises(NotRecordable) as raised:
            writer.append(Draft(completed(ledger.scope(SCOPE)), content=content))
        assert str(raised.value.facts["path"]).startswith(path)
        with pytest.raises(NotRecordable):
            await writer.part(content["o"])
        await writer.barrier()
        assert dump(ledger.path) == before
        await goes_on(ledger.scope(SCOPE), writer, 2)

    live(tmp_path / "ledger.db", work)


@pytest.mark.parametrize(
    "bad",
    [
        {"step_id": 5},
        {"type": "nonsense"},
        {"duration_us": 1.5},
        {"duration_us": float("nan")},
        {"duration_us": "1"},
        {"duration_us": True},
        {"skipped": None},
        {"name": "\ud800"},
        {"name": b"x"},
        {"secrets": [1]},
    ],
    ids=repr,
)
def test_facts_that_do_not_fit_their_type_never_reach_the_ledger(bad: dict[str, Any], tmp_path: Path) -> None:
    """Else the stream could be written and never be read again."""

    async def work(ledger: Ledger) -> None:
        scope = ledger.scope(SCOPE)
        writer = await new_run(scope)
        good = {"step_id": "st_1", "name": "score"}
        with pytest.raises(NotRecordable):
            writer.append(Draft(StepCompleted(**{**good, **bad})))
        await goes_on(scope, writer, 2)

    live(tmp_path / "ledger.db", work)


@pytest.mark.parametrize(
    "bad",
    [
        {"actor": "\ud800"},
        {"site": "\udfff"},
        {"occurred_at": 2**63},
        {"occurred_at": -(2**63)},
        {"occurred_at": 1.5},
        {"cause": 0},
        {"cause": -1},
        {"cause": 2**64},
    ],
    ids=repr,
)
def test_an_envelope_that_cannot_be_hashed_as_it_is_never_reaches_the_ledger(
    bad: dict[str, Any], tmp_path: Path
) -> None:
    async def work(ledger: Ledger) -> None:
        scope = ledger.scope(SCOPE)
        writer = await new_run(scope)
        with pytest.raises(NotRecordable):
            writer.append(Draft(completed(scope), **bad))
        await goes_on(scope, writer, 2)

    live(tmp_path / "ledger.db", work)


def test_a_number_too_large_for_the_tables_loses_its_batch_and_no_other(tmp_path: Path) -> None:
    async def work(ledger: Ledger) -> None:
        scope = ledger.scope(SCOPE)
        writer, neighbour = await new_run(scope), await new_run(scope)
        writer.append(step(ledger, "with it"))
        writer.append(Draft(CostRecorded("cost_1", "ref", usage=Usage(prompt=2**70))))
        neighbour.append(step(ledger, "beside"))
        lost, kept = await asyncio.gather(writer.barrier(), neighbour.barrier(), return_exceptions=True)
        assert isinstance(lost, NotRecordable)
        assert kept is None
        assert len(await verified(scope, writer.stream)) == 1
        assert len(await verified(scope, neighbour.stream)) == 2

    live(tmp_path / "ledger.db", work)


@pytest.mark.parametrize("text", ["a\0b", "\ud800", "a\udfffb\ud83d", "\x1b[31m\r\n\u202e", "ä€😀\u2028"], ids=ascii)
def test_strange_texts_come_back_as_they_were(text: str, tmp_path: Path) -> None:
    async def work(ledger: Ledger) -> None:
        scope = ledger.scope(SCOPE)
        writer = await new_run(scope)
        content = {"o": text, "k": {text: [text]}}
        told = dict.fromkeys(("input", "output", "error", "name", "ref"), text)
        writer.append(Draft(completed(scope), content=content, **told))
        await writer.close()
        assert content_of((await verified(scope, writer.stream))[1].row) == content

    live(tmp_path / "ledger.db", work)


@pytest.mark.parametrize(
    "view", [nested(10_000), {"a": object()}, nested(190, "x" * 100_000)], ids=["deep", "odd", "long"]
)
def test_a_view_is_made_of_any_value(view: Any, tmp_path: Path) -> None:
    async def work(ledger: Ledger) -> None:
        scope = ledger.scope(SCOPE)
        writer = await new_run(scope)
        writer.append(Draft(completed(scope), input=view, output=view))
        await goes_on(scope, writer, 3)

    live(tmp_path / "ledger.db", work)


def test_a_value_of_a_hundred_megabytes_comes_back(tmp_path: Path) -> None:
    large = os.urandom(1_000_000).hex() * 50

    async def work(ledger: Ledger) -> None:
        scope = ledger.scope(SCOPE)
        writer = await new_run(scope)
        # `clean`: the scan for secrets is measured elsewhere, and would take most of the time.
        writer.append(Draft(completed(scope), content={"o": large}, output=large, clean=True))
        await writer.close()
        found = content_of((await verified(scope, writer.stream))[1].row)["o"]
        assert len(found) == 100_000_000
        assert found == large

    live(tmp_path / "ledger.db", work)


# Order of events


def test_an_event_that_its_fold_refuses_leaves_no_row_behind(tmp_path: Path) -> None:
    async def work(ledger: Ledger) -> None:
        scope = ledger.scope(SCOPE)
        run = await new_run(scope)
        annex = await scope.writer(Stream.annex(run.stream.run_id))
        with pytest.raises(BrokenFold):
            annex.append(Draft(RunCanceled()))
        annex.append(Draft(FeedbackAdded("fb_1", "person")))
        await annex.close()
        assert [event.type for event in await verified(scope, annex.stream)] == ["feedback.added"]
        async with scope.reader() as reader:
            assert await reader.rows(AuditRow) == []

    live(tmp_path / "ledger.db", work)


def test_a_run_is_created_once_and_only_at_its_beginning(tmp_path: Path) -> None:
    async def work(ledger: Ledger) -> None:
        scope = ledger.scope(SCOPE)
        run = await new_run(scope)
        annex = await scope.writer(Stream.annex(run.stream.run_id))
        for writer in (run, annex):
            with pytest.raises(InvalidTransition):
                writer.append(creation("another workflow"))
        run.append(Draft(RunStarted()))
        with pytest.raises(InvalidTransition):
            run.append(Draft(RunStarted()))
        await run.close()
        async with scope.reader() as reader:
            assert [row.workflow for row in await reader.rows(RunRow)] == ["orders"]
        assert len(await verified(scope, run.stream)) == 2

    live(tmp_path / "ledger.db", work)


def test_a_wrong_reason_is_no_reason(tmp_path: Path) -> None:
    async def work(ledger: Ledger) -> None:
        scope = ledger.scope(SCOPE)
        writer = await new_run(scope)
        with pytest.raises(NotRecordable):
            writer.append(Draft(RunPaused("because")))  # type: ignore[arg-type]
        await goes_on(scope, writer, 2)

    live(tmp_path / "ledger.db", work)


# Names and positions


@pytest.mark.parametrize(
    "name",
    [
        *("", "/", "a", "a/", "/b", "../b", "a/..", "a/b/c", "a\0/b", "a b/c", "é/b", "a/b\n", "-a/b", ".a/b"),
        "a/" + "b" * 129,
    ],
    ids=ascii,
)
def test_a_bad_name_of_a_scope_is_refused(name: str, tmp_path: Path) -> None:
    async def work(ledger: Ledger) -> None:
        before = dump(ledger.path)
        with pytest.raises(BadName):
            ledger.scope(name)
        assert dump(ledger.path) == before

    live(tmp_path / "ledger.db", work)


ULID = "01ARZ3NDEKTSV4RRFFQ69G5FAV"


@pytest.mark.parametrize(
    "run_id",
    [
        *("x", "run_", "run_x", f"run_{ULID}x", f"run_{ULID[:-1]}", f"run_{ULID.lower()}", f"run_8{ULID[1:]}"),
        *(f"run_a_{ULID}", f"run_../_{ULID}", f"../run_{ULID}", f"st_{ULID}", f"run_{ULID}\n", f"run_{ULID[:-1]}\0"),
        f"run_٠{ULID[1:]}",
    ],
    ids=ascii,
)
def test_a_bad_id_of_a_run_is_refused_everywhere(run_id: str, tmp_path: Path) -> None:
    for parse in (Stream.run, Stream.annex, Stream.parse):
        with pytest.raises(BadName):
            parse(run_id)

    async def work(ledger: Ledger) -> None:
        scope = ledger.scope(SCOPE)
        with pytest.raises(BadName):
            await scope.create(creation(), run_id=run_id)
        with pytest.raises(BadName):
            await scope.post(run_id, "k", "signal", b"")
        with pytest.raises(BadName):
            await scope.run_head(run_id)
        with pytest.raises(RunNotFound):
            await scope.resolve_run(run_id)
        async with scope.reader() as reader:
            assert await reader.heads() == []

    live(tmp_path / "ledger.db", work)


@pytest.mark.parametrize(
    "artifact_id",
    ["", ".", "..", "../x", "../../../../x", "/x", "a/b", "a\\b", "a\0", "a.part", ".part", "a" * 129, "é"],
    ids=ascii,
)
@pytest.mark.parametrize("size", [10, 2_000_000])
def test_no_artifact_is_written_outside_its_run_s_folder(artifact_id: str, size: int, tmp_path: Path) -> None:
    async def work(ledger: Ledger) -> None:
        scope = ledger.scope(SCOPE)
        writer = await new_run(scope)
        before = sorted(tmp_path.rglob("*"))
        with pytest.raises(BadName):
            await store_artifact(
                writer,
                ledger.files,
                bytes(size),
                artifact_id=artifact_id,
                kind="output",
                type_="binary",
                mime="application/octet-stream",
            )
        assert sorted(tmp_path.rglob("*")) == before
        await goes_on(scope, writer, 2)

    live(tmp_path / "ledger.db", work)


def test_a_cursor_beyond_the_head_is_refused(tmp_path: Path) -> None:
    async def work(ledger: Ledger) -> None:
        scope = ledger.scope(SCOPE)
        writer = await new_run(scope, steps=2)
        for after in (4, 10**6, 2**32, 2**64):
            with pytest.raises(BeyondHead):
                await anext(scope.follow(writer.stream, after))
        assert await all_events(scope, writer.stream, 3) == []

    live(tmp_path / "ledger.db", work)


def test_a_key_that_cannot_be_stored_is_refused(tmp_path: Path) -> None:
    async def work(ledger: Ledger) -> None:
        scope = ledger.scope(SCOPE)
        writer = await new_run(scope)
        before = dump(ledger.path)
        with pytest.raises(NotRecordable):
            await scope.post(writer.stream.run_id, "\ud800", "signal", b"")
        with pytest.raises(RefoldError):
            await scope.resolve_run("\ud800")
        assert dump(ledger.path) == before
        await goes_on(scope, writer, 2)

    live(tmp_path / "ledger.db", work)
