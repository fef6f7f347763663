"""What code asks a model for, as the executor hands it to `Inference`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec

from refold.gateway.models import ModelRequest
from refold.gateway.retry import Retry
from refold.ledger.drafts import Draft


class Ask(msgspec.Struct, kw_only=True):
    """One inference. `provider` is its name among the App's models; `timeout` is seconds for an attempt.

    `attempt` is the number of the next attempt and `failures` how many failed before: what `answers.standing` says of
    the record. `stream` makes it a stream: it gets the draft of each `inference.part`, in order and before `perform`
    returns, and must not raise. Setting `cut` ends the attempt under way: nobody wants the rest.
    """

    step_id: str
    site: str
    request: ModelRequest
    provider: str
    attempt: int = 1
    failures: int = 0
    retry: Retry = Retry()
    timeout: float = 120.0
    stream: Callable[[Draft], None] | None = None
    cut: asyncio.Event = msgspec.field(default_factory=asyncio.Event)
