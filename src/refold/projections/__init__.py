"""Read models as pure folds over events. Importing this package registers every handler."""

from refold.projections import intents, records, runs, steps, tool_calls
from refold.projections.fold import BrokenFold, FoldState, OpenState, fold, freeze, new_state, thaw
from refold.projections.rows import ROWS, Row

__all__ = [
    "ROWS",
    "BrokenFold",
    "FoldState",
    "OpenState",
    "Row",
    "fold",
    "freeze",
    "intents",
    "new_state",
    "records",
    "runs",
    "steps",
    "thaw",
    "tool_calls",
]
