"""The thirteen evidence items of a run: one numbered rule each, computed from the ledger whenever they are
asked for, never stored.

A rule never raises. A run with missing, damaged or half its evidence gets an item that says `fail` and what
is missing; that is what the items are for.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any

from refold.errors import RefoldError
from refold.events.identity import Stream
from refold.ledger.artifacts import ArtifactFiles
from refold.ledger.port import Reader
from refold.projections.rows import RunRow
from refold.replay import rules
from refold.replay.case import Case, Rule, Verdict
from refold.replay.readiness import replay_ready
from refold.replay.survey import survey
from refold.runtime.app import App

RULES: tuple[tuple[str, Rule], ...] = (
    ("actor_scope", rules.actor_scope),
    ("subject_version", rules.subject_version),
    ("capability_binding", rules.capability_binding),
    ("permission_scope", rules.permission_scope),
    ("secret_boundary", rules.secret_boundary),
    ("egress_policy", rules.egress_policy),
    ("audit_record", rules.audit_record),
    ("cost_attribution", rules.cost_attribution),
    ("trace_timeline", rules.trace_timeline),
    ("tool_call", rules.tool_call),
    ("knowledge_citation", rules.knowledge_citation),
    ("child_workflow", rules.child_workflow),
    ("replay_ready", replay_ready),
)
"""The keys in their order: a rule's number is its place, counted from 1."""


async def evidence_items(
    reader: Reader, run_id: str, files: ArtifactFiles, app: App | None = None
) -> list[dict[str, Any]]:
    """The thirteen items in their order, each {key, rule, status, summary, references, missing}, and in
    `replay_ready` `kinds`. With an `app`, these say too whether its code can replay the run; without one, that the code
    is there is taken for granted.

    Never raises for what a run lacks: a rule that cannot be applied is a `fail` that says why.
    """
    case = await _open(reader, run_id, files, app)
    return [await _apply(number, key, rule, case) for number, (key, rule) in enumerate(RULES, 1)]


async def _open(reader: Reader, run_id: str, files: ArtifactFiles, app: App | None) -> Case:
    head = await _try(reader.head(Stream.run(run_id)))
    rows = await _try(reader.rows(RunRow, {"run_id": run_id}))
    surveyed = await _try(survey(reader, run_id))
    return Case(
        reader,
        run_id,
        files,
        None if isinstance(head, Exception) else head,
        None if isinstance(rows, Exception) or not rows else rows[0],
        None if isinstance(surveyed, Exception) else surveyed,
        surveyed if isinstance(surveyed, Exception) else None,
        app,
    )


async def _try(reading: Awaitable[Any]) -> Any:
    try:
        return await reading
    except Exception as error:  # noqa: BLE001 - whatever is wrong with a run is a finding of the rules
        return error


async def _apply(number: int, key: str, rule: Rule, case: Case) -> dict[str, Any]:
    try:
        verdict = await rule(case)
    except Exception as error:  # noqa: BLE001 - a rule that cannot be applied has found that evidence is missing
        why = error.message if isinstance(error, RefoldError) else f"{type(error).__name__}: {error}"
        verdict = Verdict("fail", f"The rule could not be applied: {why}", missing=["readable evidence"])
    item: dict[str, Any] = {
        "key": key,
        "rule": number,
        "status": verdict.status,
        "summary": verdict.summary,
        "references": verdict.references,
        "missing": verdict.missing,
    }
    return item if verdict.kinds is None else {**item, "kinds": verdict.kinds}
