"""`refold events`: a run's events after a position, then the live tail. `refold export`: events for other programs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any, BinaryIO

import click

from refold.cli.context import ACTOR, Cli, command
from refold.cli.output import event_line

if TYPE_CHECKING:
    from refold.events.envelope import Event
    from refold.events.identity import Stream
    from refold.ledger.ledger import ScopedLedger

SCHEMA_VERSION = 1
"""Version of the export's envelope {schema_version, record_type, record}."""
_PAGE = 64  # Events are often many kilobytes.


@command("events")
@click.argument("run")
@click.option("--after", type=click.IntRange(0), default=0, metavar="SEQ", help="Only events after this seq.")
@click.option("--follow", is_flag=True, help="Then each further event as it is committed, until the stream is closed.")
@click.option("--annex", is_flag=True, help="The annex: what was recorded about the run after its end.")
def events(cli: Cli, run: str, after: int, follow: bool, annex: bool) -> None:
    """Print a run's events, and follow it.

    Replay kind 2, catch-up. With --json one object a line.

    A read of the record: nothing runs, costs nothing.
    """

    async def work(scope: ScopedLedger) -> None:
        from refold.events.identity import Stream

        run_id = await scope.resolve_run(run)
        stream = Stream.annex(run_id) if annex else Stream.run(run_id)
        await _reached(scope, stream, after)
        async for page in _following(scope, stream, after) if follow else _pages(scope, stream, after):
            if cli.as_json:
                for event in await _shown(scope, stream, page):
                    cli.out.json(event)
            else:
                for each in page:
                    event_line(cli.out, each)
            if follow:
                cli.out.flush()

    cli.on_scope(work)


async def _reached(scope: ScopedLedger, stream: Stream, after: int) -> None:
    from refold.ledger.errors import BeyondHead

    async with scope.reader() as reader:
        head = await reader.head(stream)
    seq = 0 if head is None else head.head.seq
    if after > seq:
        raise BeyondHead(
            f"{stream} stands at seq {seq} and has not reached {after}.",
            stream=str(stream),
            seq=after,
            head=seq,
        )


async def _pages(scope: ScopedLedger, stream: Stream, after: int = 0) -> AsyncIterator[list[Event]]:
    while True:
        async with scope.reader() as reader:
            page = await reader.events(stream, after, limit=_PAGE)
        if not page:
            return
        yield page
        after = page[-1].seq


async def _following(scope: ScopedLedger, stream: Stream, after: int) -> AsyncIterator[list[Event]]:
    async for event in scope.follow(stream, after):
        yield [event]


async def _shown(scope: ScopedLedger, stream: Stream, page: list[Event]) -> list[dict[str, Any]]:
    from refold.replay.present import events_json

    async with scope.reader() as reader:
        return await events_json(reader, stream, page)


@command("export")
@click.argument("runs", nargs=-1, metavar="[RUN]...")
@click.option("--all", "everything", is_flag=True, help="All runs of the scope.")
@click.option(
    "--out", "target", type=click.File("wb", lazy=True), default="-", help="A file instead of standard output."
)
def export(cli: Cli, runs: tuple[str, ...], everything: bool, target: BinaryIO) -> None:
    """Write events as JSON Lines.

    Each line is {schema_version, record_type, record}; the record is what `refold events --json` shows: facts, content
    with secrets replaced, and views, never the exact bytes. A run's annex follows the run. That an export was made is
    recorded in the scope's own stream before its first byte.
    """
    if bool(runs) == everything:
        raise click.UsageError("Name the runs to export, or say --all.")

    async def work(scope: ScopedLedger) -> None:
        from refold.events.identity import Stream
        from refold.ledger.access import record_export

        chosen = [await scope.resolve_run(run) for run in runs]
        await record_export(scope, chosen, actor=ACTOR)
        for run_id in chosen:
            await _export(scope, Stream.run(run_id), target)
        after: Stream | None = None
        while everything:
            async with scope.reader() as reader:
                page = await reader.heads(after)
            if not page:
                break
            for found in page:
                if found.stream.kind == "run":
                    await _export(scope, found.stream, target)
            after = page[-1].stream

    cli.on_scope(work)


async def _export(scope: ScopedLedger, run: Stream, target: BinaryIO) -> None:
    from refold.events.identity import Stream
    from refold.replay.present import to_json

    for stream in (run, Stream.annex(run.run_id)):
        async for page in _pages(scope, stream):
            for event in await _shown(scope, stream, page):
                record = {"run_id": stream.run_id, "stream": str(stream), **event}
                envelope = {"schema_version": SCHEMA_VERSION, "record_type": "event", "record": record}
                target.write(to_json(envelope) + b"\n")
