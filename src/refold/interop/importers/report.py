"""What an import says when it is done, and what it refuses."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from decimal import Context, Decimal
from typing import Any, NamedTuple

import msgspec

from refold.errors import RefoldError
from refold.events.catalog import Facts
from refold.events.catalog.inference import CostRecorded, InferenceRequested
from refold.events.catalog.tool import ToolAnswered, ToolDispatched, ToolFailed
from refold.events.redaction import Redactor
from refold.ledger.drafts import view_text

_SUMS = Context(prec=400)
"""Wide enough that adding amounts never rounds: see `amounts.amount`, which bounds what an amount may be."""
_MOST_NAMES = 200


class ImportConflict(RefoldError):
    """A record that was imported before is now another one in the source.

    A run's history is never rewritten. Records are compared one by one, by keyed digests that stand in the events, so
    the error names the first that differs. Nothing of the source was written to that run.
    """

    code = "import_conflict"
    exit_status = 6
    remedy = "Import the file as it was, or give the edited session an id of its own."


class SourceUnreadable(RefoldError):
    """A file that was to be imported does not exist or cannot be read."""

    code = "source_unreadable"
    exit_status = 2
    remedy = "Check the path and its permissions."


class UnknownFormat(RefoldError):
    """There is no importer of this name."""

    code = "unknown_format"
    exit_status = 2
    remedy = "Use one of the formats that the message lists."


class Problem(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where a source cannot be read on, and why. `line` counts from 1; `run` is the run's place in a file
    of several.
    """

    line: int
    message: str
    run: int | None = None


class Progress(NamedTuple):
    """How far an import is: bytes of this file done and in all, and events written since the import began."""

    path: str
    done: int
    total: int
    events: int


OnProgress = Callable[[Progress], None]
"""Called after each batch that is durable, and at the end of each file."""


class Tally:
    """Counts what events say. The same counting serves events that are written now and those that were there."""

    def __init__(self) -> None:
        self.events = 0
        self.inferences = 0
        self.tool_calls = 0
        self.answers = 0
        self.sums: dict[str, Decimal] = {}

    def count(self, facts: Facts) -> None:
        self.events += 1
        kind = type(facts)
        if kind is InferenceRequested:
            self.inferences += 1
        elif kind is ToolDispatched:
            self.tool_calls += 1
        elif kind is ToolAnswered or kind is ToolFailed:
            self.answers += 1
        elif isinstance(facts, CostRecorded) and facts.amount is not None and facts.currency is not None:
            before = self.sums.get(facts.currency, Decimal(0))
            self.sums[facts.currency] = _SUMS.add(before, Decimal(facts.amount))


class RunReport(msgspec.Struct):
    """One run of a source. Counts are of the whole run as it now stands; `added` is what this import wrote.

    `charges` are exact sums by currency. `errors` name the lines where the source could not be read on.
    """

    run_id: str | None
    source: str
    created: bool = False
    events: int = 0
    added: int = 0
    inferences: int = 0
    tool_calls: int = 0
    unanswered: int = 0
    errors: list[Problem] = []
    charges: dict[str, str] = {}

    def take(self, tally: Tally) -> None:
        """The counts of a run that is done."""
        self.events, self.inferences, self.tool_calls = tally.events, tally.inferences, tally.tool_calls
        self.unanswered = tally.tool_calls - tally.answers
        self.charges = {currency: format(tally.sums[currency], "f") for currency in sorted(tally.sums)}


class Report:
    """The result of `import_paths`."""

    def __init__(self, redactor: Redactor, not_told: tuple[str, ...] = ()) -> None:
        self._redactor = redactor
        self.runs: list[RunReport] = []
        self.not_told = not_told
        """What sources of this format cannot tell, in sentences."""
        self._unknown: Counter[tuple[str, str, str]] = Counter()

    def saw_unknown(self, source: str, what: str, name: str) -> None:
        """Notes something that was kept as it is because this importer gives it no meaning. Its name is the file's, and
        is shown like everything else that files say.
        """
        key = (source, what, view_text(self._redactor, name)[0])
        if key not in self._unknown and len(self._unknown) >= _MOST_NAMES:
            key = (source, what, "(others)")
        self._unknown[key] += 1

    @property
    def unknown(self) -> list[dict[str, Any]]:
        """[{source, what, name, count}]: kept, and listed here because nothing was made of it."""
        return [
            {"source": source, "what": what, "name": name, "count": count}
            for (source, what, name), count in sorted(self._unknown.items())
        ]

    @property
    def complete(self) -> bool:
        """Whether every source was read to its end. The command line exits with 8 otherwise."""
        return not any(run.errors for run in self.runs)

    def as_dict(self) -> dict[str, Any]:
        """The report as programs get it: {runs, unknown, not_told}."""
        runs = msgspec.to_builtins(self.runs)
        return {"runs": runs, "unknown": self.unknown, "not_told": list(self.not_told)}
