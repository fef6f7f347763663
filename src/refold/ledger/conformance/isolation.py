"""Two tenants with the same names: nothing of one is visible to the other through any function.

`see_only_themselves` interprets a sequence of small instructions, so that a property test can generate and
shrink them; `witness` asks every reading function of one scope for everything, by the other's identities too.
"""

from __future__ import annotations

import random
from typing import Any, Literal, NamedTuple

from refold.errors import RefoldError
from refold.events.catalog.governance import AccessRead, FeedbackAdded
from refold.events.catalog.inference import CostRecorded
from refold.events.catalog.run import RunStarted
from refold.events.catalog.steps import SignalReceived, StepCompleted
from refold.events.catalog.tool import Claim, ToolDispatched
from refold.events.identity import SCOPE_STREAM, Stream
from refold.ledger.artifacts import store_artifact
from refold.ledger.conformance.place import ConformanceFailed, Place, creation, opened, require, same
from refold.ledger.drafts import Draft
from refold.ledger.ledger import Existing, Ledger, ScopedLedger
from refold.ledger.writer import StreamWriter
from refold.projections.rows import ROWS, RunRow

Verb = Literal["create", "step", "part", "artifact", "tool", "cost", "post", "deliver", "feedback", "access"]
VERBS: tuple[Verb, ...] = (
    "create",
    "step",
    "part",
    "artifact",
    "tool",
    "cost",
    "post",
    "deliver",
    "feedback",
    "access",
)

SCOPES = ("one/main", "two/main", "one/other")
"""Two tenants, and a second workspace of the first: three scopes that must not see each other."""
_RUNS = 2


class Step(NamedTuple):
    """One instruction: which scope does what to which run. Equal runs have equal ids in all scopes."""

    scope: int
    verb: Verb
    run: int


async def check_scopes_with_equal_names_see_nothing_of_each_other(place: Place) -> None:
    rnd = random.Random(20261129)
    steps = [Step(rnd.randrange(3), rnd.choice(VERBS), rnd.randrange(_RUNS)) for _ in range(60)]
    async with opened(place) as ledger:
        await see_only_themselves(ledger, steps)


async def see_only_themselves(ledger: Ledger, steps: list[Step]) -> None:
    """Applies the steps; after each, the scopes that it did not touch read exactly what they read before."""
    world = _World(ledger)
    seen = [await witness(scope) for scope in world.scopes]
    for number, each in enumerate(steps):
        await world.apply(each, number)
        for index, scope in enumerate(world.scopes):
            now = await witness(scope)
            if index != each.scope:
                same(
                    now,
                    seen[index],
                    f"{scope.scope} after step {number}, {each.verb} in {SCOPES[each.scope]}",
                )
            seen[index] = now
    for index, scope in enumerate(world.scopes):
        own = f"only {scope.scope}"
        for other, text in enumerate(map(repr, seen)):
            require(other == index or own not in text, f"{SCOPES[other]} sees a text of {scope.scope}")
    await world.close()


async def check_a_scope_cannot_reach_the_runs_of_another_by_their_ids(place: Place) -> None:
    async with opened(place) as ledger:
        world = _World(ledger)
        for verb in VERBS:
            await world.apply(Step(0, verb, 0), 0)
        await world.close()
        run_id = run_ids()[0]
        for other in world.scopes[1:]:
            found = await witness(other)
            same(
                [each for each in found if each[1] not in ([], None, "run_not_found")],
                [],
                f"what {other.scope} reads",
            )
            for verb in ("step", "feedback", "post"):
                try:
                    await _reach(other, run_id, verb)
                except RefoldError as error:
                    same(error.code, "run_not_found", f"{verb} from {other.scope}")
                else:
                    raise ConformanceFailed(f"{other.scope} could {verb} a run of {world.scopes[0].scope}")


async def _reach(scope: ScopedLedger, run_id: str, verb: str) -> None:
    if verb == "post":
        await scope.post(run_id, "k", "signal", b"x")
    else:
        await scope.writer(Stream.run(run_id) if verb == "step" else Stream.annex(run_id))


def run_ids() -> list[str]:
    """The ids that the runs have, the same in every scope."""
    return [f"run_{'0' * 25}{number + 1}" for number in range(_RUNS)]


