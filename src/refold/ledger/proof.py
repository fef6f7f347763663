"""`verify` over a whole ledger: every stream of every scope, and whatever belongs to none."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from refold.errors import RefoldError
from refold.events.identity import Scope, Stream
from refold.ledger.ledger import Ledger, ScopedLedger
from refold.ledger.verify import Bad, StreamReport, verify_stream

Progress = Callable[[int, int], None]
"""Told the streams done and in all."""


class Proof(NamedTuple):
    """The sum of the streams' reports."""

    streams: int
    events: int
    redacted: int
    first_bad: Bad | None

    @property
    def ok(self) -> bool:
        return self.first_bad is None


async def verify_run(scope: ScopedLedger, run_id: str) -> Proof:
    """Proves a run and its annex. Raises RunNotFound."""
    await scope.run_head(run_id)
    reports = [await _prove(scope, Stream.run(run_id))]
    async with scope.reader() as reader:
        annex = await reader.head(Stream.annex(run_id))
    if annex is not None:
        reports.append(await _prove(scope, Stream.annex(run_id)))
    return _sum(reports)


async def verify_all(ledger: Ledger, progress: Progress | None = None) -> Proof:
    """Proves every stream in the ledger; rows that belong to no stream are bad too. Goes on after a bad stream, and
    names the first.
    """
    try:
        heads, orphan = ledger.store.all_streams()
    except RefoldError as error:
        return Proof(0, 0, 0, Bad("", 0, f"the table of streams cannot be read: {error.message}"))
    reports = []
    for done, head in enumerate(heads):
        if progress is not None:
            progress(done, len(heads))
        try:
            if not head.intact:
                raise ValueError("the row of the stream's head was changed")
            scope = ledger.scope(Scope(head.tenant_id, head.workspace_id))
            reports.append(await _prove(scope, Stream.parse(head.stream)))
        except (RefoldError, ValueError, TypeError) as error:
            reports.append(StreamReport(0, 0, Bad(str(head.stream), 0, str(error))))
    if orphan is None and all(report.first_bad is None for report in reports):
        fault = _structure(ledger)
        if fault is not None:
            reports.append(StreamReport(0, 0, fault))
    if orphan is not None:
        reports.append(
            StreamReport(0, 0, Bad(orphan, 0, "there are events or blobs, and no stream that they belong to"))
        )
    return _sum(reports)


def _structure(ledger: Ledger) -> Bad | None:
    try:
        fault = ledger.store.structure()
    except RefoldError as error:
        fault = error.message
    return None if fault is None else Bad("", 0, f"the database's structure is damaged: {fault}")


async def _prove(scope: ScopedLedger, stream: Stream) -> StreamReport:
    async with scope.reader() as reader:
        return await verify_stream(reader, stream, scope.ledger.files)


def _sum(reports: list[StreamReport]) -> Proof:
    return Proof(
        len(reports),
        sum(report.events for report in reports),
        sum(report.redacted for report in reports),
        next((report.first_bad for report in reports if report.first_bad is not None), None),
    )
