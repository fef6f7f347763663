"""Which runs of a scope do not go on, and why: for the doctor."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

from refold.errors import RefoldError
from refold.ledger.ledger import ScopedLedger
from refold.ledger.maintenance.doctor import Check
from refold.ledger.port import Reader
from refold.projections.rows import RunRow, ToolCallRow

if TYPE_CHECKING:
    from refold.runtime.app import App

_SHOWN = 10
_REMEDIES = {
    "code_missing": "Name the App that has the code of these runs, in the version that they were started with.",
    "unowned": "Nobody has them: `refold resume RUN` goes on with one, as does any process that opens their App.",
    "diverged": "`refold replay RUN --mode inference-skipping` says where code and record part; put the code back.",
}
"""What is wrong, the first to be looked at first; other waits are nobody's fault."""


async def examine_runs(scope: ScopedLedger, app: App | None) -> Check:
    """The live runs of a scope that nobody moves now: `unowned` (their process died or let go, and nothing keeps them
    from going on), `code_missing` (the App does not have it; looked for only with one), `diverged`, `in_doubt`,
    `waiting` (for a signal), `requested` (paused by somebody).
    """
    found: dict[str, list[str]] = {
        name: [] for name in ("code_missing", "unowned", "diverged", "in_doubt", "waiting", "requested")
    }
    unowned = [row async for row in unowned_workflows(scope)]
    for row in unowned:
        if app is not None and not _has_code(app, row):
            found["code_missing"].append(f"{row.run_id} {row.workflow} version {row.workflow_version}")
        if row.status != "paused":
            found["unowned"].append(f"{row.run_id} {row.workflow}")
    nobody_has = {row.run_id for row in unowned}
    async with scope.reader() as reader:
        async for row in reader.each(RunRow, {"status": "paused"}):
            reason = row.reason or ""
            if reason == "in_doubt" and row.run_id in nobody_has and not await _doubts(reader, row.run_id):
                reason = "unowned"  # Its doubt is settled, and nobody has gone on with it yet.
            if reason in found:
                found[reason].append(f"{row.run_id} {row.workflow}")
    wrong = next((name for name in _REMEDIES if found[name]), None)
    facts: dict[str, Any] = {name: runs[:_SHOWN] for name, runs in found.items()}
    facts["more"] = sum(max(0, len(runs) - _SHOWN) for runs in found.values())
    return Check("runs", wrong is None, facts, None if wrong is None else _REMEDIES[wrong])


async def unowned_workflows(scope: ScopedLedger) -> AsyncIterator[RunRow]:
    """The runs of workflows that have not ended and that no living process has."""
    after = ""
    while page := await scope.unowned_runs(after):
        for row in page:
            if row.origin == "live" and row.subject_kind == "workflow":
                yield row
        after = page[-1].run_id


async def _doubts(reader: Reader, run_id: str) -> bool:
    return bool(await reader.rows(ToolCallRow, {"run_id": run_id, "status": "in_doubt"}, limit=1))


def _has_code(app: App, row: RunRow) -> bool:
    try:
        app.find_workflow(row.workflow, row.workflow_version)
    except RefoldError:
        return False
    return True
