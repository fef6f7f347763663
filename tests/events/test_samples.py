"""Stored samples of every event type in every version: what was once written is read for ever, with the same meaning.

A sample is facts as they stood in a ledger, and what they mean field by field. A new version of a type gets a new file
and an upcaster; a sample is never edited. Facts may gain fields, so it says nothing about those that it does not name.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from refold.events.catalog import CATALOG

FOLDER = Path(__file__).parent / "samples"
SAMPLES: dict[tuple[str, int], list[dict[str, Any]]] = {
    (name, int(file.stem.removeprefix("version_"))): samples
    for file in sorted(FOLDER.glob("version_*.json"))
    for name, samples in json.loads(file.read_text(encoding="utf-8")).items()
}


def plain(facts: msgspec.Struct) -> dict[str, Any]:
    """Every field, defaults included."""
    fields = ((field.name, getattr(facts, field.name)) for field in msgspec.structs.fields(type(facts)))
    shown = {name: list(value) if isinstance(value, tuple) else value for name, value in fields}
    return {name: plain(value) if isinstance(value, msgspec.Struct) else value for name, value in shown.items()}


def covers(found: object, wanted: object) -> bool:
    if isinstance(wanted, dict) and isinstance(found, dict):
        return all(name in found and covers(found[name], value) for name, value in wanted.items())
    return type(found) is type(wanted) and found == wanted


def test_every_version_of_every_type_has_a_sample() -> None:
    known = {(kind.name, version) for kind in CATALOG for version in range(1, kind.version + 1)}
    assert set(SAMPLES) == known


@pytest.mark.parametrize(("name", "version"), sorted(SAMPLES), ids=str)
def test_a_stored_sample_is_read_with_the_meaning_it_had(name: str, version: int) -> None:
    for sample in SAMPLES[name, version]:
        facts = CATALOG.decode(name, version, sample["facts"].encode(), "a stream", 1)
        assert covers(plain(facts), sample["means"]), f"{name} now means {plain(facts)}"
        if version == CATALOG[name].version:
            assert msgspec.json.encode(facts).decode() == sample["facts"], "the same facts are written in another form"


@pytest.mark.parametrize("name", sorted({name for name, _ in SAMPLES}))
def test_the_samples_of_a_type_show_every_field(name: str) -> None:
    kind = CATALOG[name]
    shown = {field for sample in SAMPLES[name, kind.version] for field in json.loads(sample["facts"])}
    assert shown == {field.name for field in msgspec.structs.fields(kind.facts)}
