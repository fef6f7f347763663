"""What probes and people say about a call in doubt."""

from __future__ import annotations

from typing import Any

import msgspec

from refold.events.catalog.tool import Resolution


class Happened(msgspec.Struct, frozen=True):
    """The effect was done, and this is its result as the tool would have returned it."""

    result: Any = None


class DidNotHappen(msgspec.Struct, frozen=True):
    """The effect was not done and will not be by what was sent. Counts only when deadline and settling time have
    passed; then the call is made again, with a new downstream key.
    """


class CannotTell(msgspec.Struct, frozen=True):
    """The other side does not know, or could not be asked."""


class Resend(msgspec.Struct, frozen=True):
    """Send it again under the same downstream key, whether it happened or not."""


class Abandon(msgspec.Struct, frozen=True):
    """Give the question up: the run gets `Abandoned`."""


Answer = Happened | DidNotHappen | CannotTell
"""What a probe may return."""
Decision = Happened | DidNotHappen | Resend | Abandon
"""What a person may decide."""

NAMES: dict[type, Resolution] = {
    Happened: "happened",
    DidNotHappen: "did_not_happen",
    Resend: "resend",
    Abandon: "abandon",
}
"""How decisions stand in facts."""
