"""Intents: two streams that act on the same knowledge of one effect are two, and one of them is told."""

from __future__ import annotations

import asyncio
from typing import Any

from refold.events.catalog.tool import (
    Claim,
    Resolution,
    ToolAnswered,
    ToolClaimed,
    ToolDispatched,
    ToolDoubted,
    ToolResolved,
)
from refold.ledger.conformance.place import SCOPE, Place, new_run, opened, refused, require, same, verified
from refold.ledger.drafts import Draft
from refold.ledger.errors import IntentMoved, KeyConflict
from refold.ledger.ledger import ScopedLedger
from refold.ledger.writer import StreamWriter
from refold.projections.rows import IntentRow


async def check_of_two_streams_that_bring_one_revision_one_is_told(place: Place) -> None:
    async with opened(place) as ledger, opened(place) as other:
        for intent, second in (("int_1", ledger), ("int_2", other)):
            scope = ledger.scope(SCOPE)
            await _doubtful(scope, intent)
            rivals = [await _reading(each.scope(SCOPE), intent) for each in (ledger, second)]
            neighbour = await new_run(scope)
            for writer in rivals:
                _resolve(writer, intent)
            neighbour.append(dispatched(neighbour, f"{intent}_beside"))
            results = await asyncio.gather(*(each.barrier() for each in (*rivals, neighbour)), return_exceptions=True)
            (told,) = [place for place, each in enumerate(results) if each is not None]
            error = results[told]
            require(isinstance(error, IntentMoved) and told < 2, f"the outcomes are {results}")
            same(isinstance(error, IntentMoved) and error.facts.get("intent_id"), intent, "the intent that it names")
            same(await _revision(scope, intent), 3, "the intent's revision")
            same(len(await verified(scope, rivals[told].stream)), 1, "events of the one that was told")
            same(len(await verified(scope, rivals[1 - told].stream)), 2, "events of the one that was first")
            await refused(IntentMoved, rivals[told].barrier(), "a later barrier of the one that was told")


async def check_who_was_told_that_an_intent_moved_opens_the_stream_and_reads_it(place: Place) -> None:
    async with opened(place) as ledger:
        scope = ledger.scope(SCOPE)
        await _doubtful(scope)
        first, told = await _reading(scope), await _reading(scope)
        _resolve(first)
        await first.barrier()
        _resolve(told)
        await refused(IntentMoved, told.barrier(), "a second way from the same revision")
        async with await scope.writer(told.stream) as again:
            await again.adopt_intents("int_1")
            same((again.intent("int_1").revision, again.intent("int_1").resolution), (3, "resend"), "the intent")
            _resolve(again, revision=4, resolution="abandon")
        same(await _revision(scope, "int_1"), 4, "the intent's revision")


async def check_what_builds_on_the_last_revision_is_written_whatever_it_brings_at_once(place: Place) -> None:
    async with opened(place) as ledger:
        scope = ledger.scope(SCOPE)
        writer = await new_run(scope)
        writer.append(Draft(ToolClaimed(**_ids("int_1", 1), claim=_claim("int_1", "tc_int_1"))))
        writer.append(Draft(ToolDispatched(**_ids("int_1", 2))))
        await writer.barrier()
        writer.append(Draft(ToolDoubted(**_ids("int_1", 3), why="timeout")))
        _resolve(writer, revision=4)
        await writer.barrier()
        writer.append(Draft(ToolDispatched(**_ids("int_1", 5))))
        writer.append(Draft(ToolAnswered(**_ids("int_1", 6), result_bytes=2)))
        await writer.close()
        (row,) = await _intents(scope)
        same((row.revision, row.status, row.receipt_seq), (6, "succeeded", 7), "the intent")


async def check_a_batch_is_judged_by_the_first_revision_that_it_brings(place: Place) -> None:
    async with opened(place) as ledger, opened(place) as other:
        scope = ledger.scope(SCOPE)
        await _doubtful(scope)
        first, late = await _reading(scope), await _reading(other.scope(SCOPE))
        _resolve(first)
        await first.barrier()
        _resolve(late)
        _resolve(late, revision=4, resolution="abandon")
        await refused(IntentMoved, late.barrier(), "revisions 3 and 4 where 3 is there already")
        (row,) = await _intents(scope)
        same((row.revision, row.resolution), (3, "resend"), "the intent")


async def check_claims_that_race_for_an_idempotency_key_get_one_intent(place: Place) -> None:
    async with opened(place) as ledger, opened(place) as other:
        writers = [await new_run(each.scope(SCOPE)) for each in (ledger, ledger, other)]
        for number, writer in enumerate(writers):
            writer.append(dispatched(writer, f"int_{number}", key="one-charge"))
        results = await asyncio.gather(*(each.barrier() for each in writers), return_exceptions=True)
        conflicts = [each for each in results if isinstance(each, KeyConflict)]
        same((len(conflicts), results.count(None)), (2, 1), "claims that were told and claims that stand")
        (row,) = await _intents(ledger.scope(SCOPE))
        same([each.facts.get("intent_id") for each in conflicts], [row.intent_id] * 2, "intents that the errors name")
        same(row.intent_id, f"int_{results.index(None)}", "the intent that stands")


