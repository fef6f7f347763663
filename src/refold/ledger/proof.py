"""`verify` over a whole ledger: every stream of every scope, and whatever belongs to none."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from refold.errors import RefoldError
from refold.events.identity import Scope, Stream
from refold.ledger.ledger import Ledger, ScopedLedger, open_ledger
from refold.ledger.port import StreamRecord
from refold.ledger.verify import Bad, StreamReport, verify_stream

Progress = Callable[[int, int], None]
"""Told the streams done and in all."""

_CHUNK = 20_000
"""Events after which a worker hands in its streams and takes further ones: small enough to keep two of
them busy to the end.
"""


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


async def verify_all(ledger: Ledger, progress: Progress | None = None, workers: int = 1) -> Proof:
    """Proves every stream in the ledger; rows that belong to no stream are bad too. Goes on after a bad
    stream, and names the first.

    With more than one worker, streams are shared out among that many processes, which read the file
    themselves. They are started afresh, so a script that asks for them needs the usual `if __name__ ==
    "__main__"`.
    """
    try:
        heads, orphan = ledger.store.all_streams()
    except RefoldError as error:
        return Proof(0, 0, 0, Bad("", 0, f"the table of streams cannot be read: {error.message}"))
    if workers > 1:
        reports = await _share_out(ledger.path, heads, progress, workers)
    else:
        reports = []
        for done, head in enumerate(heads):
            if progress is not None:
                progress(done, len(heads))
            reports.append(await _prove_head(ledger, head))
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


async def _share_out(
    path: Path, heads: Sequence[StreamRecord], progress: Progress | None, workers: int
) -> list[StreamReport]:
    # Only this needs them, and whoever opens a ledger would wait for them.
    import multiprocessing
    from concurrent.futures import ProcessPoolExecutor

    loop = asyncio.get_running_loop()
    reports: list[StreamReport] = []
    # Not forked: a child would inherit the locks of this process's threads as they happen to be.
    with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn")) as pool:
        tasks = [loop.run_in_executor(pool, _prove_chunk, path, chunk) for chunk in _chunks(heads)]
        for task in tasks:
            if progress is not None:
                progress(len(reports), len(heads))
            reports += await task
    return reports


def _chunks(heads: Sequence[StreamRecord]) -> Iterator[list[StreamRecord]]:
    chunk: list[StreamRecord] = []
    events = 0
    for head in heads:
        chunk.append(head)
        # A head that was changed may say anything, also what is not a number.
        events += head.seq if head.intact else _CHUNK
        if events >= _CHUNK:
            yield chunk
            chunk, events = [], 0
    if chunk:
        yield chunk


def _prove_chunk(path: Path, heads: Sequence[StreamRecord]) -> list[StreamReport]:
    """What a worker does."""

    async def prove() -> list[StreamReport]:
        async with await open_ledger(path, create=False) as ledger:
            return [await _prove_head(ledger, head) for head in heads]

    return asyncio.run(prove())


async def _prove_head(ledger: Ledger, head: StreamRecord) -> StreamReport:
    try:
        if not head.intact:
            raise ValueError("the row of the stream's head was changed")
        scope = ledger.scope(Scope(head.tenant, head.workspace))
        return await _prove(scope, Stream.parse(head.stream))
    except (RefoldError, ValueError, TypeError) as error:
        return StreamReport(0, 0, Bad(str(head.stream), 0, str(error)))


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
