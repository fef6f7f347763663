"""How an attempt ended: a result, a definite failure, or unknown. What an exception means stands only here."""

from __future__ import annotations

import asyncio
import sys
from typing import Any, Literal, NamedTuple

from refold.gateway.errors import NotSent, ToolFailed

_TEXT = 4000
"""Characters of an error's text that are kept."""
_NO_ANSWER = (408, 409, 425, 429)
"""Statuses below 500 that do not say whether it was done."""

Why = Literal["crash", "timeout", "connection", "server_error", "canceled", "exception"]


class Result(NamedTuple):
    """The tool returned."""

    value: Any


class Failure(NamedTuple):
    """Known not to have happened: they said no, or nothing was sent."""

    how: Literal["answered", "not_sent"]
    code: str
    message: str
    retryable: bool


class Unknown(NamedTuple):
    """Sent, and no telling what became of it."""

    why: Why
    message: str


Ending = Result | Failure | Unknown


def ending_of(error: BaseException, *, sent: bool, dispatched: bool) -> Ending:
    """What an exception out of a tool's code means.

    `sent`: something is known to have left the process; then no exception says otherwise. `dispatched`: False where
    the tool marks its sending and did not come so far.
    """
    if isinstance(error, NotSent):
        if sent:
            return Unknown("connection", _text(error))
        return Failure("not_sent", error.code, _text(error), error.retryable)
    if isinstance(error, ToolFailed):
        return Failure("answered", error.code, _text(error), error.retryable)
    if not dispatched:
        return Failure("not_sent", "not_sent", _text(error), True)
    return _of_http(error, sent) or Unknown(_why(error), _text(error))


def _of_http(error: BaseException, sent: bool) -> Ending | None:
    """What the exceptions of httpx say, known by name so that nothing is imported here."""
    for package in ("httpx", "httpx2"):
        module = sys.modules.get(package)
        if module is None or not isinstance(error, module.HTTPError):
            continue
        if isinstance(error, module.HTTPStatusError):
            status = error.response.status_code
            text = f"HTTP {status}"
            if 400 <= status < 500 and status not in _NO_ANSWER:
                return Failure("answered", f"http_{status}", text, False)
            return Unknown("server_error", text)
        if isinstance(error, module.ConnectError | module.ConnectTimeout | module.PoolTimeout) and not sent:
            return Failure("not_sent", "not_sent", _text(error), True)
        return Unknown("timeout" if isinstance(error, module.TimeoutException) else "connection", _text(error))
    return None


def _why(error: BaseException) -> Why:
    if isinstance(error, TimeoutError):
        return "timeout"
    if isinstance(error, asyncio.CancelledError):
        return "canceled"
    return "connection" if isinstance(error, ConnectionError | EOFError) else "exception"


def _text(error: BaseException) -> str:
    kind = "" if isinstance(error, ToolFailed) else f"{type(error).__name__}: "
    try:
        return (kind + str(error))[:_TEXT].removesuffix(": ")
    except Exception:  # noqa: BLE001 - somebody's __str__; its failing says nothing about the call
        return kind.removesuffix(": ")
