"""A ledger with a bit of everything in it, for the tests of what is done to whole ledgers."""

from __future__ import annotations

import random
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw

from refold.events.catalog import governance, inference, run, steps, tool
from refold.events.identity import Stream
from refold.ledger.artifacts import store_artifact
from refold.ledger.drafts import Draft
from refold.ledger.ledger import ScopedLedger
from refold.ledger.sqlite.refolding import refold_into
from refold.ledger.sqlite.schema import columns
from refold.ledger.writer import StreamWriter
from refold.projections import ROWS
from refold.projections.rows import ToolCallRow

BIG = 1024 * 1024 + 100
"""Bytes of an artifact that is a file."""


class Markers:
    """Texts that nothing compresses and nothing else contains; each remembers what it marks."""

    def __init__(self, seed: int) -> None:
        self._dice = random.Random(seed)
        self.made: dict[str, str] = {}

    def __call__(self, what: str) -> str:
        text = self._dice.randbytes(24).hex()
        self.made[text] = what
        return text

    def found_in(self, data: bytes) -> list[str]:
        return [what for text, what in self.made.items() if text.encode() in data]


def ledger_files(path: Path) -> Iterator[Path]:
    """Every file that belongs to the ledger at `path`."""
    for each in sorted(path.parent.rglob("*")):
        if each.is_file() and str(each).startswith(str(path)):
            yield each


def left_in_files(path: Path, mark: Markers) -> dict[str, list[str]]:
    """The markers that any byte of any file of the ledger still shows."""
    found = {}
    for each in ledger_files(path):
        # By another process: closing a file drops the locks that SQLite in this process holds on it.
        data = subprocess.run(["cat", each], stdout=subprocess.PIPE, check=True).stdout
        if names := mark.found_in(data):
            found[each.name] = names
    return found


def all_rows(connection: apsw.Connection, suffix: str = "") -> dict[str, list[Any]]:
    """Every projection row of a ledger, by table."""
    found = {}
    for row in ROWS:
        listed = ", ".join(f'"{name}"' for name in ("tenant_id", "workspace_id", *columns(row)))
        order = ", ".join(("tenant_id", "workspace_id", *row.TABLE.key))
        sql = f"SELECT {listed} FROM {row.TABLE.name}{suffix} ORDER BY {order}"
        found[row.TABLE.name] = connection.execute(sql).fetchall()
    return found


def rebuilt_rows(path: Path) -> dict[str, list[Any]]:
    """The same, folded from the events into a database of their own."""
    read = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    scratch = apsw.Connection(":memory:")
    try:
        with read:
            refold_into(read, scratch, {row: row.TABLE.name + "_again" for row in ROWS})
        return all_rows(scratch, "_again")
    finally:
        read.close()
        scratch.close()


def stored_rows(path: Path) -> dict[str, list[Any]]:
    """The projection rows as they stand in the ledger's file."""
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        return all_rows(connection)
    finally:
        connection.close()


