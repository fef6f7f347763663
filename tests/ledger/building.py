"""Small ledgers for tests: one of everything that can be stored."""

from __future__ import annotations

from pathlib import Path

from refold.events.catalog import governance, inference, run, steps, tool
from refold.events.content import PartChain
from refold.events.identity import Stream
from refold.ledger.artifacts import store_artifact
from refold.ledger.drafts import Draft
from refold.ledger.ledger import Ledger, ScopedLedger, open_ledger
from refold.ledger.writer import StreamWriter
from refold.testing.simulated import SimulatedClock, SimulatedIds


async def open_simulated(path: Path, seed: int = 1) -> Ledger:
    """A ledger whose times and ids depend on nothing but the seed."""
    clock = SimulatedClock()
    return await open_ledger(path, clock=clock, ids=SimulatedIds(clock, seed))


async def one_of_everything(scope: ScopedLedger, key: str = "everything", turns: int = 8) -> str:
    """A closed run with inferences over a growing conversation, tools, a doubt, artifacts of both sizes, costs, an
    approval, and an annex with feedback. Returns its id."""
    ids = scope.ledger.ids
    created = run.RunCreated("support", "domain", "root", input_digest="00" * 16)
    writer = await scope.create(Draft(created, content={"input": {"order": key}}, input={"order": key}), key=key)
    assert isinstance(writer, StreamWriter)
    async with writer:
        writer.append(Draft(run.RunStarted()))
        await _conversation(scope, writer, turns)
        await _artifact(scope, writer, b"a" * 9000 + key.encode())
        await _artifact(scope, writer, bytes(range(256)) * 5000)
        step = ids.new("st")
        writer.append(Draft(steps.StepCompleted(step, "rank", duration_us=1500), content={"output": [1, 2.5, None]}))
        approval = ids.new("apr")
        writer.append(
            Draft(
                governance.ApprovalRequested(approval, ids.new("tc"), step, "refund", "ab" * 16),
                content={"arguments": {"n": 1}},
            )
        )
        writer.append(Draft(governance.ApprovalDecided(approval, "approved", "ab" * 16), input="fine", actor="ada"))
        await writer.barrier()
        writer.append(Draft(run.RunSucceeded(), content={"output": "done"}, output="done"))
    async with await scope.writer(Stream.annex(writer.stream.run_id)) as annex:
        annex.append(
            Draft(
                governance.FeedbackAdded(ids.new("fb"), "person", "0.5"),
                content={"comment": "good"},
                input="good",
                actor="ada",
            )
        )
    return writer.stream.run_id


async def _conversation(scope: ScopedLedger, writer: StreamWriter, turns: int) -> None:
    ids, chain = scope.ledger.ids, PartChain()
    for turn in range(turns):
        question = await writer.part({"role": "user", "content": f"question {turn} " * 20})
        chain.add(question.number, question.leaf)
        step = ids.new("st")
        request = inference.InferenceRequested(step, "main", "local")
        writer.append(Draft(request, content={"messages": chain.as_list()}, input=question.shown["content"]))
        answer = await writer.part({"role": "assistant", "content": f"answer {turn} " * 30})
        chain.add(answer.number, answer.leaf)
        only = PartChain()
        only.add(answer.number, answer.leaf)
        usage = inference.Usage(100 + turn, 10, 5)
        writer.append(
            Draft(inference.InferenceCompleted(step, "stop", usage=usage), content={"message": only.as_list()})
        )
        writer.append(
            Draft(
                inference.CostRecorded(
                    ids.new("cost"),
                    f"{step}#1",
                    step,
                    "USD",
                    f"0.0{turn}1",
                    provider="local",
                    model="main",
                    usage=usage,
                )
            )
        )
        call, intent = ids.new("tc"), ids.new("int")
        claim = tool.Claim(
            step_id=ids.new("st"),
            tool="look_up",
            key=writer.digest("call", f"{writer.stream.run_id}{turn}".encode()),
            fingerprint="00" * 16,
            effect_domain="d",
        )
        writer.append(
            Draft(
                tool.ToolDispatched(intent_id=intent, tool_call_id=call, revision=1, claim=claim, observed=turn == 3),
                content={"arguments": {"n": turn}},
                input={"n": turn},
                ref=f"call_{turn}",
            )
        )
        if turn != 3:
            writer.append(
                Draft(
                    tool.ToolAnswered(intent_id=intent, tool_call_id=call, revision=2, result_bytes=12),
                    content={"result": {"found": turn}},
                    output={"found": turn},
                )
            )
        await writer.barrier()


async def _artifact(scope: ScopedLedger, writer: StreamWriter, data: bytes) -> None:
    await store_artifact(
        writer,
        scope.ledger.files,
        data,
        artifact_id=scope.ledger.ids.new("art"),
        kind="attachment",
        type_="binary",
        mime="application/octet-stream",
    )