async def witness(scope: ScopedLedger) -> list[tuple[str, Any]]:
    """What every reading function answers in this scope, by the ids and names that all scopes use."""
    found: list[tuple[str, Any]] = []
    for run in range(_RUNS):
        found.append((f"find {run}", await _answer(scope.find(f"key-{run}"))))
    async with scope.reader() as reader:
        found.append(("heads", await reader.heads()))
        for table in ROWS:
            found.append((f"rows of {table.TABLE.name}", await reader.rows(table)))
            if "run_id" in table.__struct_fields__:
                for run_id in run_ids():
                    found.append((f"{table.TABLE.name} of {run_id}", await reader.rows(table, {"run_id": run_id})))
        for run_id in run_ids():
            found.append((f"runs beginning {run_id}", await reader.rows(RunRow, after=(run_id[:-1],))))
            for stream in (Stream.run(run_id), Stream.annex(run_id), SCOPE_STREAM):
                found.append((f"head {stream}", await reader.head(stream)))
                found.append((f"events {stream}", [tuple(row) for row in await reader.raw_events(stream)]))
                found.append((f"decoded {stream}", [repr(each) for each in await reader.events(stream)]))
                found.append((f"delivering {stream}", [repr(each) for each in await reader.delivering(stream)]))
                found.append((f"blobs {stream}", await reader.blobs(stream)))
                found.append((f"blob {stream}", await reader.blob(stream, 1)))
                found.append((f"snapshots {stream}", await reader.snapshots(stream)))
                found.append((f"inbox {stream}", await reader.inbox(stream)))
                found.append((f"read {stream}", [repr(event) async for event in scope.read(stream)]))
            found.append((f"intents {run_id}", await scope.ledger.store.intents(scope.scope, [f"int_{run_id}"])))
    for run_id in run_ids():
        found.append((f"run head {run_id}", await _answer(scope.run_head(run_id))))
        found.append((f"resolve {run_id}", await _answer(scope.resolve_run(run_id))))
    return found


async def _answer(work: Any) -> Any:
    try:
        return await work
    except RefoldError as error:
        return error.code


class _World:
    """Three scopes, their writers, and the counters that make equal identities in all of them."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self.scopes = [ledger.scope(name) for name in SCOPES]
        self._writers: dict[tuple[int, int], StreamWriter] = {}
        self._posted: dict[tuple[int, int], list[str]] = {}

    async def apply(self, each: Step, number: int) -> None:
        """Does what the instruction says; one for a run that is not there yet creates it."""
        scope = self.scopes[each.scope]
        if each.verb == "access":
            async with await scope.writer(SCOPE_STREAM) as audit:
                audit.append(Draft(AccessRead("events"), actor="auditor", input=f"only {scope.scope}"))
            return
        place = (each.scope, each.run)
        if place not in self._writers:
            created = await scope.create(creation(), run_id=run_ids()[each.run], key=f"key-{each.run}")
            if isinstance(created, Existing):
                raise ConformanceFailed(f"a new run in {scope.scope} was taken for one that exists")
            created.append(Draft(RunStarted()))
            await created.barrier()
            self._writers[place] = created
        await self._extend(each, number, self._writers[place])

    async def _extend(self, each: Step, number: int, writer: StreamWriter) -> None:
        scope = self.scopes[each.scope]
        text = f"only {scope.scope} {number}"
        run_id = writer.stream.run_id
        name = f"{each.run}_{number}"
        match each.verb:
            case "create":
                again = await scope.create(creation(), key=f"key-{each.run}")
                same(getattr(again, "run_id", None), run_id, "the key's run")
            case "step":
                writer.append(Draft(StepCompleted(f"st_{name}", "score"), content={"output": text}, output=text))
            case "part":
                await writer.part("the same words in every scope")
                await writer.part(text)
                writer.append(Draft(StepCompleted(f"st_{name}", "score")))
            case "artifact":
                await store_artifact(
                    writer,
                    self.ledger.files,
                    text.encode(),
                    artifact_id=f"art_{name}",
                    kind="output",
                    type_="text",
                    mime="text/plain",
                )
            case "tool":
                claim = Claim(step_id=f"st_{name}", tool="mail", key=f"k{name}", fingerprint="f", effect_domain="test")
                writer.append(
                    Draft(
                        ToolDispatched(intent_id=f"int_{name}", tool_call_id=f"tc_{name}", revision=1, claim=claim),
                        content={"arguments": text},
                        input=text,
                    )
                )
            case "cost":
                writer.append(Draft(CostRecorded(f"cost_{name}", f"ref-{name}", amount="1"), name=text))
            case "post":
                await scope.post(run_id, f"k{number}", "signal", text.encode())
                self._posted.setdefault((each.scope, each.run), []).append(f"k{number}")
            case "deliver":
                posted = self._posted.get((each.scope, each.run))
                if posted:
                    draft = Draft(SignalReceived(f"st_{name}", "go"), content={"value": text}, input=text)
                    writer.append(draft, delivers=posted.pop(0))
            case "feedback":
                async with await scope.writer(Stream.annex(run_id)) as annex:
                    annex.append(Draft(FeedbackAdded(f"fb_{name}", "person"), input=text))
            case "access":
                pass
        await writer.barrier()

    async def close(self) -> None:
        for writer in self._writers.values():
            await writer.close()
