"""Three scopes of one file that use the same keys and ids, what they can do, and what each can read."""

from __future__ import annotations

from collections.abc import Awaitable
from pathlib import Path
from typing import Any

from refold.clock import SystemClock
from refold.errors import RefoldError
from refold.events.catalog.governance import FeedbackAdded
from refold.events.catalog.run import RunCanceled, RunCreated, RunStarted, RunSucceeded
from refold.events.catalog.steps import StepCompleted
from refold.events.catalog.tool import ToolDoubted
from refold.events.identity import Stream
from refold.ids import SystemIds, encode_ulid
from refold.interop.importers import import_paths
from refold.ledger.artifacts import open_artifact, store_artifact
from refold.ledger.drafts import Draft
from refold.ledger.ledger import Ledger, ScopedLedger, open_ledger
from refold.ledger.maintenance.erasure import erase_run
from refold.ledger.proof import verify_run
from refold.ledger.sqlite.listing import calls_page, prices_of, runs_page
from refold.ledger.writer import StreamWriter
from refold.projections.rows import ArtifactRow, ToolCallRow
from refold.replay.evidence import evidence_pieces
from refold.replay.projection_only import replay_projections
from refold.replay.state import state_at, state_now
from refold.testing.simulated import SimulatedClock
from tests.interop.support import answer, call, result, small_session, text, user, write
from tests.replay.support import Teller

SCOPES = ("a/x", "b/x", "a/y")
RUNS = [f"run_{'0' * 25}{number}" for number in (1, 2)]
VERBS = (
    "infer",
    "ask",
    "answer",
    "doubt",
    "keep",
    "say",
    "feedback",
    "post",
    "move",
    "end",
    "cancel",
    "erase",
    "import",
)


def marker(scope: str) -> str:
    """A word that only this scope writes."""
    return "only-" + scope.replace("/", "-in-")


class EqualIds(SystemIds):
    """Ids that are numbers in order, so that equal work gets equal ids in every scope; salts stay random."""

    def __init__(self) -> None:
        super().__init__(SystemClock())
        self._count = 1000

    def new(self, prefix: str) -> str:
        self._count += 1
        return f"{prefix}_{encode_ulid(self._count)}"


class World:
    """The scopes of one file, each opened by itself with equal clocks and ids, so that equal work gets equal ids."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ledgers: list[Ledger] = []
        self.tellers: dict[tuple[int, int], Teller] = {}
        self.imported: set[str] = set()

    async def open(self) -> None:
        await (await open_ledger(self.folder / "ledger.db")).close()
        for _ in SCOPES:
            ledger = await open_ledger(self.folder / "ledger.db", clock=SimulatedClock(), ids=EqualIds())
            self.ledgers.append(ledger)

    async def close(self) -> None:
        for teller in self.tellers.values():
            if teller.writer.alive:
                await teller.writer.close()
        for ledger in self.ledgers:
            await ledger.close()

    def scope(self, index: int) -> ScopedLedger:
        return self.ledgers[index].scope(SCOPES[index])

    async def apply(self, index: int, verb: str, run: int) -> None:
        """Lets one scope do one thing; one that makes no sense for its run is left out."""
        scope, mark = self.scope(index), marker(SCOPES[index])
        if verb == "import":
            await self._import(scope, mark, SCOPES[index])
            return
        teller = self.tellers.get((index, run)) or await self._begin(index, run)
        writer = teller.writer
        closed = writer.closed
        if verb == "feedback":
            async with await scope.writer(Stream.annex(teller.run_id)) as annex:
                annex.append(Draft(FeedbackAdded(teller.new("fb"), "person"), input=mark, actor=mark))
        elif verb == "move":
            await scope.move_cursor("watcher", writer.stream, (await scope.run_head(teller.run_id)).seq)
        elif verb == "post":
            await scope.post(teller.run_id, "key", "signal", mark.encode())
        elif verb == "erase" and closed:
            await erase_run(scope, teller.run_id, mark, mark)
        elif not closed:
            await self._write(teller, verb, mark)
            await writer.barrier()
            if writer.closed:
                await writer.close()

    async def _begin(self, index: int, run: int) -> Teller:
        scope, mark = self.scope(index), marker(SCOPES[index])
        facts = RunCreated("orders", "d", "root", user_id="user-7", config_digest="ab" * 16)
        draft = Draft(facts, content={"input": mark}, input=mark)
        writer = await scope.create(draft, run_id=RUNS[run], key=f"order-{run}")
        assert isinstance(writer, StreamWriter), "another scope's key was taken for this one's"
        teller = self.tellers[index, run] = Teller(scope.ledger, writer)
        teller.tell(RunStarted())
        await writer.barrier()
        return teller

    async def _write(self, teller: Teller, verb: str, mark: str) -> None:
        waiting = [name for name in teller.ids if teller.writer.awaits(name)]
        match verb:
            case "infer":
                teller.inference()
            case "ask":
                teller.dispatch(mark)
            case "answer" if waiting:
                teller.answer(waiting[0], mark)
            case "doubt" if waiting:
                teller.later(waiting[0], ToolDoubted, why="timeout")
            case "keep":
                await store_artifact(
                    teller.writer,
                    teller.ledger.files,
                    mark.encode() * (700 if len(waiting) % 2 else 90_000),
                    artifact_id=teller.new("art"),
                    kind="output",
                    type_="text",
                    mime="text/plain",
                )
            case "say":
                part = await teller.writer.part("the same words in every scope")
                own = await teller.writer.part(mark)
                assert own.number > part.number
                teller.tell(StepCompleted(teller.new("st"), "score"), content={"output": mark}, output=mark)
            case "end":
                teller.tell(RunSucceeded(), content={"output": mark}, output=mark)
            case "cancel":
                teller.tell(RunCanceled(), content={"basis": mark}, input=mark)

    async def _import(self, scope: ScopedLedger, mark: str, name: str) -> None:
        """The same session, with one word of the scope's own in it."""
        records = [
            *small_session(),
            user(20, mark),
            answer(21, call("own", mark, say=mark), text(mark), stop="toolUse"),
        ]
        path = write(self.folder / f"{mark}.jsonl", [*records, result(22, "own", mark)])
        report = await import_paths(scope, "pi", [path])
        added = sum(run.added for run in report.runs)
        assert bool(added) == (name not in self.imported), "what is imported is known by what this scope has"
        self.imported.add(name)


