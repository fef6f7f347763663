"""`refold.replay_recording`: the same clients, answered from the record, with no network."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Iterator
from itertools import islice
from types import TracebackType
from typing import Any, Self

from refold.events.differences import ABSENT, differences
from refold.events.identity import Scope
from refold.events.redaction import Redactor
from refold.interop.record.bridge import Bridge
from refold.interop.record.clients import Clients
from refold.interop.record.divergence import Divergence, Kind, Report
from refold.interop.record.errors import RecordingDiverged, RecordingOver
from refold.interop.record.library import Library, Recorded, read_library
from refold.interop.record.places import Place, open_place
from refold.interop.record.traffic import Curtain, Sent
from refold.interop.record.transports import Package
from refold.ledger.drafts import view_text

_CANDIDATES = 50
"""Recorded requests that are compared to find the nearest."""
_WORTH_COUNTING = 1000
_INTERRUPTIONS = frozenset({"CancelledError", "KeyboardInterrupt", "SystemExit", "GeneratorExit"})
_RETRIED = frozenset({408, 409, 429})
_WAIT = b"retry-after-ms"


def replay_recording(
    run_id: str,
    *,
    ledger: Place = "refold.db",
    scope: Scope | str = Scope(),  # noqa: B008 - an immutable tuple
) -> ReplayedRecording:
    """Answers the clients of a block from a recording: `with refold.replay_recording(run_id) as rec:`, or `async with`.

    Nothing is sent and nothing is written. A request is answered as the recorded one that equals it in method, URL and
    body was, and equal ones in the order in which they were sent; streams come back chunk by chunk, errors are raised
    again. Whatever else is asked raises RecordingDiverged. `rec.report` says what was asked otherwise, or not at all.

    Raises, at the block's begin: LedgerMissing, RunNotFound, NotARecording, Erased, ContentDamaged.
    """
    return ReplayedRecording(run_id, ledger, scope)


class ReplayedRecording(Clients):
    """A replay under way; made by `replay_recording`. Its clients may be used from any thread and any event loop."""

    def __init__(self, run_id: str, ledger: Place, scope: Scope | str) -> None:
        super().__init__(_Line(self))
        self._what = (run_id, ledger, scope)
        self._lock = threading.Lock()
        self._library: Library | None = None
        self._over = False
        self._redactor = Redactor()
        self._curtain = Curtain(self._redactor)
        self._found: list[Divergence] = []
        self._named: set[int] = set()
        self._diverged: RecordingDiverged | None = None

    @property
    def run_id(self) -> str:
        """The run that is replayed."""
        return self._open_library().run_id

    @property
    def report(self) -> Report:
        """How it went; complete when the block has ended."""
        library = self._open_library()
        with self._lock:
            missing = [
                Divergence("missing", each.seq, each.step_id, self._shown(each.request()), None)
                for each in library.unused()
                if each.seq not in self._named
            ]
            return Report(library.run_id, len(library.requests), [*self._found, *missing])

    def __enter__(self) -> Self:
        bridge = Bridge()
        try:
            bridge.call(self._read())
        finally:
            bridge.stop()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._over = True
        # An SDK takes any error of its transport for a broken connection, tries again, and raises one of its own.
        if self._diverged is not None and error is not None and _stems_from(error, self._diverged):
            raise self._diverged from error

    async def __aenter__(self) -> Self:
        bridge = Bridge()
        try:
            await bridge.acall(self._read())
        finally:
            bridge.stop()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        self.__exit__(kind, error, tb)

    async def _read(self) -> None:
        run_id, place, scope = self._what
        async with await open_place(place, create=False) as ledger:
            self._library = await read_library(ledger.scope(scope), run_id)
            self._redactor = ledger.redactor
            self._curtain = Curtain(ledger.redactor)

    def _open_library(self) -> Library:
        if self._library is None:
            raise RecordingOver("The replay has not begun: use its clients inside its `with` block.")
        return self._library

    # What the line needs.

    def sent(self, request: Any, body: bytes) -> Sent:
        return self._curtain.sent(request.method, str(request.url), request.headers.raw, body)

    def find(self, sent: Sent) -> Recorded:
        """The recorded request that answers this one. Raises RecordingDiverged."""
        library = self._open_library()
        if self._over:
            raise RecordingOver(f"The block that replays {library.run_id} has ended.", run_id=library.run_id)
        with self._lock:
            found = library.take(sent)
            if found is not None and _answers(found.answer):
                return found
            attempted = sent.matched()
            if found is not None:
                raise self._diverged_as("unanswered", found, "never got an answer", attempted)
            if library.knows(sent):
                raise self._diverged_as("exhausted", None, "was asked for more often than it is on record", attempted)
            raise self._nothing_like(library, attempted)

    def cut(self, recorded: Recorded) -> RecordingDiverged:
        """The error for code that reads on where the recorded reader stopped."""
        with self._lock:
            return self._diverged_as("cut", recorded, "is on record as far as it was read then", None)

    def _nothing_like(self, library: Library, attempted: dict[str, Any]) -> RecordingDiverged:
        candidates = islice(library.unused(), _CANDIDATES)
        near = min(candidates, key=lambda each: _distance(each.request(), attempted), default=None)
        if near is None:
            return self._diverged_as("changed_request", None, "is not on record, and nothing there is left", attempted)
        asked = near.request()
        # Equal here, and not for the fingerprint: 0.0 and -0.0.
        path, recorded, other = next(differences(asked, attempted), ("$", asked, attempted))
        self._named.add(near.seq)
        text = f"is not on record; it differs from event {near.seq} at {path}"
        return self._diverged_as("changed_request", near, text, attempted, path, recorded, other)

    def _diverged_as(
        self,
        kind: Kind,
        recorded: Recorded | None,
        text: str,
        attempted: dict[str, Any] | None,
        path: str | None = None,
        was: Any = ABSENT,
        now: Any = ABSENT,
    ) -> RecordingDiverged:
        seq, step = (None, None) if recorded is None else (recorded.seq, recorded.step_id)
        if path is not None:
            shown, tried = self._shown(was), self._shown(now)
        else:
            shown = None if recorded is None else self._shown(recorded.request())
            tried = None if attempted is None else self._shown(attempted)
        found = Divergence(kind, seq, step, shown, tried, path)
        if found not in self._found:  # An SDK asks again.
            self._found.append(found)
        run_id = self._open_library().run_id
        what = "A request" if attempted is None else f"{attempted['method']} {attempted['url'].partition('?')[0]}"
        error = RecordingDiverged(f"{what} {text}, in {run_id}.", run_id=run_id, kind=kind, seq=seq, path=path)
        self._diverged = self._diverged or error
        return error

    def _shown(self, value: Any) -> str | None:
        return None if value is ABSENT else view_text(self._redactor, value)[0]


class _Line:
    def __init__(self, replay: ReplayedRecording) -> None:
        self._replay = replay

    def send(self, package: Package, inner: Any, request: Any) -> Any:
        return self._answer(package, request, request.read())

    async def asend(self, package: Package, inner: Any, request: Any) -> Any:
        return self._answer(package, request, await request.aread())

    def _answer(self, package: Package, request: Any, body: bytes) -> Any:
        replay = self._replay
        recorded = replay.find(replay.sent(request, body))
        response = recorded.answer.get("response")
        if response is None:
            raise _again(package, recorded)
        headers = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in response["headers"]]
        if response["status"] in _RETRIED or response["status"] >= 500:
            # SDKs sleep before they try again; nobody is to be spared here.
            headers = [*(each for each in headers if each[0] != _WAIT), (_WAIT, b"1")]
        extensions = {name: text.encode("latin-1") for name, text in response["extensions"].items()}
        return package.response(response["status"], headers, _Chunks(replay, package, recorded), extensions)


class _Chunks:
    """A recorded body, in the chunks in which it came."""

    def __init__(self, replay: ReplayedRecording, package: Package, recorded: Recorded) -> None:
        self._replay, self._package, self._recorded = replay, package, recorded

    def read(self) -> Iterator[bytes]:
        response = self._recorded.answer["response"]
        body = response["body"]
        data = body.encode() if isinstance(body, str) else body
        at = 0
        for size in response["chunks"]:
            yield data[at : at + size]
            at += size
        if self._recorded.ended == "closed" or _interrupted(self._recorded.answer):
            raise self._replay.cut(self._recorded)
        if self._recorded.ended == "failed":
            raise _again(self._package, self._recorded)

    async def aread(self) -> AsyncIterator[bytes]:
        for chunk in self.read():
            yield chunk

    def close(self) -> None:
        """Nothing is open."""

    async def aclose(self) -> None:
        """Nothing is open."""


def _answers(answer: dict[str, Any]) -> bool:
    """Whether there is something to give: an answer, or an error of the transport. A cancellation is neither."""
    return "response" in answer or ("raised" in answer and not _interrupted(answer))


def _interrupted(answer: dict[str, Any]) -> bool:
    """Whether it was ended by the code that asked, in a way that a replay cannot repeat for it."""
    return "raised" in answer and answer["raised"]["type"] in _INTERRUPTIONS


def _again(package: Package, recorded: Recorded) -> Exception:
    """The error that ended a recorded exchange, as this package raises it."""
    raised = recorded.answer["raised"]
    kind = getattr(package.module, raised["type"], None)
    if not (isinstance(kind, type) and issubclass(kind, package.module.TransportError)):
        kind = package.module.TransportError
    error: Exception = kind(raised["message"])
    return error


def _distance(recorded: Any, attempted: Any) -> int:
    """In how many places two requests differ, up to a bound."""
    return sum(1 for _ in islice(differences(recorded, attempted), _WORTH_COUNTING))


def _stems_from(error: BaseException, cause: BaseException) -> bool:
    """Whether an error is another one than `cause`, raised because of it or of its like."""
    seen: set[int] = set()
    each: BaseException | None = error
    while each is not None and id(each) not in seen:
        if isinstance(each, RecordingDiverged):
            return each is not error
        seen.add(id(each))
        each = each.__cause__ or each.__context__
    return False