async def rich_run(scope: ScopedLedger, mark: Markers, *, closed: bool = True, big: bool = True) -> str:
    """A run that uses every table, with a marker in every place that can hold text. One call stays in doubt."""
    made = await scope.create(
        Draft(
            run.RunCreated(workflow="~" + "0" * 32, effect_domain="tests", lineage_root="root"),
            content={"input": mark("input"), "key": mark("key text in content")},
            input=mark("input summary"),
            name=mark("workflow name"),
        ),
        key=mark("key"),
    )
    assert isinstance(made, StreamWriter)
    ids, name = scope.ledger.ids, made.name
    made.append(Draft(run.RunStarted()))
    made.append(
        Draft(
            steps.StepCompleted(step_id=ids.new("st"), name="plan"),
            content={"output": [mark("compressed output"), "a" * 4000]},
            output=mark("output summary"),
        )
    )
    step = ids.new("st")
    part = await made.part({"role": "user", "text": mark("part")})
    secret = await made.part({"password": mark("secret part"), "text": mark("part with a secret")})
    assert part.number != secret.number
    made.append(
        Draft(
            inference.InferenceRequested(step_id=step, model=name("m"), provider=name("p")),
            content={"messages": mark("messages")},
            name=mark("model name"),
            provider=mark("provider name"),
        )
    )
    await made.barrier()
    made.append(
        Draft(
            inference.InferenceFailed(step_id=step, error_code="timeout"),
            content={"error": mark("inference error")},
            error=mark("inference error summary"),
        )
    )
    made.append(
        Draft(
            inference.CostRecorded(
                cost_id=ids.new("cost"), source_ref=ids.new("src"), provider=name("p"), model=name("m")
            ),
            name=mark("cost model"),
            provider=mark("cost provider"),
        )
    )
    await made.barrier()
    for answered in (True, False):
        await _call(made, scope, mark, answered)
    approval = ids.new("apr")
    made.append(
        Draft(
            governance.ApprovalRequested(
                approval_id=approval, tool_call_id=ids.new("tc"), step_id=ids.new("st"), tool=name("t"), digest="00"
            ),
            content={"arguments": mark("approval arguments")},
            input=mark("approval arguments summary"),
            name=mark("approval tool"),
        )
    )
    await made.barrier()
    made.append(
        Draft(
            governance.ApprovalDecided(approval_id=approval, decision="rejected", digest="00"),
            content={"comment": mark("approval comment")},
            input=mark("approval comment summary"),
            actor="user_1",
        )
    )
    for size in (9000, BIG) if big else (9000,):
        text = mark(f"artifact of {size}")
        await store_artifact(
            made,
            scope.ledger.files,
            (text * (size // len(text) + 1))[:size].encode(),
            artifact_id=ids.new("art"),
            kind="output",
            type_="text",
            mime="text/plain",
        )
    await scope.post(made.stream.run_id, "signal-1", "signal", mark("inbox payload").encode())
    await made.barrier()
    if closed:
        made.append(
            Draft(
                run.RunFailed(error_code="broken"),
                content={"message": mark("failure")},
                error=mark("failure summary"),
                output=mark("run output"),
            )
        )
    await made.close()
    return made.stream.run_id


async def _call(made: StreamWriter, scope: ScopedLedger, mark: Markers, answered: bool) -> None:
    ids = scope.ledger.ids
    intent, call = ids.new("int"), ids.new("tc")
    claim = tool.Claim(
        step_id=ids.new("st"), tool=made.name("send"), key=ids.new("key"), fingerprint="00", effect_domain="tests"
    )
    made.append(
        Draft(
            tool.ToolDispatched(intent_id=intent, tool_call_id=call, revision=1, claim=claim),
            content={"arguments": {"to": mark("arguments")}},
            input=mark("arguments summary"),
            name=mark("tool name"),
            ref=mark("provider call id"),
        )
    )
    await made.barrier()
    if answered:
        made.append(
            Draft(
                tool.ToolAnswered(intent_id=intent, tool_call_id=call, revision=2, result_bytes=9),
                content={"result": mark("result")},
                output=mark("result summary"),
            )
        )
    else:
        made.append(Draft(tool.ToolDoubted(intent_id=intent, tool_call_id=call, revision=2, why="timeout")))
    await made.barrier()


async def annex_facts(scope: ScopedLedger, run_id: str, mark: Markers) -> None:
    """Settles the run's doubt and adds feedback, both in its annex."""
    async with scope.reader() as reader:
        doubts = await reader.rows(ToolCallRow, {"run_id": run_id, "status": "in_doubt"})
    async with await scope.writer(Stream.annex(run_id)) as annex:
        for row in doubts:
            assert row.intent_id is not None
            await annex.adopt_intents(row.intent_id)
            annex.append(
                Draft(
                    tool.ToolResolved(
                        intent_id=row.intent_id,
                        tool_call_id=row.tool_call_id,
                        revision=3,
                        resolution="happened",
                        by="person",
                    ),
                    content={"basis": mark("resolution basis")},
                    input=mark("resolution basis summary"),
                    output=mark("resolution result"),
                    actor="user_1",
                )
            )
        annex.append(
            Draft(
                governance.FeedbackAdded(feedback_id=scope.ledger.ids.new("fb"), source="person"),
                content={"comment": mark("feedback")},
                input=mark("feedback summary"),
                actor="user_2",
            )
        )
