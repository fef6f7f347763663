"""Payloads, and ledgers filled with them."""

from __future__ import annotations

import base64
import random
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from refold.events.catalog.inference import InferenceCompleted, InferenceRequested
from refold.events.catalog.run import RunCreated, RunStarted, RunSucceeded
from refold.events.catalog.steps import StepCompleted
from refold.events.catalog.tool import Claim, ToolAnswered, ToolDispatched
from refold.events.content import PartChain
from refold.ledger.drafts import Draft
from refold.ledger.ledger import ScopedLedger, open_ledger
from refold.ledger.writer import StreamWriter

SEED = 20261129
WORKFLOW = "benchmark"


class RuntimeSizes(msgspec.Struct):
    """How much the groups of the runtime do. `peer_*`: what of it the peers do, whose cost an operation is the same
    for fewer.
    """

    warm: int
    """Tool calls before the measured ones, enough of them for the WAL to have wrapped."""
    calls: int
    busy_calls: int
    """Tool calls beside a thread that computes."""
    steps: int
    wide: int
    many_calls: int
    """Tool calls of all runs together, where several run at once."""
    resumed: int
    peer_calls: int
    peer_steps: int
    peer_resumed: int
    rounds: int


class Sizes(msgspec.Struct):
    """How much of everything one run of the benchmarks does."""

    rounds: int
    bulk_rounds: int
    append: int
    batch: int
    load: int
    open: int
    bulk: int
    streams: int
    room: tuple[int, ...]
    turns: tuple[int, ...]
    starts: int
    packages: bool
    runtime: RuntimeSizes


FULL = Sizes(
    7,
    5,
    20_000,
    1_000,
    10_000,
    100_000,
    1_000_000,
    100,
    (100, 1_000, 10_000),
    (100, 500, 1_000),
    15,
    True,
    RuntimeSizes(400, 1_000, 50, 10_000, 1_000, 3_200, 10_000, 500, 1_000, 10_000, 5),
)
QUICK = Sizes(
    1,
    1,
    100,
    50,
    60,
    120,
    200,
    4,
    (100, 200),
    (20, 40),
    1,
    False,
    RuntimeSizes(4, 10, 3, 60, 30, 128, 50, 5, 10, 20, 1),
)


_VOCABULARY = Path(__file__).with_name("vocabulary.txt").read_text(encoding="utf-8").split()


def words(size: int, count: int = 200, seed: int = SEED) -> list[str]:
    """Texts of `size` bytes that compress as prose does: ordinary words, drawn the more often the shorter they are."""
    draw = random.Random(seed)
    weights = [1 / len(word) ** 2 for word in _VOCABULARY]
    return [" ".join(draw.choices(_VOCABULARY, weights, k=size // 2 + 1))[:size] for _ in range(count)]


def noise(size: int, count: int = 200, seed: int = SEED) -> list[str]:
    """Texts of `size` bytes that do not compress beyond what base64 leaves: 6 of 8 bits are random."""
    draw = random.Random(seed)
    return [base64.b64encode(draw.randbytes(size)).decode()[:size] for _ in range(count)]


PAYLOADS: dict[str, Callable[[int], list[str]]] = {"words": words, "base64": noise}


async def begin(scope: ScopedLedger, key: str) -> StreamWriter:
    """A new run, started."""
    writer = await scope.create(Draft(RunCreated(workflow=WORKFLOW, effect_domain="d", lineage_root="r")), key=key)
    assert isinstance(writer, StreamWriter)
    writer.append(Draft(RunStarted()))
    return writer


def step(writer: StreamWriter, step_id: str, payload: str, site: str = "") -> None:
    """One pure step with its result."""
    writer.append(
        Draft(
            StepCompleted(step_id=step_id, name="score", duration_us=10),
            content={"output": payload},
            output=payload,
            site=site,
        )
    )


async def steps(writer: StreamWriter, ids: Sequence[str], payloads: Sequence[str], batch: int) -> None:
    """Pure steps, `batch` to a commit."""
    for start in range(0, len(ids), batch):
        for place in range(start, min(start + batch, len(ids))):
            step(writer, ids[place], payloads[place % len(payloads)])
        await writer.barrier()


def dispatch(
    writer: StreamWriter, new: Callable[[str], str], number: int, arguments: str, site: str = ""
) -> tuple[str, str]:
    """A call dispatched with its claim; returns the ids of intent and call. `number` is its own in the ledger."""
    intent, call = new("int"), new("tc")
    claim = Claim(
        step_id=new("st"),
        tool="search",
        key=writer.digest("key", number.to_bytes(8, "big")),
        fingerprint=f"{number:032x}",
        effect_domain="d",
    )
    writer.append(
        Draft(
            ToolDispatched(intent_id=intent, tool_call_id=call, revision=1, claim=claim),
            content={"arguments": arguments},
            input=arguments,
            ref=f"call_{number}",
            site=site,
        )
    )
    return intent, call


def answer(writer: StreamWriter, intent: str, call: str, result: str, site: str = "") -> None:
    """The answer to a call that was dispatched."""
    facts = ToolAnswered(intent_id=intent, tool_call_id=call, revision=2, result_bytes=len(result), duration_us=900)
    writer.append(Draft(facts, content={"result": result}, output=result, site=site))


def tool_call(writer: StreamWriter, new: Callable[[str], str], number: int, arguments: str, result: str | None) -> None:
    """One call: dispatched with its claim, and answered. `result` None: left unanswered."""
    intent, call = dispatch(writer, new, number, arguments)
    if result is not None:
        answer(writer, intent, call, result)


async def conversation(
    writer: StreamWriter, new: Callable[[str], str], asked: Sequence[str], said: Sequence[str]
) -> None:
    """A turn for each message asked: all messages so far go to the model again, and its answer joins them."""
    sent = PartChain()
    for question, answer in zip(asked, said, strict=True):
        part = await writer.part({"role": "user", "content": question})
        sent.add(part.number, part.leaf)
        step_id = new("st")
        writer.append(
            Draft(
                InferenceRequested(step_id=step_id, model="m", provider="p"),
                content={"messages": sent.as_list()},
                input=question,
            )
        )
        await writer.barrier()
        part = await writer.part({"role": "assistant", "content": answer})
        sent.add(part.number, part.leaf)
        own = PartChain()
        own.add(part.number, part.leaf)
        writer.append(
            Draft(
                InferenceCompleted(step_id=step_id, finish="stop"),
                content={"message": own.as_list()},
                output=answer,
            )
        )
    await writer.barrier()


async def fill(path: Path, events: int, streams: int, payloads: Sequence[str], batch: int = 1000) -> list[str]:
    """A ledger of closed runs with `events` events altogether; returns the runs' ids."""
    runs = []
    async with await open_ledger(path) as ledger:
        scope = ledger.scope()
        for number in range(streams):
            async with await begin(scope, f"run {number}") as writer:
                count = events // streams - 3
                await steps(writer, [ledger.ids.new("st") for _ in range(count)], payloads, batch)
                writer.append(Draft(RunSucceeded()))
                runs.append(writer.stream.run_id)
    return runs


def size_of(path: Path) -> int:
    """Bytes of a ledger or database and everything beside it that carries its name."""
    return sum(file.stat().st_size for file in path.parent.rglob(path.name + "*") if file.is_file())
