"""Runs for the tests of reading: one that has every event type a run can have, and smaller ones."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

from refold.events.catalog.governance import (
    ApprovalDecided,
    ApprovalExpired,
    ApprovalRequested,
    ContentErased,
    FeedbackAdded,
    IncidentRaised,
    PolicyDecided,
)
from refold.events.catalog.inference import (
    CostRecorded,
    InferenceCompleted,
    InferenceFailed,
    InferenceLost,
    InferenceRequested,
    Usage,
)
from refold.events.catalog.run import RunCanceled, RunCreated, RunPaused, RunResumed, RunStarted, RunSucceeded
from refold.events.catalog.steps import ContextCompressed, SignalReceived, StepCompleted, StepFailed
from refold.events.catalog.tool import (
    Claim,
    ToolAnswered,
    ToolClaimed,
    ToolDispatched,
    ToolDoubted,
    ToolFailed,
    ToolRefused,
    ToolReplayed,
    ToolResolved,
)
from refold.events.content import PartChain
from refold.events.identity import Stream
from refold.ledger.artifacts import store_artifact
from refold.ledger.drafts import Draft
from refold.ledger.ledger import Ledger, ScopedLedger, open_ledger
from refold.ledger.writer import StreamWriter

T = TypeVar("T")
SECRET = "sk-proj-Zm9vYmFyYmF6cXV4MTIzNDU2Nzg5MGFiY2RlZg"
HOSTILE = "nul\x00 escape\x1b[2J csi\x9b31m turned\u202e line\u2028 中文 \U0001f600"


def with_ledger(folder: Path, work: Callable[[Ledger], Coroutine[Any, Any, T]]) -> T:
    """Runs `work` on the ledger in a folder, made when it is new."""

    async def run() -> T:
        async with await open_ledger(folder / "ledger.db") as ledger:
            return await work(ledger)

    return asyncio.run(run())


class Teller:
    """Tells a run's story event by event, keeping the ids and revisions that the next event needs."""

    def __init__(self, ledger: Ledger, writer: StreamWriter) -> None:
        self.ledger, self.writer = ledger, writer
        self.revisions: dict[str, int] = {}
        self.ids: dict[str, tuple[str, str, str]] = {}

    @property
    def run_id(self) -> str:
        return self.writer.stream.run_id

    def new(self, prefix: str) -> str:
        return self.ledger.ids.new(prefix)

    def revision(self, intent: str) -> int:
        self.revisions[intent] = self.revisions.get(intent, 0) + 1
        return self.revisions[intent]

    def tell(self, facts: Any, **more: Any) -> None:
        self.writer.append(Draft(facts, **more))

    def inference(self, amount: str | None = "0.25", currency: str | None = "USD", usage: Usage | None = None) -> str:
        step = self.new("st")
        usage = usage or Usage(prompt=10, completion=5)
        self.tell(InferenceRequested(step_id=step, model="m", provider="p"), content={"messages": ["hi"]})
        self.tell(
            InferenceCompleted(step_id=step, finish="stop", usage=usage, duration_us=1500),
            content={"message": "hello"},
            output="hello",
        )
        self.cost(step, amount, currency, usage)
        return step

    def cost(self, step: str | None, amount: str | None, currency: str | None, usage: Usage | None = None) -> str:
        cost = self.new("cost")
        self.tell(
            CostRecorded(
                cost_id=cost,
                source_ref=f"src:{cost}",
                step_id=step,
                amount=amount,
                currency=currency,
                usage=usage,
                latency_us=1500,
                embeddings=1,
                vectors=2,
                storage_bytes=3,
            )
        )
        return cost

    def dispatch(self, name: str, *, observed: bool = False, effect: str = "unsafe", decided: bool = True) -> str:
        step, call, intent = self.new("st"), self.new("tc"), self.new("int")
        self.ids[call] = (step, call, intent)
        if decided:
            self.tell(
                PolicyDecided(policy="rule", kind="permission", decision="allow", step_id=step, tool_call_id=call)
            )
            self.tell(PolicyDecided(policy="net", kind="egress", decision="allow", step_id=step, tool_call_id=call))
        claim = Claim(step_id=step, tool=name, key=intent, fingerprint="f", effect_domain=self.run_id, effect=effect)  # type: ignore[arg-type]
        self.tell(
            ToolDispatched(
                intent_id=intent, tool_call_id=call, revision=self.revision(intent), claim=claim, observed=observed
            ),
            content={"arguments": {"to": name}},
            input={"to": name},
            ref="call_1",
        )
        return call

    def later(self, call: str, event: Any, *, content: dict[str, Any] | None = None, **facts: Any) -> None:
        _, _, intent = self.ids[call]
        self.tell(event(intent_id=intent, tool_call_id=call, revision=self.revision(intent), **facts), content=content)

    def answer(self, call: str, result: Any = "ok") -> None:
        self.later(call, ToolAnswered, result_bytes=4, content={"result": result})


