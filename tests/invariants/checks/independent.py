"""What the tables count is what forty lines count that know nothing of the package: no fold, no catalogue, no
store.
"""

from __future__ import annotations

import json
from collections import Counter
from fractions import Fraction
from pathlib import Path
from typing import Any

from tests.invariants.checks.reading import EVENTS, HEADS, reading, rows

_RUN = {"created": "queued", "started": "running", "resumed": "running"}
_STEP = {"step.failed": "failed", "inference.requested": "running", "inference.completed": "succeeded"}
_STEP |= {
    "inference.failed": "failed",
    "inference.lost": "failed",
    "tool.refused": "failed",
    "tool.replayed": "succeeded",
}
_STEP |= {"signal.received": "succeeded", "context.compressed": "succeeded"}
_STEP |= {"child.started": "running", "operation.refused": "failed"}
_CHILD = {"succeeded": "succeeded", "detached": "succeeded"}
_CALL = {
    "tool.claimed": "claimed",
    "tool.dispatched": "dispatched",
    "tool.answered": "succeeded",
    "tool.failed": "failed",
}
_CALL |= {"tool.doubted": "in_doubt", "tool.refused": "refused", "tool.replayed": "succeeded"}
_RESOLVED = {"happened": "succeeded", "abandon": "failed", "resend": "claimed", "did_not_happen": "not_executed"}


def count(events: list[tuple[str, dict[str, Any]]]) -> dict[str, Any]:
    """A run's status, its steps and calls by status, its tokens and its money, from types and facts."""
    status, steps, calls, owner = "", {}, {}, {}
    tokens, money, unpriced = Counter[str](), Counter[str](), 0
    for kind, facts in events:
        step, call = facts.get("step_id"), facts.get("tool_call_id")
        if kind.startswith("run."):
            status = _RUN.get(kind[4:], kind[4:])
        elif kind == "step.completed":
            steps[step] = "skipped" if facts.get("skipped") else "succeeded"
        elif kind == "child.ended":
            steps[step] = _CHILD.get(facts["status"], "failed")
        elif kind in _STEP:
            steps[step] = "failed" if "failed" in facts else _STEP[kind]
        if "claim" in facts:
            owner[call] = facts["claim"]["step_id"]
            steps[owner[call]] = "queued"
        if kind in _CALL:
            calls[call] = "in_doubt" if facts.get("observed") else "failed" if "failed" in facts else _CALL[kind]
            if facts.get("retrying"):
                calls[call] = "dispatched" if facts["how"] == "unknown" else "claimed"
        elif kind == "tool.resolved":
            calls[call] = _RESOLVED[facts["resolution"]]
        if call in owner and (kind == "tool.dispatched" or calls[call] in ("succeeded", "failed")):
            steps[owner[call]] = "running" if kind == "tool.dispatched" else calls[call]
        if kind == "cost.recorded":
            tokens.update({name: facts.get("usage", {}).get(name, 0) for name in ("prompt", "completion", "cached")})
            if facts.get("amount") is None:
                unpriced += 1
            else:
                money[facts["currency"]] += Fraction(facts["amount"])  # type: ignore[assignment]
    return {"status": status, "steps": Counter(steps.values()), "calls": Counter(calls.values())} | {
        "tokens": +tokens, "money": dict(money), "unpriced": unpriced,
    }  # fmt: skip


def check(path: Path) -> None:
    with reading(path) as connection:
        for number, tenant, workspace, stream, *_ in rows(connection, HEADS):
            if stream == "scope" or stream.endswith("/annex"):
                continue
            run = (tenant, workspace, stream)
            told = count([(event[2], json.loads(event[10])) for event in rows(connection, EVENTS, number)])
            where = "WHERE tenant_id = ? AND workspace_id = ? AND run_id = ?"
            (status,) = rows(connection, f"SELECT status FROM runs {where}", *run) or [("",)]
            steps = rows(connection, f"SELECT status, count(*) FROM run_steps {where} GROUP BY status", *run)
            calls = rows(connection, f"SELECT status, count(*) FROM run_step_tool_calls {where} GROUP BY status", *run)
            metered = "currency, amount, tokens_prompt, tokens_completion, tokens_cached"
            costs = rows(connection, f"SELECT {metered} FROM run_cost_entries {where}", *run)
            tokens, money = Counter[str](), Counter[str]()
            for currency, amount, prompt, completion, cached in costs:
                tokens.update({"prompt": prompt, "completion": completion, "cached": cached})
                if amount is not None:
                    money[currency] += Fraction(amount)  # type: ignore[assignment]
            shown = {"status": status[0], "steps": Counter(dict(steps)), "calls": Counter(dict(calls))} | {
                "tokens": +tokens, "money": dict(money), "unpriced": sum(cost[1] is None for cost in costs),
            }  # fmt: skip
            assert shown == told, f"{stream}: the tables say {shown}, the events {told}"
