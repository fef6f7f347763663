"""Exceptions as values: how one that a step raised is recorded, and made again.

What code gets live is made from the record too, so that an `except` clause decides the same in every execution.
Exceptions of Python itself and those registered with the App come back as themselves; any other as StepFailed.
"""

from __future__ import annotations

import asyncio
import builtins
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import msgspec

from refold.errors import RefoldError
from refold.events import values
from refold.events.content import Encoded
from refold.events.values import NotRecordable, Registry
from refold.gateway.errors import NestedCall
from refold.runtime.errors import (
    BudgetExceeded,
    ChildFailed,
    NeverQuiet,
    NotDeterministic,
    NothingMoves,
    NotQuiet,
    NotRegistered,
    OutsideRun,
    StepFailed,
)

_PYTHONS: dict[str, type[Exception]] = {
    name: each
    for name, each in vars(builtins).items()
    if isinstance(each, type)
    and issubclass(each, Exception)
    and not issubclass(each, (StopIteration, StopAsyncIteration, ExceptionGroup))
}
_OURS: dict[str, type[RefoldError]] = {
    each.__name__: each
    for each in (
        BudgetExceeded,
        ChildFailed,
        NestedCall,
        NeverQuiet,
        NotDeterministic,
        NothingMoves,
        NotQuiet,
        NotRecordable,
        NotRegistered,
        OutsideRun,
        StepFailed,
    )
}
"""Errors of ours that code may catch, or that end its run."""


def encode_error(error: BaseException, known: Mapping[str, type[BaseException]], types: Registry) -> Encoded:
    """The stored form of an exception. What cannot be recorded of it is left out; its message stays."""
    if isinstance(error, asyncio.CancelledError):
        error = asyncio.CancelledError()  # Its text is for debuggers; cancel scopes put addresses in memory into it.
    name = _name_of(error, known)
    recorded: dict[str, Any] = {"type": name or type(error).__qualname__, "message": message_of(error)}
    encoded = values.encode(recorded)
    if name is not None:
        # Without its arguments it comes back with its message as the only one.
        parts: dict[str, Any] = {"arguments": [error.facts] if isinstance(error, RefoldError) else list(error.args)}
        if name in known and not isinstance(error, RefoldError) and vars(error):
            parts["attributes"] = vars(error)
        for part, value in parts.items():
            with suppress(NotRecordable):
                encoded = encoded[:-1] + b',"%s":%s}' % (part.encode(), values.encode(value, types=types))
    return Encoded(encoded)


def decode_error(stored: bytes, known: Mapping[str, type[BaseException]], types: Registry) -> Exception:
    """The exception that code gets. Raises UnknownType, ValueDamaged when its arguments cannot be made again."""
    recorded = msgspec.json.decode(stored, type=dict[str, msgspec.Raw])
    name = values.decode(bytes(recorded["type"]))
    message = values.decode(bytes(recorded["message"]))
    cls = known.get(name) or _OURS.get(name) or _PYTHONS.get(name)
    if cls is None or not issubclass(cls, Exception):
        return StepFailed(f"{name}: {message}", type=name)
    arguments = [message]
    if "arguments" in recorded:
        arguments = values.decode(bytes(recorded["arguments"]), types=types)
    try:
        # Python's own keep what they say outside of `args`. The constructor of any other may do anything.
        error = cls(*arguments) if name not in known and name in _PYTHONS else cls.__new__(cls, *arguments)
    except Exception:  # noqa: BLE001 - it takes other arguments than it keeps
        return StepFailed(f"{name}: {message}", type=name)
    if isinstance(error, RefoldError):
        facts = arguments[0] if isinstance(arguments[0], dict) else {}
        RefoldError.__init__(error, message, **facts)
    elif name in known:
        error.args = tuple(arguments)
        if "attributes" in recorded:
            vars(error).update(values.decode(bytes(recorded["attributes"]), types=types))
    return error


def code_of(error: BaseException) -> str:
    """What an exception is called where its text may be content: the code of ours, the class of any other."""
    return error.code if isinstance(error, RefoldError) else type(error).__name__


def message_of(error: BaseException) -> str:
    """What an exception says, and what those in a group say; its class's name where saying it fails."""
    if isinstance(error, asyncio.CancelledError):
        return ""  # What libraries put there names objects by their addresses, which no replay has again.
    try:
        said = str(error)
    except Exception as again:  # noqa: BLE001 - somebody's __str__
        return f"{type(error).__qualname__} (its text cannot be made: {type(again).__qualname__})"
    if isinstance(error, BaseExceptionGroup):
        return f"{said}: {'; '.join(f'{type(each).__qualname__}: {message_of(each)}' for each in error.exceptions)}"
    return said


def _name_of(error: BaseException, known: Mapping[str, type[BaseException]]) -> str | None:
    cls = type(error)
    for name, each in (*known.items(), *_OURS.items()):
        if each is cls:
            return name
    return cls.__name__ if _PYTHONS.get(cls.__name__) is cls else None
