"""Recovery: a run that nobody writes any more is found by whoever looks."""

from __future__ import annotations

from refold.events.catalog.run import RunStarted, RunSucceeded
from refold.events.identity import Stream
from refold.ledger.conformance.place import SCOPE, Place, new_run, opened, same
from refold.ledger.drafts import Draft
from refold.ledger.ledger import ScopedLedger


async def check_a_run_without_a_living_owner_is_found_until_somebody_opens_it(place: Place) -> None:
    async with opened(place) as ledger, opened(place) as other:
        mine, theirs = ledger.scope(SCOPE), other.scope(SCOPE)
        lives, let_go, ended = [await new_run(theirs) for _ in range(3)]
        ended.append(Draft(RunStarted()))
        ended.append(Draft(RunSucceeded()))
        for writer in (let_go, ended):
            await writer.close()
        orphan = let_go.stream.run_id
        same(await _found(mine), [orphan], "runs that nobody writes")
        same(await _found(theirs), [orphan], "the same for the process that let it go")
        taken = await mine.writer(Stream.run(orphan))
        same(await _found(theirs), [], "after it was opened")
        await lives.close()
        await taken.close()
        same(await _found(mine), sorted([orphan, lives.stream.run_id]), "after both were let go")


async def check_an_owner_whose_lease_has_expired_counts_as_none(place: Place) -> None:
    async with opened(place) as frozen, opened(place) as ledger:
        runs = [(await new_run(frozen.scope(SCOPE))).stream.run_id for _ in range(2)]
        same(await _found(ledger.scope(SCOPE)), [], "runs whose owner lives")
        place.expire_leases()
        same(await _found(ledger.scope(SCOPE)), sorted(runs), "runs whose owner is frozen")
        same(await _found(frozen.scope(SCOPE)), [], "what the owner itself is told")


async def check_a_closed_ledger_leaves_its_runs_to_others(place: Place) -> None:
    async with opened(place) as gone:
        run = (await new_run(gone.scope(SCOPE))).stream.run_id
    async with opened(place) as ledger:
        (row,) = await ledger.scope(SCOPE).unowned_runs()
        same((row.run_id, row.status, row.workflow), (run, "queued", "orders"), "the run's row")


async def check_unowned_runs_come_in_pages_and_from_their_scope_alone(place: Place) -> None:
    async with opened(place) as ledger:
        runs = []
        for name in (SCOPE, "acme/test", "other/main"):
            for _ in range(5):
                writer = await new_run(ledger.scope(name))
                await writer.close()
                runs.append(writer.stream.run_id)
        scope = ledger.scope(SCOPE)
        paged: list[str] = []
        while page := await scope.unowned_runs(paged[-1] if paged else "", limit=2):
            paged += [row.run_id for row in page]
        same(paged, sorted(runs[:5]), "pages of unowned runs")


async def _found(scope: ScopedLedger) -> list[str]:
    return [row.run_id for row in await scope.unowned_runs()]
