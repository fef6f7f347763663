"""Rule 13: whether a run can be replayed. Sufficiency, not presence: every part is opened and checked, not
only looked up.
"""

from __future__ import annotations

from typing import Any

from refold.errors import RefoldError
from refold.events.identity import Stream
from refold.ledger.artifacts import open_artifact
from refold.ledger.verify import StreamReport, verify_stream
from refold.projections.rows import ArtifactRow, ToolCallRow
from refold.replay.case import Case, Verdict
from refold.replay.kinds import (
    CATCH_UP,
    EVIDENCE,
    IDEMPOTENT_REPLY,
    INFERENCE_SKIPPING,
    KINDS,
    PARTIAL,
    PROJECTION_ONLY,
    Kind,
)

_OPEN_CALLS = ("in_doubt", "claimed", "dispatched")
_NOT_YET = "this version of refold has no engine for it"


async def replay_ready(case: Case) -> Verdict:
    """Inputs recoverable and verified, every inference and call covered by its receipt and cost, artifacts
    verified, configuration pinned, chain intact, nothing in doubt, closed; and per kind whether this run
    supports it.
    """
    broken = await _broken(case)
    missing = [*broken, *await _lacking(case)]
    kinds = [_support(case, kind, broken, missing) for kind in KINDS]
    can = ", ".join(str(kind["number"]) for kind in kinds if kind["supported"]) or "none"
    references = [] if case.head is None else [case.stream.event_id(case.head.head.seq)]
    if missing:
        text = f"Not everything that a replay needs is there ({len(missing)} missing). Kinds that work: {can}."
        return Verdict("fail", text, references, missing, kinds)
    return Verdict(
        "pass",
        f"Everything that a replay needs is there and verified. Kinds that work: {can}.",
        references,
        [],
        kinds,
    )


async def _broken(case: Case) -> list[str]:
    """Why the record itself cannot be relied on; empty when it is proven."""
    reports: list[StreamReport] = []
    for stream in (case.stream, Stream.annex(case.run_id)):
        if stream.kind == "run" or await case.reader.head(stream) is not None:
            reports.append(await verify_stream(case.reader, stream, case.files))
    broken = [
        f"intact chain: {bad.what} ({bad.stream}, seq {bad.seq})" for bad in (each.first_bad for each in reports) if bad
    ]
    if case.trouble is not None:
        why = case.trouble.message if isinstance(case.trouble, RefoldError) else str(case.trouble)
        broken.append(f"readable events: {why}")
    return broken


async def _lacking(case: Case) -> list[str]:
    """What a replay that runs the workflow's code would not find."""
    missing = []
    unanswered: set[str] = set()
    if case.surveyed is not None:
        found = case.surveyed
        if not found.has_input:
            missing.append("input: no event of the run holds one")
        missing += [f"content of {event}" for event in found.unreadable]
        missing += [f"answer of inference {step}" for step in sorted(found.unended)]
        missing += [f"cost of {step}" for step, lacking in sorted(found.metered.items()) if lacking > 0]
        unanswered |= found.unanswered
    async for call in case.reader.each(ToolCallRow, {"run_id": case.run_id}, ("seq",)):
        if call.status in _OPEN_CALLS:
            unanswered.add(call.tool_call_id)
    missing += [f"receipt of {call}" for call in sorted(unanswered)]
    async for artifact in case.reader.each(ArtifactRow, {"run_id": case.run_id}, ("seq",)):
        try:
            open_artifact(artifact, await case.reader.blob(case.stream, artifact.blob), case.files)
        except RefoldError as error:
            missing.append(f"artifact {artifact.artifact_id}: {error.message}")
    if case.run is None:
        missing.append("row of the run")
    elif case.run.config_digest is None:
        missing.append("pinned configuration")
    if case.head is None or not case.head.closed:
        missing.append("end of the run")
    return missing


def _support(case: Case, kind: Kind, broken: list[str], missing: list[str]) -> dict[str, Any]:
    """Kinds that read need a record that can be read; those that run code against it, code and every answer in it;
    those that ask anew, all that a replay needs, and an engine.
    """
    if kind in (EVIDENCE, CATCH_UP, PROJECTION_ONLY):
        why = broken[:1]
    elif kind is IDEMPOTENT_REPLY:
        why = [*broken[:1], *_no_receipt(case)]
    elif kind in (INFERENCE_SKIPPING, PARTIAL):
        why = [*broken, *_no_code(case), *_no_answers(case, missing)]
    else:
        why = [_NOT_YET, *missing]
    return {"kind": kind.name, "number": kind.number, "supported": not why, "why": why}


def _no_receipt(case: Case) -> list[str]:
    if case.surveyed is None or not case.surveyed.receipts:
        return ["no tool call of this run's own has a receipt"]
    return [] if case.surveyed.gone is None else [f"content of {case.surveyed.gone}"]


def _no_code(case: Case) -> list[str]:
    """Why there is no code to run: none made this run, or the App at hand does not have it."""
    run = case.run
    if run is None:
        return ["row of the run"]
    if run.origin != "live":
        return [f"the run is {run.origin}: no workflow's code of refold made it"]
    if run.subject_kind != "workflow":
        return [f"the run is a recorded {run.subject_kind}: no workflow's code made it"]
    if case.app is not None:
        try:
            case.app.find_workflow(run.workflow, run.workflow_version)
        except RefoldError as error:
            return [f"the code: {error.message}"]
    return []


def _no_answers(case: Case, missing: list[str]) -> list[str]:
    """What the code would be handed and is not there. What was never answered is no lack: there the replay ends."""
    why = [each for each in missing if each.startswith("artifact ")]
    if case.surveyed is not None and case.surveyed.gone is not None:
        why.append(f"content of {case.surveyed.gone}")
    return why
