"""The parameters of a function: bound, encoded, described to a model, and read from a model's JSON."""

from __future__ import annotations

import inspect
import sys
import typing
from collections.abc import Callable, Mapping
from typing import Any, cast

import msgspec

from refold.events import values
from refold.events.values import Registry
from refold.gateway.errors import BadArguments, BadTool

_VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


class Parameters:
    """What a function takes and returns, by its signature and annotations."""

    def __init__(self, tool: str, function: Callable[..., Any]) -> None:
        self._tool = tool
        self._signature = inspect.signature(function)
        hints = _hints(function)
        self.result = hints.pop("return", Any)
        self.hints: dict[str, Any] = {
            name: _hint(each, hints.get(name, Any)) for name, each in self._signature.parameters.items()
        }
        # One annotation for all arguments, so that the codec finds the classes of each.
        self._all = typing.TypedDict("Arguments", self.hints)  # type: ignore[misc]

    def bind(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Arguments by parameter, defaults filled in. Raises BadArguments."""
        try:
            bound = self._signature.bind(*args, **kwargs)
        except TypeError as error:
            reason = str(error)
            raise BadArguments(f"{self._tool} cannot be called so: {reason}.", tool=self._tool, reason=reason) from None
        bound.apply_defaults()
        return dict(bound.arguments)

    def spread(self, arguments: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Bound arguments as a call takes them."""
        ordered = {name: arguments[name] for name in self._signature.parameters if name in arguments}
        bound = inspect.BoundArguments(self._signature, cast(Any, ordered))
        return bound.args, bound.kwargs

    def encode(self, arguments: Mapping[str, Any], types: Registry | None) -> bytes:
        """The stored form of bound arguments. Raises NotRecordable."""
        return values.encode(dict(arguments), types=types, hint=self._all)

    def decode(self, encoded: bytes, types: Registry | None) -> dict[str, Any]:
        """What `encode` wrote: a copy that shares nothing with the caller's values."""
        return cast(dict[str, Any], values.decode(encoded, self._all, types=types))

    def schema(self) -> dict[str, Any]:
        """JSON Schema of the parameters: one object. Raises BadTool for what cannot be described."""
        try:
            if uses_pydantic(self.hints.values()):
                schema = _pydantic_model(self._tool, self._fields()).model_json_schema()
                schema.pop("title", None)
                return cast(dict[str, Any], schema)
            schema = msgspec.json.schema(self._struct())
        except TypeError as error:
            raise BadTool(f"The parameters of {self._tool} cannot be described: {error}.", tool=self._tool) from error
        definitions = schema.pop("$defs")
        described: dict[str, Any] = definitions.pop(schema["$ref"].rpartition("/")[2])
        described.pop("title", None)
        return {**described, "$defs": definitions} if definitions else described

    def from_json(self, arguments: Mapping[str, Any] | str | bytes) -> dict[str, Any]:
        """A model's arguments as typed ones, bound. Raises BadArguments."""
        try:
            data = msgspec.json.decode(arguments) if isinstance(arguments, str | bytes) else dict(arguments)
            if uses_pydantic(self.hints.values()):
                given = _from_pydantic(_pydantic_model(self._tool, self._fields()), data)
            else:
                read = msgspec.convert(data, self._struct(), strict=False)
                given = {name: getattr(read, name) for name in read.__struct_fields__}
        except (msgspec.MsgspecError, UnicodeError, ValueError, RecursionError) as error:
            raise BadArguments(
                f"The arguments for {self._tool} do not fit: {error}.", tool=self._tool, reason=str(error)
            ) from None
        return self.bind((), {name: value for name, value in given.items() if value is not msgspec.UNSET})

    def _fields(self) -> dict[str, tuple[Any, bool]]:
        """Annotation of each parameter, and whether it has a default. Raises BadTool for those without names."""
        for name, each in self._signature.parameters.items():
            if each.kind in _VARIADIC or each.kind is inspect.Parameter.POSITIONAL_ONLY:
                raise BadTool(f"A model cannot give parameter {name} of {self._tool} by name.", tool=self._tool)
        return {
            name: (self.hints[name], each.default is not inspect.Parameter.empty)
            for name, each in self._signature.parameters.items()
        }

    def _struct(self) -> type[msgspec.Struct]:
        fields = [
            (name, hint | msgspec.UnsetType if hint is not Any else Any, msgspec.UNSET) if optional else (name, hint)
            for name, (hint, optional) in self._fields().items()
        ]
        return msgspec.defstruct("Arguments", fields, forbid_unknown_fields=True, kw_only=True)


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    try:
        return typing.get_type_hints(function, include_extras=True)
    except (NameError, TypeError, AttributeError, SyntaxError):
        # Written for the type checker only: classes behind such names have to be registered.
        known = getattr(function, "__annotations__", {})
        return {name: hint for name, hint in known.items() if not isinstance(hint, str)}


def _hint(parameter: inspect.Parameter, hint: Any) -> Any:
    if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
        return tuple[hint, ...]
    if parameter.kind is inspect.Parameter.VAR_KEYWORD:
        return dict[str, hint]
    return hint


def uses_pydantic(hints: typing.Iterable[Any]) -> bool:
    """Whether a pydantic model stands in annotations. Never imports pydantic."""
    pydantic = sys.modules.get("pydantic")
    if pydantic is None:
        return False
    waiting, seen = list(hints), set()
    while waiting:
        hint = waiting.pop()
        if id(hint) not in seen:
            seen.add(id(hint))
            if isinstance(hint, type) and issubclass(hint, pydantic.BaseModel):
                return True
            waiting.extend(typing.get_args(hint))
    return False


def _pydantic_model(tool: str, fields: Mapping[str, tuple[Any, bool]]) -> Any:
    pydantic = sys.modules["pydantic"]
    # A factory: the signature fills in the defaults, and none has to be written as JSON.
    left_out = pydantic.Field(default_factory=lambda: msgspec.UNSET)
    described = {name: (hint, left_out if optional else ...) for name, (hint, optional) in fields.items()}
    return pydantic.create_model(tool, __config__={"extra": "forbid"}, **described)


def _from_pydantic(model: Any, data: Any) -> dict[str, Any]:
    read = _validated(model.model_validate, data)
    return {name: getattr(read, name) for name in read.model_fields_set}


def read_pydantic(hint: Any, data: bytes) -> Any:
    """A JSON text as a value of an annotation in which a model stands. Raises ValueError, with the path."""
    return _validated(sys.modules["pydantic"].TypeAdapter(hint).validate_json, data)


def _validated(validate: Callable[[Any], Any], data: Any) -> Any:
    try:
        return validate(data)
    except sys.modules["pydantic"].ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        path = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in first["loc"])
        raise ValueError(f"{first['msg']} - at `${path}`") from None
