"""`Run`: what a workflow's author has in hand. Everything here is an operation at a site, recorded and replayed."""

from __future__ import annotations

import asyncio
import random
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from hashlib import sha256
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, TypeVar
from uuid import UUID

from refold.events.identity import keyed_digest
from refold.gateway.errors import NotOffered
from refold.gateway.models import Completion, ModelCall, request_for
from refold.gateway.retry import Retry
from refold.gateway.tools import Tool, gateway_call
from refold.runtime.ahead import answer
from refold.runtime.calls import ToolAsk
from refold.runtime.children import ChildAsk
from refold.runtime.env import EnvAsk
from refold.runtime.errors import OutsideRun
from refold.runtime.inference import InferAsk, InferStream
from refold.runtime.places import place_of
from refold.runtime.scope import current_scope
from refold.runtime.signals import CheckpointAsk, SignalAsk
from refold.runtime.steps import Codec, StepAsk
from refold.runtime.sync import run_function

if TYPE_CHECKING:
    from refold.runtime.app import App
    from refold.runtime.executor import Executor
    from refold.runtime.operations import Ask
    from refold.runtime.workflow import Workflow

T = TypeVar("T")


class Winner(NamedTuple):
    """The first of a race: its name, and its value."""

    name: str
    value: Any


class Identity(NamedTuple):
    """What a run is, apart from what it does."""

    run_id: str
    key: str | None
    seed: str
    secret: bytes
    domain: str


