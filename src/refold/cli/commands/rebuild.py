"""`refold rebuild`: every table folded again from the events and compared with what is stored."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from refold.cli.context import Cli, command
from refold.cli.output import Cell, Output
from refold.cli.progress import Progress
from refold.cli.shapes import counted
from refold.cli.statuses import PROOF_BROKEN, UNEQUAL
from refold.errors import RefoldError

if TYPE_CHECKING:
    from refold.ledger.ledger import Ledger


class ProofBroken(RefoldError):
    """The events are not what was committed, so tables made of them would be wrong too. Nothing was written."""

    code = "proof_broken"
    exit_status = PROOF_BROKEN
    remedy = "Run `refold verify --all`, keep the file, and restore the latest backup that verifies."


@command("rebuild")
@click.option("--projection", metavar="NAME", help="Compare only this table.")
@click.option(
    "--swap", is_flag=True, help="Where something differs, put the folded tables in place of the stored ones."
)
def rebuild(cli: Cli, projection: str | None, swap: bool) -> int:
    """Fold all tables again and compare.

    Replay kind 5 for the whole ledger, every scope of it: nothing runs, and nothing is written without --swap.

    Ends with status 5 when something differs and was not swapped. Refuses to swap, with status 7, when the proof of the
    events is broken: the stored tables may then be the last good copy.
    """
    import asyncio

    from refold.ledger.maintenance.migration import fold_again
    from refold.ledger.maintenance.rebuild import rebuild as compare

    with Progress() as progress:
        found = asyncio.run(compare(cli.ledger_path, projection, lambda events: progress(f"folded {events} events")))
        swapped = swap and not found.equal
        if swapped:
            cli.on_ledger(_prove)
            asyncio.run(fold_again(cli.ledger_path, progress=lambda events: progress(f"folded {events} events")))
    answer = {
        "equal": found.equal,
        "events": found.events,
        "rows": found.rows,
        "different": found.different,
        "differences": [each._asdict() for each in found.differences],
        "swapped": swapped,
    }
    cli.answer(answer, _print)
    return 0 if found.equal or swapped else UNEQUAL


async def _prove(ledger: Ledger) -> None:
    from refold.ledger.proof import verify_all

    bad = (await verify_all(ledger)).first_bad
    if bad is not None:
        raise ProofBroken(
            f"The events are not what was committed, first at seq {bad.seq} of {bad.stream or 'the ledger'}: "
            f"{bad.what}; the stored tables were left as they are.",
            stream=bad.stream,
            seq=bad.seq,
        )


def _print(out: Output, answer: dict[str, Any]) -> None:
    folded = f"{counted(answer['events'], 'event')} folded into {counted(answer['rows'], 'row')}"
    if answer["equal"]:
        out.line(Cell("Equal", "good"), f": {folded}, the same as stored.")
        return
    out.line(Cell("Unequal", "bad"), f": {folded}, {counted(answer['different'], 'row')} stored otherwise.")
    for each in answer["differences"]:
        key = " ".join(str(value) for value in each["key"].values())
        what = f"{each['column']} is {each['stored']!r}, folded {each['folded']!r}"
        if each["column"] is None:
            what = "no such row is stored" if each["stored"] is None else "no event makes this row"
        out.line(f"  {each['table']} {key}: {what}")
    if answer["different"] > len(answer["differences"]):
        out.line(f"  and {answer['different'] - len(answer['differences'])} more")
    if answer["swapped"]:
        out.line("The tables folded again stand in their place.")
