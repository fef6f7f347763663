"""Steps: pure functions of the workflow's author, run once and recorded."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec

from refold.events import values
from refold.events.content import Encoded
from refold.events.envelope import Event
from refold.events.values import Registry
from refold.runtime.divergence import first_difference
from refold.runtime.failures import decode_error
from refold.runtime.operations import Fields
from refold.runtime.scope import escaped


class Codec(NamedTuple):
    """The classes and exceptions that an App knows: how values of its runs are written and made again."""

    types: Registry
    errors: Mapping[str, type[BaseException]]

    def encode(self, value: Any, hint: Any = Any) -> bytes:
        """Raises NotRecordable."""
        return values.encode(value, types=self.types, hint=hint)

    def decode(self, stored: msgspec.Raw | bytes, hint: Any = Any) -> Any:
        """Raises UnknownType, ValueDamaged."""
        return values.decode(bytes(stored), hint, types=self.types)

    def error(self, stored: msgspec.Raw | bytes) -> Exception:
        return decode_error(bytes(stored), self.errors, self.types)


class StepAsk:
    """`await run.step(function, *args)`."""

    kind = "step"
    drains = False

    def __init__(
        self, function: Callable[..., Any], args: tuple[Any, ...], options: dict[str, Any], codec: Codec
    ) -> None:
        self.function = function
        self.args = args
        self.options = options
        self.codec = codec
        self.hints = hints_of(function)
        self.name: str = self.hints.name
        arguments = [*args, options] if options else list(args)
        # The proof that they can be recorded comes before anything is done with them.
        self.input = Encoded(codec.encode(arguments, self.hints.arguments))

    def difference(self, event: Event, fields: Fields) -> str | None:
        return input_difference(fields.get("input"), self.input.data)

    def outcome(self, event: Event, fields: Fields) -> Any:
        if event.type == "step.completed":
            return self.codec.decode(fields["output"], self.hints.result)
        raise self.codec.error(fields["error"])

    def request(self) -> Any:
        return msgspec.json.decode(self.input.data)


def input_difference(recorded: msgspec.Raw | None, asked: bytes) -> str | None:
    """How two stored inputs differ. Equal bytes are the rule; dicts in another order are equal too."""
    if recorded is None:
        return None
    stored = bytes(recorded)
    if stored == asked or values.canonical(stored) == values.canonical(asked):
        return None
    return first_difference(msgspec.json.decode(stored), msgspec.json.decode(asked)) or "the arguments differ"


class Hints(NamedTuple):
    """What a function says of itself: its name, and where the classes of its arguments and result are named."""

    name: str
    is_async: bool
    arguments: Any
    result: Any


@lru_cache(maxsize=4096)
def hints_of(function: Callable[..., Any]) -> Hints:
    """The annotations of a function; Any where there are none, or they cannot be read."""
    name, is_async = step_name(function), inspect.iscoroutinefunction(function)
    try:
        found = typing.get_type_hints(inspect.unwrap(function), include_extras=True)
    except (NameError, TypeError, AttributeError):
        return Hints(name, is_async, Any, Any)
    result = found.pop("return", Any)
    parameters = tuple(found.values())
    return Hints(name, is_async, tuple[parameters] if parameters else Any, result)  # type: ignore[valid-type]


def step_name(function: Callable[..., Any]) -> str:
    """What a function is called in sites and rows. A lambda has no name that would tell it from another."""
    name = getattr(function, "__qualname__", None) or type(function).__qualname__
    return escaped(str(name).rpartition("<locals>.")[2])
