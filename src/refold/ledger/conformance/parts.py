"""Parts: a request that grows is stored once a piece, and its list proves every piece of it."""

from __future__ import annotations

import asyncio
from hashlib import sha256
from typing import Any, cast

from refold.events import values
from refold.events.content import PartChain, PartList, decode_content, unseal
from refold.events.identity import Scope
from refold.ledger.blobs import leaf
from refold.ledger.conformance.place import SCOPE, Place, new_run, opened, require, same, step, verified
from refold.ledger.drafts import Draft
from refold.ledger.ledger import Ledger, ScopedLedger
from refold.ledger.port import Store
from refold.ledger.writer import Part, StreamWriter


async def check_equal_parts_are_one_blob_in_memory_and_in_the_store(place: Place) -> None:
    async with opened(place) as ledger:
        scope = ledger.scope(SCOPE)
        writer = await new_run(scope)
        first = [await writer.part({"role": "user", "content": text}) for text in ("a", "b", "a")]
        same([part.number for part in first], [1, 2, 1], "numbers")
        writer.append(step(ledger))
        await writer.close()
        async with await scope.writer(writer.stream) as again:
            later = [await again.part({"role": "user", "content": text}) for text in ("b", "c", "a")]
            same([part.number for part in later], [2, 3, 1], "numbers in another life of the writer")
            same(
                [later[0].leaf, later[2].leaf],
                [first[1].leaf, first[0].leaf],
                "leaf digests of the same parts",
            )
            again.append(step(ledger))
        async with scope.reader() as reader:
            blobs = await reader.blobs(writer.stream)
            same([blob.number for blob in blobs], [1, 2, 3], "blobs")
            for blob, text in zip(blobs, "abc", strict=True):
                require(
                    blob.stored is not None and sha256(blob.stored).digest() == blob.digest,
                    "a blob's digest is wrong",
                )
                same(
                    values.decode(unseal(blob.stored or b"")),
                    {"role": "user", "content": text},
                    "a blob's value",
                )


async def check_another_run_has_parts_of_its_own(place: Place) -> None:
    async with opened(place) as ledger:
        scope = ledger.scope(SCOPE)
        writers = [await new_run(scope) for _ in range(2)]
        parts = []
        for writer in writers:
            parts.append(await writer.part("the same words"))
            writer.append(step(ledger))
            await writer.close()
        same([part.number for part in parts], [1, 1], "numbers")
        require(parts[0].leaf != parts[1].leaf, "two runs share a salt")
        for writer in writers:
            async with scope.reader() as reader:
                same(len(await reader.blobs(writer.stream)), 1, "blobs of a run")


async def check_a_part_list_proves_its_parts_in_order(place: Place) -> None:
    async with opened(place) as ledger:
        scope = ledger.scope(SCOPE)
        writer = await new_run(scope)
        conversation: list[Part] = []
        wanted = []
        for turn in range(12):
            if turn == 8:
                conversation = conversation[5:]  # The conversation was compacted.
            conversation.append(await writer.part(f"message {turn}"))
            lists = _listed(writer, ledger, conversation)
            wanted.append(([part.number for part in conversation], lists.digest))
            if turn % 5 == 0:
                await writer.barrier()
        await writer.close()
        found = []
        for event in await verified(scope, writer.stream):
            if event.stored.content is not None and event.type == "step.completed":
                stored = decode_content(event.stored.content).parts["messages"]
                found.append((list(stored.numbers()), await _digest(scope, writer, stored)))
                same(stored.digest, found[-1][1], "digest of a list, computed from the stored blobs")
        same(found, wanted, "lists")


def _listed(writer: StreamWriter, ledger: Ledger, parts: list[Part]) -> PartList:
    chain = PartChain()
    for part in parts:
        chain.add(part.number, part.leaf)
    draft = step(ledger)
    writer.append(Draft(draft.facts, content={"messages": chain.as_list()}))
    return chain.as_list()


async def _digest(scope: ScopedLedger, writer: StreamWriter, listed: PartList) -> str:
    digest = bytes(32)
    async with scope.reader() as reader:
        for number in listed.numbers():
            blob = await reader.blob(writer.stream, number)
            if blob is None:
                return "a blob is missing"
            digest = sha256(digest + leaf(blob.digest, blob.view_digest)).digest()
    return digest.hex()


async def check_more_parts_than_are_remembered_stay_unique(place: Place) -> None:
    async with opened(place) as ledger:
        scope = ledger.scope(SCOPE)
        writer = await new_run(scope)
        for number in range(5000):
            await writer.part(number)
        repeated = [(await writer.part(number)).number for number in (0, 1, 4999)]
        same(repeated, [1, 2, 5000], "numbers of parts from an open batch that outgrew the memory for them")
        writer.append(step(ledger))
        await writer.barrier()
        same(
            [(await writer.part(number)).number for number in (2, 2500)],
            [3, 2501],
            "numbers of committed parts",
        )
        writer.append(step(ledger))
        await writer.close()
        async with scope.reader() as reader:
            same(len(await reader.blobs(writer.stream, limit=10_000)), 5000, "blobs")


async def check_equal_parts_asked_for_at_once_are_one_blob_however_long_the_store_takes(place: Place) -> None:
    async with opened(place) as ledger:
        scope = ledger.scope(SCOPE)
        writer = await new_run(scope)
        await writer.part("old")
        writer.append(step(ledger))
        await writer.close()
        ledger.store = cast(Store, _Slow(ledger.store))
        async with await scope.writer(writer.stream) as again:
            texts = ["new", "old", "new", "newer", "new"]
            parts = await asyncio.gather(*(again.part(text) for text in texts))
            numbers = {text: part.number for text, part in zip(texts, parts, strict=True)}
            same([part.number for part in parts], [numbers[text] for text in texts], "numbers of equal parts")
            same(sorted(numbers.values()), [1, 2, 3], "numbers")
            again.append(step(ledger))
        async with scope.reader() as reader:
            blobs = [values.decode(unseal(blob.stored or b"")) for blob in await reader.blobs(writer.stream)]
            same(sorted(blobs), ["new", "newer", "old"], "blobs")


class _Slow:
    """The store, by a road on which others go on while a part is looked up."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def find_part(self, stream_no: int, scope: Scope, lookup: bytes) -> tuple[int, bytes] | None:
        await asyncio.sleep(0)
        found = await self._store.find_part(stream_no, scope, lookup)
        await asyncio.sleep(0)
        return found
