"""What may go wrong with a request, on demand, and the second port on which a test orders it.

The control has a port of its own, so that a service which closes every connection can still be told to stop that.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, replace
from typing import Any, Literal

from refold.demo.wire import Answer, Request, Service

__all__ = ["Control", "Fault", "Faulty"]

REFUSED = {"type": "fault", "message": "This answer was ordered by a test."}


@dataclass(frozen=True, slots=True)
class Fault:
    """How a service treats one request. What is not said goes as usual.

    Attributes
    ----------
    reads: False resets a connection before anything of it is read. Requests cannot be told apart then, so the next
        connection has it, whatever `method`, `path` and `where` say.
    acts: False does nothing but answer.
    held: where the request waits for `POST /release` on the control port.
    delay: seconds between acting and answering.
    status: this instead of the answer's own, with an error as its body.
    ends: "close" ends the connection without an answer, "reset" breaks it, "half" closes it in the answer's middle.
    method, path: the requests that may have this fault; an empty path stands for all.
    where: fields of a JSON body that must be equal.
    """

    reads: bool = True
    acts: bool = True
    held: Literal["", "before acting", "before answering"] = ""
    delay: float = 0
    status: int | None = None
    ends: Literal["answer", "half", "close", "reset"] = "answer"
    method: str = "POST"
    path: str = ""
    where: dict[str, Any] | None = None

    def concerns(self, request: Request) -> bool:
        if not self.reads or request.method != self.method or self.path not in ("", request.path):
            return False
        if self.where is None:
            return True
        body = request.json()
        return isinstance(body, dict) and all(body.get(name) == value for name, value in self.where.items())


class Faulty:
    """A service whose next requests have the faults that were ordered, each fault once, in order."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._ordered: list[Fault] = []
        self._release = asyncio.Event()
        self._changed = asyncio.Condition()
        self._held = 0

    def order(self, fault: Fault, times: int) -> None:
        self._ordered.extend([fault] * times)

    def forget(self) -> None:
        self._ordered.clear()

    async def release(self) -> int:
        """Let all go on that are held now; how many they were."""
        released = self._held
        self._release.set()
        self._release = asyncio.Event()
        return released

    async def held(self, count: int) -> int:
        """Wait until so many requests are held at once."""
        async with self._changed:
            await self._changed.wait_for(lambda: self._held >= count)
            return self._held

    def takes(self) -> bool:
        """Whether the next connection is read."""
        for fault in self._ordered:
            if not fault.reads:
                self._ordered.remove(fault)
                return False
        return True

    async def answer(self, request: Request) -> Answer:
        fault = self._next(request)
        if fault is None:
            return await self._service.answer(request)
        if fault.held == "before acting":
            await self._hold()
        usual = await self._service.answer(request) if fault.acts else Answer.of(503, {"error": REFUSED})
        if fault.held == "before answering":
            await self._hold()
        await asyncio.sleep(fault.delay)
        if fault.status is not None:
            usual = Answer.of(fault.status, {"error": REFUSED})
        return replace(usual, ends=fault.ends)

    def _next(self, request: Request) -> Fault | None:
        for fault in self._ordered:
            if fault.concerns(request):
                self._ordered.remove(fault)
                return fault
        return None

    async def _hold(self) -> None:
        release = self._release
        await self._count(1)
        try:
            await release.wait()
        finally:
            await self._count(-1)

    async def _count(self, change: int) -> None:
        async with self._changed:
            self._held += change
            self._changed.notify_all()


class Control:
    """The control port: POST /faults, DELETE /faults, GET /held?count=N (waits), POST /release."""

    def __init__(self, faulty: Faulty) -> None:
        self._faulty = faulty

    async def answer(self, request: Request) -> Answer:
        match request.method, request.path:
            case "POST", "/faults":
                ordered = json.loads(request.body)
                self._faulty.order(Fault(**ordered["fault"]), ordered["times"])
                return Answer.of(200, {})
            case "DELETE", "/faults":
                self._faulty.forget()
                return Answer.of(200, {})
            case "GET", "/held":
                return Answer.of(200, {"held": await self._faulty.held(int(request.query["count"]))})
            case "POST", "/release":
                return Answer.of(200, {"released": await self._faulty.release()})
        return Answer.of(404, {"error": {"type": "not_found", "message": "The control has no such page."}})
