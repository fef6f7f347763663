"""The published vectors: refold makes them, and a verifier that knows only the page accepts them and nothing else."""

from __future__ import annotations

import asyncio
import json
import re
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from refold.events.content import PartChain, unseal
from refold.events.envelope import GENESIS, HEADER, Chain, EventRow
from refold.events.identity import Scope, Stream, name_digest, scope_digest
from refold.ledger.artifacts import IN_LEDGER, store_artifact
from refold.ledger.blobs import leaf
from refold.ledger.conformance.place import new_run, step
from refold.ledger.drafts import Draft
from refold.ledger.ledger import open_ledger
from tests.events import second_verifier

PAGE = (Path(__file__).parents[2] / "docs" / "format.md").read_text(encoding="utf-8")
VECTORS = {name: json.loads(text) for name, text in re.findall(r"```json (\w+)\n(.*?)```", PAGE, re.DOTALL)}
SECRET = bytes.fromhex(VECTORS["names"]["secret"])
SCOPE = Scope("acme", "main")
SCOPE_DIGEST = bytes.fromhex(VECTORS["names"]["scope"]["digest"])
STREAMS: list[dict[str, Any]] = VECTORS["streams"]


def row_of(event: dict[str, Any]) -> EventRow:
    def data(name: str) -> bytes | None:
        return None if event[name] is None else bytes.fromhex(event[name])

    return EventRow(
        *(event[name] for name in EventRow._fields[:10]),
        event["facts"].encode(),
        data("content_digest"),
        data("content"),
        data("view_digest"),
        data("view"),
        bytes.fromhex(event["hash"]),
    )


def hash_of(chain: Chain, row: EventRow, previous: bytes) -> bytes:
    return chain.hash(
        previous,
        row.seq,
        row.type.encode(),
        row.version,
        row.epoch,
        row.recorded_at,
        row.occurred_at,
        row.actor.encode(),
        row.site.encode(),
        row.cause,
        row.facts,
        row.content_digest,
        row.view_digest,
    )


def test_names_and_scope_have_the_published_digests() -> None:
    assert scope_digest(SECRET, SCOPE) == SCOPE_DIGEST == second_verifier.keyed(SECRET, "scope", "acme/main")
    for name in VECTORS["names"]["names"]:
        assert name_digest(SECRET, name["text"]) == name["in facts"]
        assert "~" + second_verifier.keyed(SECRET, "name", name["text"]).hex() == name["in facts"]


@pytest.mark.parametrize("stream", STREAMS, ids=lambda stream: stream["stream"])
def test_refold_computes_the_published_hashes(stream: dict[str, Any]) -> None:
    named = Stream.parse(stream["stream"])
    assert (named.number, named.ulid.hex()) == (stream["kind"], stream["ulid"])
    previous = GENESIS
    for event in stream["events"]:
        row = row_of(event)
        previous = hash_of(Chain(SCOPE_DIGEST, named), row, previous)
        assert previous == row.hash
        for stored, digest in ((row.content, row.content_digest), (row.view, row.view_digest)):
            if stored is not None:
                assert sha256(stored).digest() == digest
                json.loads(unseal(stored))


@pytest.mark.parametrize("stream", STREAMS, ids=lambda stream: stream["stream"])
def test_a_verifier_made_from_the_page_accepts_the_published_streams(stream: dict[str, Any]) -> None:
    assert second_verifier.first_bad(stream, SCOPE_DIGEST) is None


def test_the_page_gives_the_header_of_the_second_event() -> None:
    (published,) = re.findall(r"```hex header\n([0-9a-f]+)\n```", PAGE)
    stream = STREAMS[0]
    first, second = stream["events"][:2]
    made = second_verifier.header(second, bytes.fromhex(first["hash"]), SCOPE_DIGEST, 1, bytes.fromhex(stream["ulid"]))
    assert made.hex() == published
    assert len(made) == HEADER.size
    sizes = [int(size) for size in re.findall(r"^\| \d+ \| (\d+) \|", PAGE, re.MULTILINE)]
    assert sum(sizes) == HEADER.size
    offsets = [int(offset) for offset in re.findall(r"^\| (\d+) \| \d+ \|", PAGE, re.MULTILINE)]
    assert offsets == [sum(sizes[:place]) for place in range(len(sizes))]


