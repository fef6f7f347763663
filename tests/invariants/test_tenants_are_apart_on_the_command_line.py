"""No command shows a scope anything of another, and none tells by its answer that another has a run."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import apsw
import pytest

from refold.cli.shapes import page_token
from refold.events.catalog.run import RunCanceled
from refold.events.identity import Stream
from refold.ledger.drafts import Draft
from refold.ledger.ledger import open_ledger
from refold.ledger.maintenance.erasure import erase_run
from refold.ledger.sqlite.listing import runs_page
from refold.projections.rows import ArtifactRow
from tests.invariants.tenants import RUNS, SCOPES, World, marker


@pytest.fixture
def three(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, list[str]]:
    """The runs of three scopes of one file, by scope: one with an annex and artifacts, one imported."""

    async def fill() -> dict[str, list[str]]:
        world = World(tmp_path)
        await world.open()
        try:
            for index in range(len(SCOPES)):
                for verb in ("infer", "ask", "answer", "ask", "keep", "say", "feedback", "import"):
                    await world.apply(index, verb, index % 2)  # Two scopes have a run of the same id.
            found = {}
            for index, name in enumerate(SCOPES):
                async with world.scope(index).reader() as reader:
                    found[name] = [each.run_id for each in await runs_page(reader)]
            return found
        finally:
            await world.close()

    monkeypatch.setenv("REFOLD_LEDGER", str(tmp_path / "ledger.db"))
    return asyncio.run(fill())


def _content(folder: Path) -> list[Any]:
    with closing(apsw.Connection(str(folder / "ledger.db"), flags=apsw.SQLITE_OPEN_READONLY)) as connection:
        return [
            connection.execute(f"SELECT * FROM {table} ORDER BY 1, 2, 3").fetchall()
            for table in ("events", "blobs", "runs", "run_steps", "run_step_tool_calls", "inbox", "audit")
        ]


BY_RUN: list[Callable[[str], list[str]]] = [
    lambda run: ["show", run],
    lambda run: ["show", run, "--at", "1"],
    lambda run: ["events", run],
    lambda run: ["events", run, "--annex"],
    lambda run: ["events", run, "--follow"],
    lambda run: ["evidence", run],
    lambda run: ["tool-calls", "--run", run],
    lambda run: ["replay", run, "--mode", "projection-only"],
    lambda run: ["replay", run, "--mode", "projection-only", "--dry-run"],
    lambda run: ["verify", run],
    lambda run: ["export", run],
    lambda run: ["cancel", run, "--basis", "b"],
    lambda run: ["erase", run, "--basis", "b"],
]


@pytest.mark.parametrize("command", BY_RUN, ids=lambda made: "_".join(made("RUN")[:3]))
def test_a_command_with_another_scopes_run_says_what_it_says_of_a_run_that_is_not_there(
    three: dict[str, list[str]], tmp_path: Path, call: Any, command: Callable[[str], list[str]]
) -> None:
    before = _content(tmp_path)
    nobody = "run_7ZZZZZZZZZZZZZZZZZZZZZZZZZ"
    for scope in (*SCOPES, "a/z", "c/x"):
        foreign = {run for other, runs in three.items() if other != scope for run in runs} - set(three.get(scope, ()))
        assert foreign
        for run in sorted(foreign):
            answered = call("--scope", scope, "--json", *command(run))
            unknown = call("--scope", scope, "--json", *command(nobody))
            assert (answered.status, answered.out) == (2, ""), answered
            assert answered.error["code"] == "run_not_found"
            assert answered.err.replace(run, nobody) == unknown.err, "the answer tells that somebody has this run"
    assert _content(tmp_path) == before


def test_lists_and_exports_of_the_command_line_show_a_scope_its_own(
    three: dict[str, list[str]], tmp_path: Path, call: Any
) -> None:
    tokens = [f"--next={_token(run)}" for runs in three.values() for run in runs]
    for scope, own in three.items():
        others = [marker(other) for other in SCOPES if other != scope]
        listed = call("--scope", scope, "runs", "--json")
        assert [run["run_id"] for run in listed.json["runs"]] == own
        for args in (
            ["runs"],
            ["tool-calls"],
            ["export", "--all"],
            *([["runs", token] for token in tokens]),
            *([[*command(run)] for run in own for command in BY_RUN if command("")[0] in ("show", "evidence")]),
            *([["events", run] for run in own]),
        ):
            said = call("--scope", scope, "--json", *args)
            assert said.status == 0, (args, said.err)
            assert [mark for mark in others if mark in said.out] == [], args
            if args[0] == "runs":
                assert {run["run_id"] for run in said.json["runs"]} <= set(own)
        exported = call("--scope", scope, "export", "--all").out
        assert {json.loads(line)["record"]["run_id"] for line in exported.splitlines()} == set(own)
        assert marker(scope) in exported


def _token(run_id: str) -> str:
    return page_token(run_id)


def test_erasing_and_cancelling_in_one_scope_leaves_a_run_of_the_same_id_in_another(
    three: dict[str, list[str]], tmp_path: Path, call: Any
) -> None:
    shared = RUNS[0]
    assert shared in three["a/x"]
    assert shared in three["a/y"]
    keep = {scope: call("--scope", scope, "--json", "evidence", shared).out for scope in ("a/y",)}
    call("--scope", "a/x", "cancel", shared, "--basis", "done")
    asyncio.run(_erase(tmp_path, "a/x", shared))
    for scope, bundle in keep.items():
        assert call("--scope", scope, "--json", "evidence", shared).out == bundle
    assert call("verify", "--all").status == 0


async def _erase(folder: Path, scope: str, run_id: str) -> None:
    """A run whose own call is open is not cancelled from the command line; the runtime that owns it ends it."""
    async with await open_ledger(folder / "ledger.db") as ledger:
        one = ledger.scope(scope)
        async with await one.writer(Stream.run(run_id)) as writer:
            if not writer.closed:
                writer.append(Draft(RunCanceled()))
        await erase_run(one, run_id, "asked", "ann")


def test_an_artifact_of_another_scope_cannot_be_had(three: dict[str, list[str]], tmp_path: Path, call: Any) -> None:
    async def ids() -> dict[str, list[tuple[str, str]]]:
        async with await open_ledger(tmp_path / "ledger.db") as ledger:
            found = {}
            for scope in SCOPES:
                async with ledger.scope(scope).reader() as reader:
                    found[scope] = [(row.run_id, row.artifact_id) for row in await reader.rows(ArtifactRow)]
            return found

    artifacts = asyncio.run(ids())
    for scope in SCOPES:
        for other, theirs in artifacts.items():
            for run, artifact in theirs:
                said = call("--scope", scope, "artifact", run, artifact)
                if (run, artifact) in artifacts[scope]:
                    assert said.status == 0
                    assert other == scope or marker(other) not in said.out
                else:
                    assert said.status == 2
                    assert said.out == ""