async def begin(scope: ScopedLedger, key: str | None = None, **facts: Any) -> Teller:
    run_id = scope.ledger.ids.new("run")
    settings: dict[str, Any] = {
        "workflow": "orders",
        "effect_domain": run_id,
        "lineage_root": run_id,
        "workflow_version": 3,
        "subject_id": "orders",
        "config_digest": "ab" * 16,
        "user_id": "user-7",
        **facts,
    }
    writer = await scope.create(
        Draft(RunCreated(**settings), content={"input": {"n": 1}}, input={"n": 1}), run_id=run_id, key=key
    )
    assert isinstance(writer, StreamWriter)
    teller = Teller(scope.ledger, writer)
    teller.tell(RunStarted())
    return teller


async def every_event(scope: ScopedLedger, finish: bool = True) -> Teller:
    """A run with every type of event that a run and its annex can have, but other ends than the one it has."""
    t = await begin(scope, key=scope.ledger.ids.new("order"))
    w = t.writer
    t.tell(
        SignalReceived(step_id=t.new("st"), signal=w.name("user")),
        content={"value": HOSTILE},
        name="user",
        input=HOSTILE,
    )
    chain = PartChain()
    for text in ("system", "question"):
        part = await w.part({"role": text})
        chain.add(part.number, part.leaf)
    step = t.new("st")
    for attempt, ending in enumerate(("failed", "lost", "completed"), 1):
        t.tell(
            InferenceRequested(step_id=step, model=w.name("große"), provider="p", attempt=attempt),
            content={"messages": chain.as_list(), "settings": {"t": 0.5}},
            name="große",
        )
        usage = Usage(prompt=100 * attempt, completion=7, cached=3)
        if ending == "failed":
            t.tell(InferenceFailed(step_id=step, error_code="timeout", attempt=attempt, usage=usage), error="too late")
        elif ending == "lost":
            t.tell(InferenceLost(step_id=step, attempt=attempt))
        else:
            t.tell(
                InferenceCompleted(step_id=step, finish="tool_use", attempt=attempt, usage=usage),
                content={"message": "…"},
            )
        t.cost(step, None if ending == "lost" else "0.000000000000000001", "USD", usage)
    t.cost(None, "3.10", "EUR")
    t.tell(
        StepCompleted(step_id=t.new("st"), name="score", duration_us=10),
        content={"output": {"api_key": SECRET}},
        output={"api_key": SECRET},
    )
    t.tell(StepFailed(step_id=t.new("st"), name="parse", error_code="bad"), content={"error": "x"}, error="x")
    t.tell(
        StepCompleted(step_id=t.new("st"), name="find", type="retrieval"),
        content={"output": [1], "citations": ["doc 1"]},
    )
    t.tell(ContextCompressed(step_id=t.new("st"), tokens_before=900, tokens_after=90), content={"summary": "s"})
    await _tools(t)
    t.tell(RunPaused(reason="waiting"))
    t.tell(RunResumed())
    if finish:
        t.tell(RunSucceeded(), content={"output": "done"}, output="done")
    await w.barrier()
    if finish:
        await w.close()
        await _annex(scope, t)
    return t


