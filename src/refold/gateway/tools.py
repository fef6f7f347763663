"""A tool: a function, and the contract under which it is called."""

from __future__ import annotations

import inspect
import string
from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from typing import Any, Generic, Literal, NoReturn, ParamSpec, TypeVar, cast

import msgspec

from refold.events import values
from refold.events.catalog.tool import Effect
from refold.events.values import Registry
from refold.gateway.errors import BadKey, BadTool, NestedCall
from refold.gateway.identity import checked_key
from refold.gateway.parameters import Parameters
from refold.gateway.resolutions import Answer
from refold.gateway.retry import Retry

P = ParamSpec("P")
R = TypeVar("R")

EFFECTS: tuple[Effect, ...] = ("pure", "read", "idempotent", "unsafe")
"""From the tamest to the wildest."""
DAY = 24 * 3600.0

Hook = Callable[["Tool[Any, Any]", dict[str, Any], str | None], Any]
"""What a call inside a run goes to: the tool, its bound arguments, the caller's key."""

gateway_call: ContextVar[Hook | None] = ContextVar("gateway_call", default=None)
"""Set by the runtime in the code of a run, and to `refuse_nested` in steps and tools. Unset: the plain function."""


class Doubt(msgspec.Struct, frozen=True):
    """A call in doubt, as its probe sees it. `key` is what the other side got; `deadline_us` is in microseconds UTC."""

    key: str
    tool: str
    arguments: dict[str, Any]
    tool_call_id: str
    intent_id: str
    attempt: int
    deadline_us: int | None


Probe = Callable[[Doubt], Answer | Awaitable[Answer]]