class Run:
    """One execution of a workflow, as its code sees it."""

    def __init__(self, app: App, executor: Executor, identity: Identity, codec: Codec, state: Any) -> None:
        self._app = app
        self._executor = executor
        self._identity = identity
        self._codec = codec
        self.state: Any = state
        """What the last `checkpoint` was given; None in the first segment."""
        self._offered: set[str] | None = None

    @property
    def id(self) -> str:
        """The run's id."""
        return self._identity.run_id

    @property
    def key(self) -> str | None:
        """The caller's name for it."""
        return self._identity.key

    def step(self, function: Callable[..., Any], *args: Any, **options: Any) -> Coroutine[Any, Any, Any]:
        """Runs a pure function once and records its result; afterwards the record answers.

        The function, `def` or `async def`, runs outside the deterministic loop: it may read clocks, files and networks,
        and must change nothing outside: that is a tool's business. Raises what it raised, StepFailed for exceptions
        that cannot be made again, NotRecordable for arguments that cannot be recorded.
        """
        return self._asked(StepAsk(function, args, options, self._codec))

    def infer(
        self,
        model: str,
        *,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Tool[Any, Any]] = (),
        timeout: float = 120.0,
        retry: Retry = Retry(),  # noqa: B008 - an immutable struct
        **settings: Any,
    ) -> Coroutine[Any, Any, Completion]:
        """Asks a model of the App's by name and returns its answer; `settings` go with the request as they are.

        At least once: each attempt is on record before it leaves, with what it cost. Raises NotRegistered,
        InferenceFailed when the last attempt failed, BudgetExceeded before one that would be over.
        """
        return self._asked(self._infer_ask(model, messages, tools, settings, timeout, retry, streams=False))

    def stream(
        self,
        model: str,
        *,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Tool[Any, Any]] = (),
        timeout: float = 120.0,
        retry: Retry = Retry(),  # noqa: B008 - an immutable struct
        **settings: Any,
    ) -> InferStream:
        """The same, part by part: `async with run.stream(...) as stream: async for part in stream`."""
        ask = self._infer_ask(model, messages, tools, settings, timeout, retry, streams=True)
        return InferStream(self._executor, ask)

    def _infer_ask(
        self,
        model: str,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Tool[Any, Any]],
        settings: dict[str, Any],
        timeout: float,
        retry: Retry,
        *,
        streams: bool,
    ) -> InferAsk:
        provider = self._app.find_model(model)
        request = request_for(provider, messages, settings, [schema_of(each) for each in tools])
        self._offered = (self._offered or set()) | {each.name for each in tools}
        return InferAsk(model, request, self._identity.secret, self._codec, timeout, retry, streams=streams)

    async def sleep(self, seconds: float = 0, *, minutes: float = 0, hours: float = 0, days: float = 0) -> None:
        """Waits; across restarts, for what is left. The same as `asyncio.sleep`, which is recorded too."""
        await asyncio.sleep(seconds + 60 * minutes + 3600 * hours + 86_400 * days)

    def now(self) -> datetime:
        """The recorded time of what the code was told last, UTC. It stands still while the code runs."""
        return datetime.fromtimestamp(self._loop.now_us / 1_000_000, UTC)

    def random(self) -> random.Random:
        """A source of random numbers for this place in the code: another one in each run, the same in each replay."""
        return random.Random(self._entropy("random"))

    def uuid(self) -> UUID:
        """A random UUID (version 4), likewise."""
        return UUID(bytes=self._entropy("uuid")[:16], version=4)

    def env(self, name: str) -> Coroutine[Any, Any, str | None]:
        """The value of an environment variable, read once and recorded."""
        return self._asked(EnvAsk(name, self._codec))

    def signal(self, name: str, type_: Any = Any) -> Coroutine[Any, Any, Any]:
        """Waits for a signal of this name, sent by `rf.signal(run, name, value)`; each is taken once, in order."""
        return self._asked(SignalAsk(name, type_, self._codec))

    async def race(self, **contestants: Awaitable[Any]) -> Winner:
        """Waits for the first to end, cancels the others, and waits until they have ended too. Raises what the first
        one raised. A loser that has sent an effect is waited for: its outcome is recorded.
        """
        tasks = {asyncio.create_task(_awaited(each), name=name): name for name, each in contestants.items()}
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        first = next(task for task in tasks if task in done)
        return Winner(tasks[first], first.result())

    def child(
        self, workflow: Workflow, input: Any = None, *, key: str | None = None, attached: bool = True
    ) -> Coroutine[Any, Any, Any]:
        """Runs another workflow as a run of its own and returns its result; detached, its id at once.

        An attached child is cancelled with this run. Raises NotRegistered, ChildFailed.
        """
        return self._asked(ChildAsk(self._app.registered(workflow), input, key, attached, self._codec))

    @asynccontextmanager
    async def scope(self, name: Any) -> AsyncIterator[None]:
        """Names the sites within by a business key instead of by their order: an order's number, a ticket's id.

        In the record the name stands as a keyed digest.
        """
        digest = keyed_digest(self._identity.secret, "scope name", self._codec.encode(name)).hex()[:16]
        token = current_scope.set(self._loop.scope().child(f"@{digest}"))
        try:
            yield
        finally:
            current_scope.reset(token)

    async def checkpoint(self, state: Any) -> NoReturn:
        """Begins a new segment: the workflow's function starts again with `run.state == state`, and what came before is
        never replayed to resume the run. Never returns. Raises NotQuiet while other operations are under way.
        """
        await self._executor.ask(CheckpointAsk(state, Any, self._codec))
        raise AssertionError("a checkpoint does not return")

    def call(self, call: ModelCall) -> Coroutine[Any, Any, Any]:
        """Makes a tool call that a model asked for, through the gateway. Raises NotRegistered, BadArguments, and what
        the tool's call raises; NotOffered for a tool that no request of this segment had offered, where there was one.
        """
        tool = self._app.find_tool(call.name)
        if self._offered is not None and tool.name not in self._offered:
            offered = ", ".join(sorted(self._offered)) or "none"
            raise NotOffered(f"A model asked for {tool.name}, which it was not offered ({offered}).", tool=tool.name)
        return self.tool(tool, tool.from_json(call.arguments), None, call.id or None)

    def tool(
        self, tool: Tool[Any, Any], arguments: dict[str, Any], key: str | None, provider_call_id: str | None = None
    ) -> Coroutine[Any, Any, Any]:
        """What calling a tool in the run's code comes to: bound arguments, and the caller's key if any."""
        tool = self._app.tools.get(tool.name, tool)  # The code of tests has others under the same names.
        return self._asked(ToolAsk(tool, arguments, key, provider_call_id, self._identity.secret, self._codec))

    def begin(self, workflow: Workflow, input: Any) -> Coroutine[Any, Any, Any]:
        """The workflow's coroutine for this run; in its code, tools go through the gateway."""
        self._executor.loop.set_variable(gateway_call, self.tool)
        arguments = (input,) if workflow.takes_input else ()
        if not workflow.is_async:
            return run_function(workflow, self, arguments)
        coro: Coroutine[Any, Any, Any] = workflow.function(self, *arguments)
        return coro

    def _asked(self, ask: Ask) -> Coroutine[Any, Any, Any]:
        coro = answer(self._executor, ask, place_of(sys._getframe(2)))
        # A task that is made of it is called after what it asks for, not after the way in which it is asked.
        coro.__qualname__ = ask.name  # type: ignore[attr-defined]
        return coro

    @property
    def _loop(self) -> Any:
        loop = self._executor.loop
        if not loop.running_code:
            raise OutsideRun("The run was used outside the workflow's own code.")
        return loop

    def _entropy(self, purpose: str) -> bytes:
        site: str = self._loop.scope().site(purpose)
        return sha256(bytes.fromhex(self._identity.seed) + site.encode()).digest()


async def _awaited(awaitable: Awaitable[T]) -> T:
    return await awaitable


def schema_of(tool: Tool[Any, Any]) -> dict[str, Any]:
    """A tool as models are told of it."""
    function = {"name": tool.name, "description": tool.__doc__ or "", "parameters": tool.schema()}
    return {"type": "function", "function": function}
