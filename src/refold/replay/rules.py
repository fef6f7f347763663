"""Rules 1 to 12 of the evidence items. (Rule 13, `replay_ready`, is `refold.replay.readiness`.)

Each is a function of a `Case`. A rule reads what it needs and says what it found; whatever it raises becomes
its finding.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

from refold.events.content import ContentDamaged
from refold.events.envelope import GENESIS
from refold.events.identity import Stream
from refold.projections.rows import AuditRow, CostRow, RunRow, StepRow, ToolCallRow
from refold.replay.case import Case, Verdict
from refold.replay.money import Charges, priced_at
from refold.replay.present import DAMAGED, content_json

_ENDED = ("succeeded", "failed", "canceled", "expired", "skipped")


def _count(number: int, what: str) -> str:
    if number == 1:
        return f"1 {what}"
    return f"{number} {what[:-1]}ies" if what.endswith("y") else f"{number} {what}s"


async def actor_scope(case: Case) -> Verdict:
    scope, row = case.reader.scope, case.row
    who = row.user_id or row.api_key_id or case.found.actor
    first = case.stream.event_id(1)
    if who is None:
        return Verdict("fail", "Nothing says which user or key started the run.", [first], ["user_id or api_key_id"])
    return Verdict("pass", f"Run of {who} in {scope}.", [case.run_id, first])


async def subject_version(case: Case) -> Verdict:
    row = case.row
    if row.subject_version is None and (row.origin == "imported" or row.subject_kind == "session"):
        return Verdict("not_applicable", "Nothing versioned ran: the run is a recorded session.")
    fields = ("subject_kind", "subject_id", "subject_version", "config_digest")
    missing = [name for name in fields if getattr(row, name) is None]
    if missing:
        return Verdict("fail", f"What ran is not pinned: no {', no '.join(missing)}.", [case.run_id], missing)
    return Verdict("pass", f"{row.subject_kind} {row.subject_id} version {row.subject_version}.", [case.run_id])


async def capability_binding(case: Case) -> Verdict:
    found, children = case.found, await _children(case)
    if not (found.models or found.calls or children):
        return Verdict("not_applicable", "No model, tool or child was bound.")
    asked, called = _count(found.models, "inference"), _count(len(found.calls), "tool call")
    used = f"{asked}, {called}, {_count(children, 'child run')}"
    if case.row.config_digest is None:
        return Verdict(
            "fail", f"{used}, and no pinned configuration that binds them.", [case.run_id], ["config_digest"]
        )
    return Verdict(
        "warning",
        f"{used}. The configuration is pinned by its digest; bindings cannot be compared without its text.",
        [case.run_id],
    )


async def permission_scope(case: Case) -> Verdict:
    found = case.found
    if not found.governed:
        watched = f" ({_count(len(found.observed), 'call')} observed elsewhere)" if found.observed else ""
        return Verdict("not_applicable", f"No governed call{watched}.")
    missing = sorted(found.governed - found.permitted)
    if missing:
        text = f"{len(missing)} of {_count(len(found.governed), 'governed call')} without a policy decision."
        return Verdict("fail", text, ["events:policy.decided"], missing)
    return Verdict(
        "pass",
        f"Each of {_count(len(found.governed), 'governed call')} has a policy decision.",
        ["events:policy.decided"],
    )


async def secret_boundary(case: Case) -> Verdict:
    found = case.found
    if not found.governed and not found.captured:
        return Verdict("not_applicable", "No governed call, and no payload was captured.")
    if found.secrets:
        total = sum(found.secrets.values())
        text = f"{_count(total, 'secret')} found at the write and replaced in every view; exact content holds them."
        return Verdict("warning", text, list(found.secrets))
    return Verdict("pass", f"No known secret format in the views of {_count(found.events, 'event')}.", ["events"])


async def egress_policy(case: Case) -> Verdict:
    found = case.found
    outbound = {call for call, effect in found.calls.items() if effect != "pure"}
    if not outbound:
        return Verdict("not_applicable", "No outbound call.")
    missing = sorted(outbound - found.egress)
    if not missing:
        return Verdict(
            "pass",
            f"Each of {_count(len(outbound), 'outbound call')} has its egress decision.",
            ["events:policy.decided"],
        )
    if found.observed.issuperset(missing):
        text = f"{_count(len(missing), 'call')} seen from outside only; the source recorded no egress decision."
        return Verdict("warning", text, ["tool_calls"], missing)
    text = f"{len(missing)} of {_count(len(outbound), 'outbound call')} without an egress decision."
    return Verdict("fail", text, ["tool_calls"], missing)


async def audit_record(case: Case) -> Verdict:
    found = case.found
    if not found.audited and not found.governed:
        return Verdict("not_applicable", "Nothing auditable happened.")
    there = set()
    for stream in (case.stream, Stream.annex(case.run_id)):
        async for row in case.reader.each(AuditRow, {"stream": str(stream)}):
            there.add((row.stream, row.seq))
    missing = [stream.event_id(seq) for stream, seq in found.audited if (str(stream), seq) not in there]
    missing += sorted(found.governed - found.accounted)
    if missing:
        return Verdict(
            "fail", f"{_count(len(missing), 'call or decision')} without an audit event.", ["audit"], missing
        )
    return Verdict("pass", f"{_count(len(found.audited), 'audit event')} on record.", ["audit"])


async def cost_attribution(case: Case) -> Verdict:
    found = case.found
    if not found.ended_attempts and not found.cost_entries:
        return Verdict("not_applicable", "Nothing metered happened.")
    charges, unpriced = Charges(), []
    async for row in case.reader.each(CostRow, {"run_id": case.run_id}, ("seq",)):
        charges.add(row)
        if priced_at(row.currency, row.amount) is None:
            unpriced.append(row.cost_id)
    missing = sorted(step for step, lacking in found.metered.items() if lacking > 0)
    if missing:
        text = f"{_count(len(missing), 'step')} with a metered call that has no cost entry."
        return Verdict("fail", text, ["costs"], missing)
    sums = (
        ", ".join(f"{amount} {currency}" for currency, amount in charges.charge_summary().items()) or "nothing priced"
    )
    if unpriced:
        text = f"{_count(len(unpriced), 'cost entry')} without a price; the others: {sums}."
        return Verdict("warning", text, ["costs"], unpriced)
    return Verdict("pass", f"{_count(found.cost_entries, 'metered call')}: {sums}.", ["costs"])


async def trace_timeline(case: Case) -> Verdict:
    found, head = case.found, case.head
    if found.gap is not None:
        return Verdict("fail", "The events are not gapless from 1.", ["events"], [found.gap])
    last = await case.reader.raw_events(case.stream, 0 if head is None else head.head.seq - 1, limit=2)
    if head is None or len(last) != 1 or last[0].hash != head.head.hash:
        where = "the stream's head" if head is None else case.stream.event_id(head.head.seq)
        return Verdict("fail", "The events do not reach the stream's head.", ["events"], [where])
    open_steps = [step.step_id async for step in _steps(case) if step.status not in _ENDED]
    reasons = {call.run_step_id async for call in _calls(case) if call.status in ("in_doubt", "not_executed")}
    unexplained = [step for step in open_steps if step not in reasons]
    references = [case.stream.event_id(1), case.stream.event_id(head.head.seq)]
    if unexplained and head.closed:
        text = f"The run is closed, and {_count(len(unexplained), 'step')} neither ended nor stands in doubt."
        return Verdict("fail", text, references, unexplained)
    text = f"Events 1 to {head.head.seq} without a gap"
    if unexplained:
        return Verdict("warning", f"{text}; {_count(len(unexplained), 'step')} still open.", references, unexplained)
    if open_steps:
        told = (
            f"{_count(len(open_steps), 'step')} without an end for a known reason: in doubt, or settled as not executed"
        )
        return Verdict("pass", f"{text}; {told}.", references)
    return Verdict("pass", f"{text}; whatever started has an end.", references)


async def tool_call(case: Case) -> Verdict:
    tool_steps = _steps(case, {"type": "tool"}, ("step_id",))
    calls = _calls(case, ("run_step_id",))
    steps_seen = number = 0
    missing, doubts, waiting = [], [], []
    step, call = await anext(tool_steps, None), await anext(calls, None)
    while step is not None or call is not None:
        # Two sorted lists are walked side by side, so that neither has to fit in memory.
        if call is None or (step is not None and step.step_id < call.run_step_id):
            assert step is not None
            missing.append(f"control row of {step.step_id}")
            steps_seen += 1
            step = await anext(tool_steps, None)
            continue
        number += 1
        if call.status == "in_doubt":
            doubts.append(call.tool_call_id)
        elif call.status in ("claimed", "dispatched"):
            waiting.append(call.tool_call_id)
        if step is None or step.step_id > call.run_step_id:
            missing.append(f"step of {call.tool_call_id}")
        else:
            steps_seen += 1
            step = await anext(tool_steps, None)
        call = await anext(calls, None)
    absent = sorted(set(case.found.calls) - {each.tool_call_id async for each in _calls(case)})
    missing += [f"control row of {each}" for each in absent]
    if not (number or steps_seen or absent):
        return Verdict("not_applicable", "No tool was used.")
    if missing:
        return Verdict("fail", "Tool steps and their control rows do not match.", ["tool_calls", "steps"], missing)
    if doubts:
        return Verdict(
            "fail",
            f"{len(doubts)} of {_count(number, 'tool call')} in doubt.",
            doubts,
            [f"outcome of {each}" for each in doubts],
        )
    if waiting:
        return Verdict(
            "warning",
            f"{len(waiting)} of {_count(number, 'tool call')} not ended.",
            waiting,
            [f"outcome of {each}" for each in waiting],
        )
    return Verdict("pass", f"{_count(number, 'tool call')}, each with its step and its end.", ["tool_calls"])


async def knowledge_citation(case: Case) -> Verdict:
    found = case.found
    if not found.retrievals:
        return Verdict("not_applicable", "No retrieval.")
    missing = []
    for step, seq in found.retrievals.items():
        events = await case.reader.events(case.stream, seq - 1, seq)
        content = content_json(events[0])
        if content == DAMAGED:
            raise ContentDamaged(f"The content of {case.stream.event_id(seq)} cannot be read.")
        if not isinstance(content, dict) or not content.get("citations"):
            missing.append(f"citations of {step}")
    total = _count(len(found.retrievals), "retrieval step")
    if missing:
        return Verdict("fail", f"{len(missing)} of {total} without citations.", ["steps"], missing)
    return Verdict("pass", f"{total}, each with its citations.", ["steps"])


async def child_workflow(case: Case) -> Verdict:
    references, missing = [], []
    async for child in case.reader.each(RunRow, {"parent_run_id": case.run_id}, ("run_id",)):
        references.append(child.run_id)
        stream = Stream.run(child.run_id)
        head = await case.reader.head(stream)
        events = [] if head is None else await case.reader.raw_events(stream, limit=1)
        if not events or head is None or head.head.hash == GENESIS:
            missing.append(child.run_id)
    if not references:
        return Verdict("not_applicable", "No child run.")
    if missing:
        return Verdict(
            "fail",
            f"{len(missing)} of {_count(len(references), 'child run')} cannot be reached.",
            references,
            missing,
        )
    return Verdict("pass", f"{_count(len(references), 'child run')}, each with its own events.", references)


async def _children(case: Case) -> int:
    return len([None async for _ in case.reader.each(RunRow, {"parent_run_id": case.run_id}, ("run_id",))])


def _steps(
    case: Case, where: dict[str, str] | None = None, order: tuple[str, ...] = ("seq",)
) -> AsyncIterator[StepRow]:
    return case.reader.each(StepRow, {"run_id": case.run_id, **(where or {})}, order)


def _calls(case: Case, order: tuple[str, ...] = ("seq",)) -> AsyncIterator[ToolCallRow]:
    return case.reader.each(ToolCallRow, {"run_id": case.run_id}, order)
