"""What an event type is: a name, a version, one frozen struct of facts; and the table of all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, ClassVar, TypeVar

import msgspec

from refold.errors import RefoldError

Name = str
"""A name that an App registered, or `~` and 32 hex digits standing for one that a model or a file made up."""


class SourceRecord(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True, gc=False):
    """The record of an imported source that an event completes: its number there, counted from 1, 16 hex digits of a
    keyed digest of it, and the part of the conversation that it became, where it is one.
    """

    number: int
    digest: str
    part: int | None = None


class Facts(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True, gc=False):
    """Base of all fact structs: typed fields, kept for ever, with no text written by people or models.

    `secrets` is the result of the scan that made the event's view: how many secrets were replaced there. `record`
    stands on the last event that an importer made of one record, so that an import can go on where it was
    interrupted.
    """

    EVENT_TYPE: ClassVar[str]
    EVENT_VERSION: ClassVar[int]

    secrets: int = 0
    record: SourceRecord | None = None


class UnknownEvent(RefoldError):
    """An event whose type or version this code does not know, or whose facts do not fit its type.

    It was written by newer code, or damaged. It is never skipped: what a reader does not understand may be
    what matters.
    """

    code: ClassVar[str] = "unknown_event"
    exit_status: ClassVar[int] = 2
    remedy = "Read it with the version of refold that wrote it, or a newer one; `refold verify` tells damage from age."


F = TypeVar("F", bound=type[Facts])
Upcast = Callable[[dict[str, Any]], dict[str, Any]]


class EventType(msgspec.Struct, frozen=True):
    """One row of the catalogue."""

    name: str
    version: int
    facts: type[Facts]
    decoder: msgspec.json.Decoder[Any]


class Catalog:
    """The event types that code knows, and how old versions become today's.

    `register` is used as a decorator on fact structs. `upcast(name, version)` registers the step from `version` to the
    next; steps are chained, so that each version's meaning is written down once.
    """

    def __init__(self) -> None:
        self._types: dict[str, EventType] = {}
        self._steps: dict[tuple[str, int], Upcast] = {}

    def register(self, name: str, version: int = 1) -> Callable[[F], F]:
        def add(facts: F) -> F:
            if name in self._types and self._types[name].version >= version:
                raise ValueError(f"{name} version {version} is registered already")
            facts.EVENT_TYPE, facts.EVENT_VERSION = name, version
            self._types[name] = EventType(name, version, facts, msgspec.json.Decoder(facts))
            return facts

        return add

    def upcast(self, name: str, version: int) -> Callable[[Upcast], Upcast]:
        def add(step: Upcast) -> Upcast:
            self._steps[name, version] = step
            return step

        return add

    def __getitem__(self, name: str) -> EventType:
        return self._types[name]

    def __iter__(self) -> Iterator[EventType]:
        return iter(self._types.values())

    def decode(self, name: str, version: int, facts: bytes, stream: object, seq: int) -> Facts:
        """The facts of an event as today's struct. Raises UnknownEvent naming stream, seq, type and version."""
        known = self._types.get(name)
        try:
            if known is not None and version == known.version:
                result: Facts = known.decoder.decode(facts)
                return result
            if known is None or not 1 <= version < known.version:
                why = "type" if known is None else f"version (known: up to {known.version})"
                raise UnknownEvent(
                    f"Event {seq} of {stream} is a {name!r} of version {version}; this code does not know the {why}.",
                    stream=str(stream),
                    seq=seq,
                    type=name,
                    version=version,
                )
            data = msgspec.json.decode(facts, type=dict[str, Any])
            for step in range(version, known.version):
                data = self._steps[name, step](data)
            return msgspec.convert(data, known.facts)
        except (msgspec.MsgspecError, UnicodeError, KeyError) as error:
            raise UnknownEvent(
                f"Event {seq} of {stream}, a {name!r} of version {version}, has facts that do not fit: {error}.",
                stream=str(stream),
                seq=seq,
                type=name,
                version=version,
            ) from error


CATALOG = Catalog()
event = CATALOG.register