class Tool(Generic[P, R]):
    """A function that acts on the world, and what may be done with it.

    `effect`: `pure`, `read`, `idempotent` (safe to repeat with its key, for `key_life` seconds) or `unsafe`. `timeout`
    in seconds an attempt. `key` is a template over the parameters that names the effect. `probe` asks the other side
    about a call in doubt; `settle` is how long after the deadline its "did not happen" may still be false (default:
    the timeout). `on_cancel`: `drain` waits for the answer of a call that is out, `abandon` leaves it in doubt.
    `marks_sending`: the function says itself when it sends, with `async with current_call().sending():`.
    """

    def __init__(
        self,
        function: Callable[P, R],
        *,
        name: str | None = None,
        version: int = 1,
        effect: Effect = "unsafe",
        timeout: float = 30.0,
        retry: Retry | None = None,
        key: str | None = None,
        key_life: float = DAY,
        probe: Probe | None = None,
        settle: float | None = None,
        on_cancel: Literal["drain", "abandon"] = "drain",
        marks_sending: bool = False,
    ) -> None:
        self.function = function
        self.name = str(name or getattr(function, "__name__", ""))
        self.version = version
        self.effect = effect
        self.timeout = timeout
        self.retry = retry or Retry()
        self.key = key
        self.key_life = key_life
        self.probe = probe
        self.settle = timeout if settle is None else settle
        self.on_cancel = on_cancel
        self.marks_sending = marks_sending
        self.is_async = inspect.iscoroutinefunction(function)
        self.parameters = Parameters(self.name, function)
        self.__doc__ = function.__doc__
        self.__wrapped__ = function
        _check(self)

    @property
    def timeout_us(self) -> int:
        """The timeout in microseconds, as clocks count."""
        return int(self.timeout * 1_000_000)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self._called(None, args, kwargs)

    def with_key(self, key: str) -> Callable[P, R]:
        """This tool under a key of the caller's, 1 to 255 characters. Raises BadKey."""
        checked_key(key)

        def keyed(*args: P.args, **kwargs: P.kwargs) -> R:
            return self._called(key, args, kwargs)

        return keyed

    def _called(self, key: str | None, args: tuple[Any, ...], kwargs: dict[str, Any]) -> R:
        hook = gateway_call.get()
        if hook is None:
            return self.function(*args, **kwargs)
        return cast(R, hook(self, self.bind(*args, **kwargs), key))

    def bind(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Arguments by parameter, defaults filled in. Raises BadArguments."""
        return self.parameters.bind(args, kwargs)

    def encode_arguments(self, arguments: Mapping[str, Any], types: Registry | None = None) -> bytes:
        """The stored form of bound arguments. Raises NotRecordable."""
        return self.parameters.encode(arguments, types)

    def decode_arguments(self, encoded: bytes, types: Registry | None = None) -> dict[str, Any]:
        """Bound arguments from their stored form, sharing nothing with the caller's."""
        return self.parameters.decode(encoded, types)

    def encode_result(self, result: Any, types: Registry | None = None) -> bytes:
        """The stored form of a result. Raises NotRecordable."""
        return values.encode(result, types=types, hint=self.parameters.result)

    def decode_result(self, encoded: bytes, types: Registry | None = None) -> Any:
        """A result from its stored form. Raises UnknownType, ShapeChanged."""
        return values.decode(encoded, self.parameters.result, types=types)

    def schema(self) -> dict[str, Any]:
        """JSON Schema of the parameters, for models. Raises BadTool."""
        return self.parameters.schema()

    def from_json(self, arguments: Mapping[str, Any] | str | bytes) -> dict[str, Any]:
        """A model's JSON arguments as typed, bound ones. Raises BadArguments."""
        return self.parameters.from_json(arguments)

    def business_key(self, arguments: Mapping[str, Any]) -> str | None:
        """The key that the template makes of bound arguments; None without a template. Raises BadKey."""
        if self.key is None:
            return None
        for name in _names(self.key):
            if arguments[name] is None or arguments[name] == "":
                why = f"The key of {self.name} is made from {name}, which is empty."
                raise BadKey(why, tool=self.name, parameter=name)
        try:
            return self.key.format_map(arguments)
        except (AttributeError, LookupError, TypeError, ValueError) as error:
            raise BadKey(f"The key of {self.name} cannot be made: {type(error).__name__}.", tool=self.name) from error

    def __repr__(self) -> str:
        return f"<Tool {self.name} {self.effect}>"


def refuse_nested(tool: Tool[Any, Any], arguments: dict[str, Any], key: str | None) -> NoReturn:
    """The hook inside tools and steps. Raises NestedCall."""
    raise NestedCall(f"{tool.name} was called inside a tool or a step.", tool=tool.name)


def _check(tool: Tool[Any, Any]) -> None:
    """Raises BadTool."""

    def refuse(why: str) -> NoReturn:
        raise BadTool(f"Tool {tool.name or '?'}: {why}.", tool=tool.name)

    if not tool.name or len(tool.name) > 128 or tool.name.startswith("~"):
        refuse("a name has 1 to 128 characters and does not begin with ~")
    if tool.effect not in EFFECTS:
        refuse(f"its effect is one of {', '.join(EFFECTS)}")
    if tool.on_cancel not in ("drain", "abandon"):
        refuse("on_cancel is drain or abandon")
    if not (tool.timeout > 0 and tool.settle >= 0 and tool.key_life > 0 and tool.retry.attempts >= 1):
        refuse("timeout and key_life are above 0, settle is not below, attempts are at least 1")
    if tool.key is not None:
        try:
            names = _names(tool.key)
        except ValueError as error:
            refuse(f"its key is no template ({error})")
        missing = [name for name in names if name not in tool.parameters.hints]
        if missing or not names:
            refuse(f"its key names {', '.join(repr(name) for name in missing) or 'no parameter'}")


def _names(template: str) -> list[str]:
    """The parameters that a key template names. Raises ValueError."""
    fields = [field for _, field, _, _ in string.Formatter().parse(template) if field is not None]
    return [field.partition(".")[0].partition("[")[0] for field in fields]
