"""The recorder: puts what was made of a source's records into a run, and knows what is there already.

A record of the source (a line, a message) becomes a fixed list of events, appended in one go and so committed
together; the last of them carries the record's mark. An import that was interrupted goes on behind the last mark, and
one that is repeated compares marks and writes nothing.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

import msgspec

from refold.events import values
from refold.events.catalog import SourceRecord
from refold.events.catalog.run import RunCreated, RunPaused, RunStarted
from refold.events.content import decode_content
from refold.events.identity import Stream, keyed_digest
from refold.interop.importers.conversation import Conversation, OpenCall, OpenCalls
from refold.interop.importers.recorded import Mark, Recorded
from refold.interop.importers.report import ImportConflict, RunReport, Tally
from refold.ledger.artifacts import ArtifactFiles
from refold.ledger.drafts import Draft, view_text
from refold.ledger.ledger import Existing, ScopedLedger
from refold.ledger.writer import Part, StreamWriter

BATCH_EVENTS = 600
BATCH_BYTES = 2 * 1024 * 1024
"""What is written between two commits; it bounds what an import holds in memory."""
UNKNOWN = "unknown"
_MOST_NAMES = 1000


class Source(NamedTuple):
    """A record of a source: its number (from 1), the line where it stands, its size and its keyed digest."""

    number: int
    line: int
    size: int
    digest: str


class Recorder:
    """One run of a source on its way into the ledger. `on_commit` is awaited after each durable batch."""

    def __init__(self, scope: ScopedLedger, report: RunReport, on_commit: Callable[[int], Awaitable[None]]) -> None:
        self._scope = scope
        self.report = report
        self._on_commit = on_commit
        self.new = scope.ledger.ids.new
        self._recorded: Recorded | None = None
        self._writer: StreamWriter | None = None
        self._tally = Tally()
        self.conversation = Conversation()
        self.calls = OpenCalls()
        self._summary: tuple[int | None, int] = (None, 1)
        self._drafts: list[Draft] = []
        self._names: dict[str, tuple[str, str]] = {}
        self._events = 0
        self._bytes = 0
        self.last_text = ""
        """The text of the last message, which a request's summary shows."""
        self.last_clean = False
        """Whether it is known to hold no secret."""

    def digest(self, data: bytes) -> str:
        """The keyed digest that stands for a record."""
        return keyed_digest(self._scope.secret, "import record", data).hex()[:16]

    async def begin(self, key: str, source: Source, workflow: str, header: Any, *, at: int | None, ended: bool) -> None:
        """Opens the run that has this key, or creates it. `ended`: the source marks the run's end later on."""
        run_id = self.new("run")
        created = Draft(
            RunCreated(workflow, run_id, run_id, origin="imported", subject_kind="session"),
            content={"input": header},
            input=header,
            occurred_at=at,
        )
        then = [Draft(RunStarted(), occurred_at=at)]
        if not ended:
            # At once and not at the end: what a growing session gains later then changes nothing before it.
            then.append(Draft(RunPaused("imported"), occurred_at=at))
        made = await self._scope.create(created, run_id, key)
        if isinstance(made, Existing):
            self.report.run_id = made.run_id
            self._recorded = recorded = Recorded(self._scope, Stream.run(made.run_id))
            if await self.known(source) is not None:
                return
            then = then[max(0, recorded.tally.events - 1) :]
        else:
            self.report.run_id = run_id
            self.report.created = True
            self._writer = made
            self._tally.count(created.facts)
            self.report.added += 1
        self._drafts = then
        await self.commit(source)

    # Comparing with what is there

    async def known(self, source: Source) -> Mark | None:
        """The mark of a record that the ledger has already; None for one that must be written now.

        Raises ImportConflict when the ledger has another record in its place.
        """
        if self._recorded is None:
            return None
        mark = await self._recorded.next()
        if mark is None and self._writer is None:
            self._writer = await self._scope.writer(Stream.run(str(self.report.run_id)))
            mark = await self._recorded.next()  # What another process wrote before this one had the stream.
        if mark is None:
            await self._restore()
            return None
        if (mark.record.number, mark.record.digest) != (source.number, source.digest):
            raise ImportConflict(
                f"Line {source.line} of {self.report.source} (record {source.number}) is not the record that "
                f"{self.report.run_id} was imported from.",
                source=self.report.source,
                line=source.line,
                record=source.number,
                run_id=self.report.run_id,
            )
        compressed = mark.type == "context.compressed"
        self.conversation.note(source.number, mark.record.part, replaces=compressed)
        if compressed:
            self._summary = (mark.record.part, 1)
        return mark

    def kept_from(self, record: int) -> None:
        """Says from which record on messages were kept at the compaction that `known` has just found."""
        self._summary = (self._summary[0], record)

    async def _restore(self) -> None:
        """Takes up where the ledger stands: the conversation, and the calls that wait for results."""
        recorded, writer = self._recorded, self.writer
        assert recorded is not None
        self._recorded = None
        self._tally = recorded.tally
        await self.conversation.rebuild(self._scope, writer, *self._summary)
        waiting = sorted(
            (call for call in writer.state.open.calls.values() if call.observed), key=lambda call: call.seq
        )
        async with self._scope.reader() as reader:
            for call in waiting:
                row = (await reader.raw_events(writer.stream, call.seq - 1, call.seq, 1))[0]
                content = values.decode(bytes(decode_content(row.content or b"").values), dict[str, Any])
                provider_id, turn = content["provider_call_id"], row.cause or 0
                self.calls.add(
                    provider_id, OpenCall(call.tool_call_id, call.intent_id or "", call.run_step_id, turn, call.seq)
                )

    # Writing

    @property
    def writer(self) -> StreamWriter:
        """The stream's writer; there is one as soon as a record must be written."""
        if self._writer is None:
            raise RuntimeError("nothing is to be written yet: `known` has not said so")
        return self._writer

    def add(self, draft: Draft) -> int:
        """Puts an event on the record's list and returns the seq that it will have."""
        self._drafts.append(draft)
        return self.writer.head.seq + len(self._drafts)

    async def commit(self, source: Source, part: Part | None = None, *, replaces: bool = False) -> None:
        """Appends the record's events, the mark on the last, and makes a batch durable when it is large enough."""
        drafts, self._drafts = self._drafts, []
        number = None if part is None else part.number
        last = drafts[-1]
        last.facts = msgspec.structs.replace(last.facts, record=SourceRecord(source.number, source.digest, number))
        # No await in this loop: nothing is committed between a record's first event and its last.
        for draft in drafts:
            self.writer.append(draft)
            self._tally.count(draft.facts)
        self.conversation.note(source.number, number, replaces=replaces)
        self.report.added += len(drafts)
        self._events += len(drafts)
        self._bytes += source.size
        if self._events >= BATCH_EVENTS or self._bytes >= BATCH_BYTES:
            await self.flush()

    async def flush(self) -> None:
        """Makes everything durable that was appended."""
        self._events = self._bytes = 0
        if self._writer is not None:
            await self._writer.barrier()
            await self._on_commit(self.report.added)

    @property
    def tool_calls(self) -> int:
        """How many calls the run has, the record under way not counted."""
        return self._tally.tool_calls

    @property
    def files(self) -> ArtifactFiles:
        """Where artifacts go that are too large for the ledger's own file."""
        return self._scope.ledger.files

    async def restart(self, summary: int, first_kept: int) -> None:
        """Makes the conversation a summary and the messages of the records from `first_kept` on; all must
        be durable.
        """
        await self.conversation.rebuild(self._scope, self.writer, summary, first_kept)

    async def end(self) -> None:
        """Makes everything durable, lets the stream go, and fills the report."""
        if self._writer is not None:
            await self._writer.close()
        if self._recorded is not None:
            await self._recorded.finish()
            self._tally = self._recorded.tally
        self.report.take(self._tally)

    async def abandon(self) -> None:
        """Lets the stream go after an error."""
        if self._writer is not None and self._writer.alive:
            await self._writer.close()

    def named(self, text: str) -> tuple[str, str | None]:
        """A name that comes from the file: what stands for it in facts, and what the view may show of it."""
        if text == UNKNOWN:
            return text, None
        known = self._names.get(text)
        if known is None:
            if len(self._names) >= _MOST_NAMES:
                self._names.clear()
            redactor = self._scope.ledger.redactor
            known = self._names[text] = (self.writer.name(text), view_text(redactor, text)[0])
        return known
