"""Environment variables, read once."""

from __future__ import annotations

from typing import Any

from refold.events.envelope import Event
from refold.runtime.operations import Fields
from refold.runtime.scope import escaped
from refold.runtime.steps import Codec


class EnvAsk:
    """`await run.env(name)`. Its record is a step's."""

    kind = "env"
    drains = False

    def __init__(self, variable: str, codec: Codec) -> None:
        self.variable = variable
        self.name = f"env:{escaped(variable)}"
        self._codec = codec

    def difference(self, event: Event, fields: Fields) -> str | None:
        return None

    def outcome(self, event: Event, fields: Fields) -> Any:
        return self._codec.decode(fields["output"])

    def request(self) -> Any:
        return {"variable": self.variable}