CHANGES: dict[str, Any] = {
    "format": 2,
    "type": "step.failed",
    "version": 2,
    "epoch": 9,
    "recorded_at": 0,
    "occurred_at": 5,
    "actor": "eve",
    "site": "elsewhere",
    "cause": 3,
    "facts": '{"step_id":"st_0","signal":"other"}',
    "content_digest": "00" * 32,
    "content": "00" * 40,
    "view_digest": "11" * 32,
    "view": None,
    "hash": "22" * 32,
    "seq": 7,
}


@pytest.mark.parametrize("column", EventRow._fields)
def test_a_change_of_any_column_is_found_at_its_event(column: str) -> None:
    stream = json.loads(json.dumps(STREAMS[0]))
    event = stream["events"][1]
    assert event[column] != CHANGES[column]
    event[column] = CHANGES[column]
    if column == "view":
        event["view_digest"] = None
    assert second_verifier.first_bad(stream, SCOPE_DIGEST) == 2


def test_swapped_cut_and_foreign_events_are_found() -> None:
    events = STREAMS[0]["events"]
    swapped = {**STREAMS[0], "events": [events[0], events[2], events[1], *events[3:]]}
    cut = {**STREAMS[0], "events": events[1:]}
    assert second_verifier.first_bad(swapped, SCOPE_DIGEST) == 2
    assert second_verifier.first_bad(cut, SCOPE_DIGEST) == 1
    assert second_verifier.first_bad(STREAMS[0], scope_digest(SECRET, Scope("acme", "other"))) == 1
    assert second_verifier.first_bad({**STREAMS[0], "kind": 2}, SCOPE_DIGEST) == 1


def test_lists_have_the_published_digests() -> None:
    blobs = VECTORS["blobs"]
    for blob in blobs:
        view = None if blob["view_digest"] is None else bytes.fromhex(blob["view_digest"])
        assert sha256(bytes.fromhex(blob["stored"])).hexdigest() == blob["digest"]
        assert leaf(bytes.fromhex(blob["digest"]), view).hex() == second_verifier.leaf(blob).hex() == blob["leaf"]
    for listed in VECTORS["lists"]:
        chain = PartChain()
        for number in listed["blobs"]:
            chain.add(number, bytes.fromhex(blobs[number - 1]["leaf"]))
        made = chain.as_list()
        assert [list(each) for each in made.ranges] == listed["ranges"]
        assert made.digest == listed["digest"] == second_verifier.list_digest(listed["ranges"], blobs)


def test_a_file_has_the_published_digest() -> None:
    file = VECTORS["file"]
    assert sha256(bytes.fromhex(file["salt"] + file["bytes"])).hexdigest() == file["digest"]


def test_a_verifier_made_from_the_page_proves_a_ledger_that_refold_wrote(tmp_path: Path) -> None:
    async def live() -> None:
        async with await open_ledger(tmp_path / "ledger.db") as ledger:
            scope = ledger.scope("acme/main")
            writer = await new_run(scope, steps=3)
            chain = PartChain()
            for text in ("one", "the key sk-ant-api03-" + "x" * 93 + "AA", "three"):
                part = await writer.part(text)
                chain.add(part.number, part.leaf)
            writer.append(Draft(step(ledger).facts, content={"messages": chain.as_list()}, occurred_at=-5, cause=2))
            about = {"kind": "output", "type_": "binary", "mime": "application/octet-stream"}
            large = b"x" * (IN_LEDGER + 1)
            await store_artifact(writer, ledger.files, large, artifact_id="art_1", **about)
            await writer.close()
            async with scope.reader() as reader:
                rows = await reader.raw_events(writer.stream)
                blobs = await reader.blobs(writer.stream)
            plain = [_plain(row._asdict()) for row in rows]
            stream = {"kind": 1, "ulid": writer.stream.ulid.hex(), "events": plain}
            assert second_verifier.first_bad(stream, second_verifier.keyed(scope.secret, "scope", "acme/main")) is None
            listed = chain.as_list()
            shown = [_plain(blob._asdict()) for blob in blobs]
            assert second_verifier.list_digest([list(each) for each in listed.ranges], shown) == listed.digest
            salt = blobs[-1].stored or b""
            assert sha256(salt + large).digest() == blobs[-1].digest
            assert json.loads(rows[-1].facts)["digest"] == second_verifier.leaf(shown[-1]).hex()

    asyncio.run(live())


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    shown = {name: value.hex() if isinstance(value, bytes) else value for name, value in row.items()}
    if "facts" in row:
        shown["facts"] = row["facts"].decode()
    return shown