async def _tools(t: Teller) -> None:
    w, files = t.writer, t.ledger.files
    good = t.dispatch("mail")
    big = await store_artifact(
        w,
        files,
        b"x" * 9000,
        artifact_id=t.new("art"),
        kind="tool_result",
        type_="text",
        mime="text/plain",
        tool_call_id=good,
    )
    t.later(good, ToolAnswered, result_bytes=9000, artifact_id=big.artifact_id, duration_us=2500)
    huge = await store_artifact(
        w, files, bytes(range(256)) * 5000, artifact_id=t.new("art"), kind="output", type_="binary", mime="image/png"
    )
    assert huge.size_bytes > 1024 * 1024
    t.later(t.dispatch("pay"), ToolFailed, how="answered", error_code="declined", content={"error": "no"})
    for resolution in ("happened", "did_not_happen", "abandon"):
        doubted = t.dispatch("book")
        t.later(doubted, ToolDoubted, why="timeout")
        t.later(doubted, ToolResolved, resolution=resolution, by="person", content={"basis": "asked", "result": 1})
    again = t.dispatch("ship")
    t.later(again, ToolDoubted, why="crash")
    t.later(again, ToolResolved, resolution="resend", by="person", content={"basis": "safe"})
    t.later(again, ToolDispatched)
    t.answer(again)
    claimed = t.new("tc")
    step, intent = t.new("st"), t.new("int")
    t.ids[claimed] = (step, claimed, intent)
    for kind in ("permission", "egress"):
        t.tell(PolicyDecided(policy="rule", kind=kind, decision="ask", tool_call_id=claimed))  # type: ignore[arg-type]
    claim = Claim(step_id=step, tool="send", key=intent, fingerprint="f", effect_domain=t.run_id)
    t.later(claimed, ToolClaimed, claim=claim, content={"arguments": {}})
    approval = t.new("apr")
    t.tell(
        ApprovalRequested(
            approval_id=approval, tool_call_id=claimed, step_id=step, tool="send", digest="aa", expires_at=9
        )
    )
    t.tell(ApprovalDecided(approval_id=approval, decision="approved", digest="aa"), actor="ann", input="fine")
    t.later(claimed, ToolDispatched)
    t.answer(claimed)
    forgotten = t.new("apr")
    t.tell(ApprovalRequested(approval_id=forgotten, tool_call_id=claimed, step_id=step, tool="send", digest="bb"))
    t.tell(ApprovalExpired(approval_id=forgotten))
    t.tell(ToolRefused(tool_call_id=t.new("tc"), step_id=t.new("st"), tool="rm", reason="policy"), input={"path": "/"})
    t.tell(
        ToolReplayed(tool_call_id=t.new("tc"), step_id=t.new("st"), intent_id=t.ids[good][2], tool="mail"),
        output="again",
    )
    t.tell(
        FeedbackAdded(feedback_id=t.new("fb"), source="evaluator", score="0.5"), content={"comment": "meh"}, input="meh"
    )


async def _annex(scope: ScopedLedger, t: Teller) -> None:
    async with await scope.writer(Stream.annex(t.run_id)) as annex:
        annex.append(Draft(FeedbackAdded(feedback_id=t.new("fb"), source="person"), actor="bob", input="good"))
        annex.append(Draft(IncidentRaised(kind="other"), content={"details": "odd"}))


async def doubtful(scope: ScopedLedger) -> Teller:
    """An imported session with an observed call that was never answered; it stays open."""
    t = await begin(
        scope, origin="imported", workflow_version=None, config_digest=None, user_id=None, subject_kind="session"
    )
    t.inference()
    t.answer(t.dispatch("read", observed=True, decided=False))
    t.dispatch("write", observed=True, decided=False)
    t.tell(RunPaused(reason="imported"))
    await t.writer.barrier()
    return t


__all__ = ["ContentErased", "RunCanceled", "Teller", "begin", "doubtful", "every_event", "with_ledger"]
