"""Keys: a caller's name for a piece of work, unique in its scope for ever."""

from __future__ import annotations

import asyncio

import msgspec

from refold.events.catalog.run import RunStarted, RunSucceeded
from refold.ledger.conformance.place import (
    SCOPE,
    Place,
    creation,
    new_run,
    opened,
    refused,
    require,
    same,
    verified,
)
from refold.ledger.drafts import Draft
from refold.ledger.errors import KeyConflict
from refold.ledger.ledger import Existing
from refold.ledger.writer import StreamWriter
from refold.projections.rows import RunRow


async def check_a_key_returns_its_run_for_ever(place: Place) -> None:
    async with opened(place) as ledger, opened(place) as other:
        scope = ledger.scope(SCOPE)
        writer = await new_run(scope, key="order-7")
        for state in ("open", "closed"):
            for each in (ledger, other):
                again = await each.scope(SCOPE).create(creation(), key="order-7")
                require(isinstance(again, Existing), f"a key whose run is {state} made another run")
                same(getattr(again, "run_id", None), writer.stream.run_id, "the key's run")
            if state == "open":
                writer.append(Draft(RunStarted()))
                writer.append(Draft(RunSucceeded()))
                await writer.close()
        found = await scope.find("order-7")
        same(None if found is None else found.row.status, "succeeded", "status of the key's run")
        same(await scope.find("order-8"), None, "a key that nobody used")
        async with scope.reader() as reader:
            same(len(await reader.rows(RunRow)), 1, "runs")


async def check_a_key_with_other_work_is_a_conflict(place: Place) -> None:
    async with opened(place) as ledger:
        scope = ledger.scope(SCOPE)
        writer = await scope.create(creation(input_digest="aa"), key="k")
        for other in (creation("refunds", input_digest="aa"), creation(input_digest="bb"), creation()):
            error = await refused(KeyConflict, scope.create(other, key="k"), "the key with other work")
            if isinstance(writer, StreamWriter):
                same(error.facts.get("run_id"), writer.stream.run_id, "the run that the error names")
        again = await scope.create(creation(input_digest="aa"), key="k")
        require(isinstance(again, Existing), "the key with the same work made another run")


async def check_creators_that_race_for_a_key_get_one_run(place: Place) -> None:
    async with opened(place) as ledger, opened(place) as other:
        everybody = [each.scope(SCOPE) for each in (ledger, other) for _ in range(4)]
        created = await asyncio.gather(*(each.create(creation(), key="race") for each in everybody))
        writers = [each for each in created if isinstance(each, StreamWriter)]
        same(len(writers), 1, "runs made by eight creators of one key")
        named = {each.run_id if isinstance(each, Existing) else each.stream.run_id for each in created}
        same(named, {writers[0].stream.run_id}, "runs that the creators were given")
        async with ledger.scope(SCOPE).reader() as reader:
            same(len(await reader.heads()), 1, "streams")
        await verified(ledger.scope(SCOPE), writers[0].stream)


async def check_creators_that_race_with_other_work_get_a_conflict(place: Place) -> None:
    async with opened(place) as ledger, opened(place) as other:
        drafts = [creation(input_digest="aa"), creation(input_digest="bb")]
        created = await asyncio.gather(
            *(each.scope(SCOPE).create(draft, key="race") for each, draft in zip((ledger, other), drafts, strict=True)),
            return_exceptions=True,
        )
        kinds = sorted(type(each).__name__ for each in created)
        same(kinds, ["KeyConflict", "StreamWriter"], "what two creators with other input got")


async def check_keys_are_texts_of_any_kind(place: Place) -> None:
    async with opened(place) as ledger:
        scope = ledger.scope(SCOPE)
        names = [
            "",
            "a",
            "A",
            "a ",
            "\0",
            "a\0b",
            "é",
            "e\u0301",
            "\ud800",
            "../x",
            "k" * 10_000,
            "'; DROP TABLE runs --",
        ]
        runs = {name: (await new_run(scope, key=name)).stream.run_id for name in names}
        same(len(set(runs.values())), len(names), "runs of different keys")
        for name, run_id in runs.items():
            found = await scope.find(name)
            same(None if found is None else found.run_id, run_id, f"the run of key {name[:20]!r}")


async def check_attempts_of_a_lineage_share_the_key(place: Place) -> None:
    async with opened(place) as ledger:
        scope = ledger.scope(SCOPE)
        first = await new_run(scope, key="job")
        facts = msgspec.structs.replace(creation().facts, attempt_no=2, key_digest=scope.key_digest("job"))
        second = await scope.create(Draft(facts, ref="job"))
        found = await scope.find("job")
        latest = second.stream.run_id if isinstance(second, StreamWriter) else ""
        same(None if found is None else found.run_id, latest, "the latest run of the key")
        require(latest != first.stream.run_id, "the second attempt is the first")
        await refused(KeyConflict, scope.create(Draft(facts, ref="job")), "a second second attempt")
