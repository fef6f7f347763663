"""`App`: what code there is. Workflows, tools, models, and the classes whose values may be recorded."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, TypeVar, overload

from refold.clock import Clock
from refold.events.catalog.inference import Usage
from refold.events.values import Registry
from refold.gateway.models import Completion, ModelCall, Provider
from refold.gateway.prices import NoPrices, PriceTable
from refold.gateway.retry import Retry
from refold.gateway.tools import Probe, Tool
from refold.ids import Ids
from refold.runtime.budget import Budget
from refold.runtime.errors import AlreadyRegistered, BadRegistration, CodeUnavailable, NotRegistered, not_registered
from refold.runtime.run import Winner
from refold.runtime.steps import Codec
from refold.runtime.workflow import Workflow

if TYPE_CHECKING:
    from refold.events.catalog.tool import Effect
    from refold.runtime.opened import Opening
    from refold.runtime.sync import SyncOpening

C = TypeVar("C", bound=type)
P = ParamSpec("P")
R = TypeVar("R")

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,99}\Z")


class App:
    """The code of an application, by name. It does nothing until it is opened on a ledger.

    `models` are providers by the names that workflows use; `prices` says what their tokens cost.
    """

    def __init__(
        self, name: str, *, models: Mapping[str, Provider] | None = None, prices: PriceTable | None = None
    ) -> None:
        self.name = _checked("app", name)
        self.models: dict[str, Provider] = {_checked("model", each): found for each, found in (models or {}).items()}
        self.prices: PriceTable = prices or NoPrices()
        self.tools: dict[str, Tool[Any, Any]] = {}
        self.types = Registry({f"refold.{each.__name__}": each for each in (Completion, ModelCall, Usage, Winner)})
        self.errors: dict[str, type[BaseException]] = {}
        self._workflows: dict[str, dict[int, Workflow]] = {}

    @property
    def codec(self) -> Codec:
        """How values of this App's runs are written and made again."""
        return Codec(self.types, self.errors)

    def register(self, cls: C, *, name: str | None = None) -> C:
        """Lets values of a class, or exceptions of it, be recorded under a name. Returns the class: it decorates."""
        if issubclass(cls, BaseException):
            chosen = name or cls.__name__
            if self.errors.get(chosen, cls) is not cls:
                raise AlreadyRegistered(f"Another exception is registered as {chosen!r}.", name=chosen)
            self.errors[chosen] = cls
            return cls
        return self.types.register(cls, name=name)

    @overload
    def workflow(self, function: Callable[..., Any], /) -> Workflow: ...

    @overload
    def workflow(
        self, /, *, version: int = 1, name: str | None = None, budget: Budget | None = None
    ) -> Callable[[Callable[..., Any]], Workflow]: ...

    def workflow(
        self,
        function: Callable[..., Any] | None = None,
        /,
        *,
        version: int = 1,
        name: str | None = None,
        budget: Budget | None = None,
    ) -> Any:
        """Registers `async def f(run: Run, input)` or `def f(run: SyncRun, input)` as a workflow. Its version is
        declared, never derived: a run is resumed by the version it was started with.
        """

        def add(function: Callable[..., Any]) -> Workflow:
            made = Workflow(function, _checked("workflow", name or function.__name__), version, budget)
            versions = self._workflows.setdefault(made.name, {})
            if version in versions:
                raise AlreadyRegistered(f"Workflow {made.name!r} has a version {version} already.", name=made.name)
            versions[version] = made
            return made

        return add if function is None else add(function)

    @overload
    def tool(self, function: Callable[P, R], /) -> Tool[P, R]: ...

    @overload
    def tool(
        self,
        /,
        *,
        effect: Effect = "unsafe",
        name: str | None = None,
        version: int = 1,
        key: str | None = None,
        key_life: float = 86_400,
        timeout: float = 30,
        retry: Retry | None = None,
        probe: Probe | None = None,
        settle: float | None = None,
        on_cancel: Literal["drain", "abandon"] = "drain",
        marks_sending: bool = False,
    ) -> Callable[[Callable[P, R]], Tool[P, R]]: ...

    def tool(
        self,
        function: Callable[..., Any] | None = None,
        /,
        *,
        effect: Effect = "unsafe",
        name: str | None = None,
        version: int = 1,
        key: str | None = None,
        key_life: float = 86_400,
        timeout: float = 30,
        retry: Retry | None = None,
        probe: Probe | None = None,
        settle: float | None = None,
        on_cancel: Literal["drain", "abandon"] = "drain",
        marks_sending: bool = False,
    ) -> Any:
        """Registers a function as a tool: an act on the outside world, which goes through the gateway when a run calls
        it, and is the plain function elsewhere. See `refold.gateway.tools.Tool` for what the contract says.
        """

        def add(function: Callable[P, R]) -> Tool[P, R]:
            made = Tool(
                function,
                name=_checked("tool", name or function.__name__),
                effect=effect,
                version=version,
                key=key,
                key_life=key_life,
                timeout=timeout,
                retry=retry,
                probe=probe,
                settle=settle,
                on_cancel=on_cancel,
                marks_sending=marks_sending,
            )
            if made.name in self.tools:
                raise AlreadyRegistered(f"A tool is registered as {made.name!r} already.", name=made.name)
            self.tools[made.name] = made
            return made

        return add if function is None else add(function)

    def find_workflow(self, name: str, version: int | None = None) -> Workflow:
        """A workflow by name; the newest version unless one is given. Raises NotRegistered, CodeUnavailable."""
        versions = self._workflows.get(name)
        if not versions:
            raise not_registered("workflow", name, self._workflows)
        if version is None:
            version = max(versions)
        found = versions.get(version)
        if found is None:
            raise CodeUnavailable(
                f"Workflow {name!r} is registered in version {', '.join(map(str, sorted(versions)))}, and not in "
                f"version {version}.",
                workflow=name,
                version=version,
            )
        return found

    def workflow_names(self) -> list[str]:
        """The names of all workflows, in order."""
        return sorted(self._workflows)

    def registered(self, workflow: Workflow | str) -> Workflow:
        """The workflow that is meant by itself or by its name. Raises NotRegistered when this App does not have it."""
        if isinstance(workflow, str):
            return self.find_workflow(workflow)
        name = getattr(workflow, "__qualname__", None) or getattr(workflow, "name", repr(workflow))
        if not isinstance(workflow, Workflow):
            raise NotRegistered(f"{name} is a plain function; `@app.workflow()` makes it a workflow.", name=name)
        if self._workflows.get(workflow.name, {}).get(workflow.version) is not workflow:
            raise NotRegistered(f"Workflow {name!r} is not one of App {self.name!r}.", name=name)
        return workflow

    def find_tool(self, name: str) -> Tool[Any, Any]:
        """A tool by name. Raises NotRegistered."""
        found = self.tools.get(name)
        if found is None:
            raise not_registered("tool", name, self.tools)
        return found

    def find_model(self, name: str) -> Provider:
        """A model by name. Raises NotRegistered."""
        found = self.models.get(name)
        if found is None:
            raise not_registered("model", name, self.models)
        return found

    def open(
        self,
        ledger: str = "refold.db",
        *,
        scope: str = "default/default",
        clock: Clock | None = None,
        ids: Ids | None = None,
        recover: bool = True,
    ) -> Opening:
        """Opens a ledger with this code: `async with app.open("sqlite:///refold.db") as rf`. Runs whose process died
        are taken over and go on, unless `recover` is False.
        """
        from refold.runtime.opened import Opening

        return Opening(self, ledger, scope, clock, ids, recover)

    def open_sync(
        self, ledger: str = "refold.db", *, scope: str = "default/default", recover: bool = True
    ) -> SyncOpening:
        """The same for code without an event loop: `with app.open_sync(...) as rf`."""
        from refold.runtime.sync import SyncOpening

        return SyncOpening(self, ledger, scope, recover)


def _checked(what: str, name: str) -> str:
    if not _NAME.match(name):
        raise BadRegistration(f"{name!r} cannot be the name of a {what}.", name=name)
    return name
