"""A registered workflow: a function, its version, and how its input and result are written."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable
from typing import Any

from refold.errors import RefoldError
from refold.runtime.budget import Budget


class BadWorkflow(RefoldError):
    """A function cannot be a workflow: it must take its run, and at most one input."""

    code = "bad_workflow"
    exit_status = 2
    remedy = "Write `async def name(run: Run, input: Type) -> Result` (or `def name(run: SyncRun, ...)`)."


class Workflow:
    """A workflow as `@app.workflow` returns it: still callable as the plain function."""

    def __init__(self, function: Callable[..., Any], name: str, version: int, budget: Budget | None) -> None:
        self.function = function
        self.name = name
        self.version = version
        self.budget = budget
        self.is_async = inspect.iscoroutinefunction(function)
        self.__doc__ = function.__doc__
        self.__wrapped__ = function
        parameters = list(inspect.signature(function).parameters.values())
        if not 1 <= len(parameters) <= 2:
            raise BadWorkflow(f"{name} takes {len(parameters)} parameters; a workflow takes run and input.", name=name)
        self.takes_input = len(parameters) == 2
        try:
            hints = typing.get_type_hints(function, include_extras=True)
        except (NameError, TypeError, AttributeError):
            hints = {}
        self.input_hint: Any = hints.get(parameters[1].name, Any) if self.takes_input else Any
        self.result_hint: Any = hints.get("return", Any)

    def __call__(self, *args: Any, **options: Any) -> Any:
        return self.function(*args, **options)
