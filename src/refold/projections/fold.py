"""The engine of all folds: a dispatch table from event types to handlers, a state of what is open, an outlet for rows.

A handler is a plain function `(state, event) -> None`. It changes rows and calls `state.put(row)` for each one it
made or changed; it does no I/O and opens no content. The same handlers serve the append's transaction, a rebuild, and
the state at any seq: those differ only in what they do with the rows that were put.

State holds what is open (see `docs/decisions/0004-projections.md`), so it stays small however long a run is, and a
snapshot of it too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

import msgspec

from refold.errors import RefoldError
from refold.events.envelope import Event, StreamRef
from refold.events.identity import Scope, Stream
from refold.projections.rows import ApprovalRow, Row, RunRow, StepRow, ToolCallRow


class BrokenFold(RefoldError):
    """An event refers to something that the events before it in its stream did not open.

    The stream was written by something that does not keep the rules, or its order was changed.
    """

    code = "broken_fold"
    exit_status = 7
    remedy = "Run `refold verify`; if the chain is intact, report the event's type and seq."


class OpenState(msgspec.Struct, omit_defaults=True):
    """What is open in one stream: the part of a fold that later events may still change. This is what a
    snapshot holds. `checkpoint` is the seq of the last `run.checkpointed`.
    """

    seq: int = 0
    checkpoint: int = 0
    run: RunRow | None = None
    steps: dict[str, StepRow] = {}
    calls: dict[str, ToolCallRow] = {}
    approvals: dict[str, ApprovalRow] = {}


class FoldState:
    """One stream's fold under way: its open state, and the rows put since they were last taken."""

    __slots__ = ("_changed", "open", "ref", "run_id", "stream_name")

    def __init__(self, ref: StreamRef, open_: OpenState | None = None) -> None:
        self.ref = ref
        self.run_id = ref.stream.run_id
        self.stream_name = str(ref.stream)
        self.open = open_ if open_ is not None else OpenState()
        self._changed: dict[int, Row] = {}

    def put(self, row: Row) -> None:
        """Hands out a row that was made or changed; putting it again before it is taken costs nothing."""
        self._changed[id(row)] = row

    @property
    def pending(self) -> int:
        """How many rows wait to be taken."""
        return len(self._changed)

    def forget_after(self, count: int) -> None:
        """Drops the rows that an event put which was refused by a later handler; they were put last."""
        while len(self._changed) > count:
            self._changed.popitem()

    def take(self) -> list[Row]:
        """The rows put since the last call, oldest first."""
        rows = list(self._changed.values())
        self._changed.clear()
        return rows

    def when(self, event: Event) -> int | None:
        """When it happened, as far as is known. An imported event whose source tells no time has none: that it was
        recorded today says nothing about it.
        """
        run = self.open.run
        if event.occurred_at is None and run is not None and run.origin == "imported":
            return None
        return event.at

    def run(self, event: Event) -> RunRow:
        """The run's row. Raises BrokenFold when no run was created before this event."""
        if self.open.run is None:
            raise self.broken(event, "the run", self.run_id)
        return self.open.run

    def broken(self, event: Event, what: str, identity: str) -> BrokenFold:
        """The error for an event that refers to what no event before it opened."""
        return BrokenFold(
            f"{event.type} at seq {event.seq} of {self.stream_name} refers to {what} {identity}, which is not open.",
            stream=self.stream_name,
            seq=event.seq,
            type=event.type,
        )


Handler = Callable[[FoldState, Event], None]
H = TypeVar("H", bound=Handler)

_HANDLERS: dict[str, tuple[Handler, ...]] = {}


def on(*types: str) -> Callable[[H], H]:
    """Registers a handler for event types. Handlers of one type run in the order of registration."""

    def add(handler: H) -> H:
        for name in types:
            _HANDLERS[name] = (*_HANDLERS.get(name, ()), handler)
        return handler

    return add


def fold(state: FoldState, events: Iterable[Event]) -> FoldState:
    """Applies events in order to a state and returns the same state. Types without handlers change nothing."""
    handlers = _HANDLERS
    open_ = state.open
    for event in events:
        for handler in handlers.get(event.type, ()):
            handler(state, event)
        open_.seq = event.seq
    return state


def new_state(scope: Scope, stream: Stream) -> FoldState:
    """The state before a stream's first event."""
    return FoldState(StreamRef(scope, stream))


_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(OpenState)


def freeze(state: FoldState) -> bytes:
    """The open state as bytes, for a snapshot."""
    return _ENCODER.encode(state.open)


def thaw(ref: StreamRef, data: bytes) -> FoldState:
    """The state that `freeze` wrote. Raises msgspec.MsgspecError when the bytes are not one."""
    return FoldState(ref, _DECODER.decode(data))


def named(name: str, text: str | None) -> str:
    """A name for a row: the text from the view where facts hold only its digest, and the digest once that is erased."""
    return text if text is not None and name.startswith("~") else name


def milliseconds(start: int | None, end: int | None) -> float | None:
    """Between two microsecond times, in milliseconds; None when either is unknown."""
    return None if start is None or end is None else (end - start) / 1000


def spent(duration_us: int | None, start: int | None, end: int | None) -> float | None:
    """The measured duration where there is one, else the distance of the two times, in milliseconds."""
    return milliseconds(start, end) if duration_us is None else duration_us / 1000
