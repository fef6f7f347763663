"""Read models as pure folds over events. Importing this package registers every handler."""

from refold.projections import records, runs, steps, tool_calls
from refold.projections.fold import BrokenFold, FoldState, OpenState, fold, freeze, new_state, thaw
from refold.projections.intents import INTENT_EVENTS, Intents
from refold.projections.rows import ROWS, Row

__all__ = [
    "INTENT_EVENTS",
    "ROWS",
    "BrokenFold",
    "FoldState",
    "Intents",
    "OpenState",
    "Row",
    "fold",
    "freeze",
    "new_state",
    "records",
    "runs",
    "steps",
    "thaw",
    "tool_calls",
]