async def _or_code(work: Awaitable[Any]) -> Any:
    try:
        return await work
    except RefoldError as error:
        return error.code


async def seen(scope: ScopedLedger, run_ids: list[str]) -> dict[str, Any]:
    """What every reading function of replay, listing and proof answers in this scope, also by the others' ids."""
    found: dict[str, Any] = {}
    async with scope.reader() as reader:
        found["runs"] = await runs_page(reader, limit=1000)
        found["doubts"] = await runs_page(reader, in_doubt=True, limit=1000)
        found["named"] = await runs_page(reader, workflow="orders", status="running", before="run_~", limit=1000)
        found["calls"] = await calls_page(reader, limit=1000)
        found["in doubt"] = await calls_page(reader, status="in_doubt", after="tc_", limit=1000)
        found["prices"] = [each async for each in prices_of(reader, run_ids)]
        for run_id in run_ids:
            found[f"calls of {run_id}"] = await calls_page(reader, run_id=run_id, limit=1000)
            found[f"beginning {run_id}"] = await reader.runs_beginning(run_id[:-1])
            artifacts = await reader.rows(ArtifactRow, {"run_id": run_id})
            for row in artifacts:
                blob = await reader.blob(Stream.run(run_id), row.blob)
                try:
                    found[f"artifact {row.artifact_id}"] = open_artifact(row, blob, scope.ledger.files)[:100]
                except RefoldError as error:
                    found[f"artifact {row.artifact_id}"] = error.code
        found["call rows"] = await reader.rows(ToolCallRow, limit=10_000)
    for run_id in run_ids:
        found[f"evidence {run_id}"] = await _or_code(_bundle(scope, run_id))
        found[f"state {run_id}"] = await _or_code(state_now(scope, run_id))
        found[f"first state {run_id}"] = await _or_code(state_at(scope, run_id, 1))
        found[f"replay {run_id}"] = await _or_code(replay_projections(scope, run_id))
        found[f"proof {run_id}"] = await _or_code(verify_run(scope, run_id))
        found[f"resolved {run_id}"] = await _or_code(scope.resolve_run(run_id))
        found[f"cursor {run_id}"] = await _or_code(scope.cursor("watcher", Stream.run(run_id)))
        found[f"follow {run_id}"] = await _or_code(anext(scope.follow(Stream.run(run_id))))
    for number in range(len(RUNS)):
        found[f"key {number}"] = await _or_code(scope.find(f"order-{number}"))
    return found


async def _bundle(scope: ScopedLedger, run_id: str) -> bytes:
    return b"".join([piece async for piece in evidence_pieces(scope, run_id)])


async def known_runs(world: World) -> list[str]:
    known = set(RUNS)
    for index in range(len(SCOPES)):
        async with world.scope(index).reader() as reader:
            known |= {each.run_id for each in await runs_page(reader, limit=1000)}
    return sorted(known)