async def check_claims_that_race_for_an_intent_make_it_once(place: Place) -> None:
    async with opened(place) as ledger, opened(place) as other:
        writers = [await new_run(each.scope(SCOPE)) for each in (ledger, other)]
        for writer in writers:
            writer.append(dispatched(writer, "int_1"))
        results = await asyncio.gather(*(each.barrier() for each in writers), return_exceptions=True)
        same(sorted(type(each).__name__ for each in results), ["IntentMoved", "NoneType"], "outcomes")
        (row,) = await _intents(ledger.scope(SCOPE))
        same(row.owner_run_id, writers[results.index(None)].stream.run_id, "the run that owns the intent")


async def check_a_key_and_an_intent_of_another_scope_are_nobodys_business(place: Place) -> None:
    async with opened(place) as ledger:
        for name in ("acme/main", "acme/test", "other/main"):
            writer = await new_run(ledger.scope(name))
            writer.append(dispatched(writer, "int_1", key="one-charge"))
            await writer.barrier()
            same(await _revision(ledger.scope(name), "int_1"), 1, f"the intent of {name}")


async def check_intents_of_a_domain_are_found_by_their_fingerprint(place: Place) -> None:
    async with opened(place) as ledger:
        scope = ledger.scope(SCOPE)
        writer = await new_run(scope)
        for number in range(4):
            writer.append(dispatched(writer, f"int_{number}", fingerprint="ab" if number % 2 else "cd"))
        await writer.close()
        async with scope.reader() as reader:
            found = await reader.rows(IntentRow, {"effect_domain": "domain", "fingerprint": "ab"})
            same([row.intent_id for row in found], ["int_1", "int_3"], "intents with the fingerprint")
            same(await reader.rows(IntentRow, {"effect_domain": "else", "fingerprint": "ab"}), [], "of another domain")


async def check_reading_an_intent_again_does_not_undo_what_is_not_yet_committed(place: Place) -> None:
    async with opened(place) as ledger:
        scope = ledger.scope(SCOPE)
        await _doubtful(scope)
        writer = await _reading(scope)
        _resolve(writer)
        await writer.adopt_intents("int_1")
        same(writer.intent("int_1").revision, 3, "the revision in memory")
        _resolve(writer, revision=4, resolution="abandon")
        await writer.close()
        same(await _revision(scope, "int_1"), 4, "the stored revision")


def dispatched(writer: StreamWriter, intent: str, key: str | None = None, fingerprint: str = "ab") -> Draft:
    """A claim that is dispatched in the same commit."""
    call = f"tc_{writer.stream.run_id}_{intent}"
    claim = _claim(intent, call, key, fingerprint)
    return Draft(ToolDispatched(intent_id=intent, tool_call_id=call, revision=1, claim=claim))


def _claim(intent: str, call: str, key: str | None = None, fingerprint: str = "ab") -> Claim:
    key = key or f"key of {intent}"
    return Claim(step_id=f"st_{call}", tool="charge", key=key, fingerprint=fingerprint, effect_domain="domain")


def _ids(intent: str, revision: int) -> dict[str, Any]:
    return {"intent_id": intent, "tool_call_id": f"tc_{intent}", "revision": revision}


async def _doubtful(scope: ScopedLedger, intent: str = "int_1") -> None:
    """A run with an effect in doubt, at revision 2."""
    writer = await new_run(scope)
    writer.append(Draft(ToolDispatched(**_ids(intent, 1), claim=_claim(intent, f"tc_{intent}"))))
    writer.append(Draft(ToolDoubted(**_ids(intent, 2), why="crash")))
    await writer.close()


async def _reading(scope: ScopedLedger, intent: str = "int_1") -> StreamWriter:
    """Another run that has read the intent as it stands."""
    writer = await new_run(scope)
    await writer.adopt_intents(intent)
    return writer


def _resolve(writer: StreamWriter, intent: str = "int_1", revision: int = 3, resolution: Resolution = "resend") -> None:
    writer.append(Draft(ToolResolved(**_ids(intent, revision), resolution=resolution, by="person")))


async def _intents(scope: ScopedLedger) -> list[IntentRow]:
    async with scope.reader() as reader:
        return await reader.rows(IntentRow)


async def _revision(scope: ScopedLedger, intent: str) -> int:
    (row,) = [each for each in await _intents(scope) if each.intent_id == intent]
    return row.revision
