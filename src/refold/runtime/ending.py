"""How a run ends: the terminal event for what its function returned or raised."""

from __future__ import annotations

import asyncio
from typing import Any

from refold.clock import Clock
from refold.errors import RefoldError
from refold.events.catalog.run import RunCanceled, RunExpired, RunFailed, RunSucceeded
from refold.events.content import Encoded
from refold.events.values import NotRecordable
from refold.ids import Ids
from refold.ledger.drafts import Draft
from refold.runtime.failures import encode_error, message_of
from refold.runtime.steps import Codec


class Ending:
    """Makes the end of one run."""

    def __init__(self, codec: Codec, result_hint: Any, clock: Clock, ids: Ids) -> None:
        self.codec = codec
        self.result_hint = result_hint
        self.clock = clock
        self.ids = ids
        self.begun = False
        self.stopping: str | None = None
        """`canceled` or `expired`, once the code was told to stop."""

    def draft(self, value: Any, error: BaseException | None) -> Draft:
        """The terminal event."""
        if error is None:
            try:
                output = Encoded(self.codec.encode(value, self.result_hint))
            except NotRecordable as unrecordable:
                return self._failed(unrecordable)
            return Draft(RunSucceeded(), {"output": output}, output=output)
        if isinstance(error, asyncio.CancelledError) and self.stopping is not None:
            return Draft(RunExpired() if self.stopping == "expired" else RunCanceled())
        return self._failed(error)

    def _failed(self, error: BaseException) -> Draft:
        code = error.code if isinstance(error, RefoldError) else "exception"
        if isinstance(error, asyncio.CancelledError):
            code = "canceled_itself"
        stored = encode_error(error, self.codec.errors, self.codec.types)
        return Draft(RunFailed(error_code=code), {"error": stored}, error=message_of(error) or type(error).__qualname__)
