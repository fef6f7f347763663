"""The ledger and replay engine for AI-agent runtimes.

The names below are the public ones; each is imported when it is first used, so that `import refold` costs nothing.
Event types (`RunCreated`, `ToolDispatched`, ...) are in `refold.events.catalog`, one module a family; errors in the
module that raises them, all under `RefoldError`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from refold._version import __version__

if TYPE_CHECKING:
    from refold.errors import RefoldError
    from refold.events.content import PartChain, PartList
    from refold.events.envelope import Event, Head, View
    from refold.events.identity import SCOPE_STREAM, Scope, Stream
    from refold.gateway.calls import current_call
    from refold.gateway.errors import (
        Abandoned,
        BadArguments,
        IdempotencyConflict,
        InProgress,
        NoAnswer,
        NotOffered,
        NotSent,
        OutcomeUnknown,
        Refused,
        ResultNotRecordable,
        ToolFailed,
    )
    from refold.gateway.model_errors import InferenceFailed
    from refold.gateway.models import Completion, ModelCall
    from refold.gateway.prices import FixedPrices, Rates
    from refold.gateway.providers.openai_compatible import openai_compatible
    from refold.gateway.providers.scripted import Scripted
    from refold.gateway.resolutions import Abandon, CannotTell, DidNotHappen, Happened, Resend
    from refold.gateway.retry import Retry
    from refold.gateway.tools import Doubt, Tool
    from refold.interop.record.errors import NothingRecorded, RecordingDiverged, RecordingExists
    from refold.interop.record.recording import record
    from refold.interop.record.replaying import replay_recording
    from refold.ledger.artifacts import open_artifact, store_artifact
    from refold.ledger.drafts import Draft
    from refold.ledger.ledger import Existing, Ledger, ScopedLedger, open_ledger
    from refold.ledger.maintenance.erasure import erase_run
    from refold.ledger.proof import Proof, verify_all, verify_run
    from refold.ledger.reading import exact_content
    from refold.ledger.writer import Part, StreamWriter
    from refold.replay.evidence import evidence, write_evidence
    from refold.replay.inference_skipping import InferenceSkipping, Partial
    from refold.replay.items import evidence_items
    from refold.replay.kinds import KINDS
    from refold.replay.projection_only import replay_projections
    from refold.replay.state import state_at, state_now
    from refold.runtime.app import App
    from refold.runtime.budget import Budget
    from refold.runtime.errors import BudgetExceeded, ChildFailed, NotRegistered, RunEnded, RunPaused, StepFailed
    from refold.runtime.run import Run, Winner
    from refold.runtime.sync import SyncRun

_HOMES = {
    "refold.gateway.calls": ("current_call",),
    "refold.gateway.errors": (
        "Abandoned",
        "BadArguments",
        "IdempotencyConflict",
        "InProgress",
        "NoAnswer",
        "NotOffered",
        "NotSent",
        "OutcomeUnknown",
        "Refused",
        "ResultNotRecordable",
        "ToolFailed",
    ),
    "refold.gateway.model_errors": ("InferenceFailed",),
    "refold.gateway.models": (
        "Completion",
        "ModelCall",
    ),
    "refold.gateway.prices": (
        "FixedPrices",
        "Rates",
    ),
    "refold.gateway.providers.openai_compatible": ("openai_compatible",),
    "refold.gateway.providers.scripted": ("Scripted",),
    "refold.gateway.resolutions": (
        "Abandon",
        "CannotTell",
        "DidNotHappen",
        "Happened",
        "Resend",
    ),
    "refold.gateway.retry": ("Retry",),
    "refold.gateway.tools": ("Doubt", "Tool"),
    "refold.replay.inference_skipping": (
        "InferenceSkipping",
        "Partial",
    ),
    "refold.runtime.app": ("App",),
    "refold.runtime.budget": ("Budget",),
    "refold.runtime.errors": (
        "BudgetExceeded",
        "ChildFailed",
        "NotRegistered",
        "RunEnded",
        "RunPaused",
        "StepFailed",
    ),
    "refold.runtime.run": (
        "Run",
        "Winner",
    ),
    "refold.runtime.sync": ("SyncRun",),
    "refold.errors": ("RefoldError",),
    "refold.events.content": ("PartChain", "PartList"),
    "refold.events.envelope": ("Event", "Head", "View"),
    "refold.events.identity": ("SCOPE_STREAM", "Scope", "Stream"),
    "refold.interop.record.errors": ("NothingRecorded", "RecordingDiverged", "RecordingExists"),
    "refold.interop.record.recording": ("record",),
    "refold.interop.record.replaying": ("replay_recording",),
    "refold.ledger.artifacts": ("open_artifact", "store_artifact"),
    "refold.ledger.drafts": ("Draft",),
    "refold.ledger.ledger": ("Existing", "Ledger", "ScopedLedger", "open_ledger"),
    "refold.ledger.maintenance.erasure": ("erase_run",),
    "refold.ledger.proof": ("Proof", "verify_all", "verify_run"),
    "refold.ledger.reading": ("exact_content",),
    "refold.ledger.writer": ("Part", "StreamWriter"),
    "refold.replay.evidence": ("evidence", "write_evidence"),
    "refold.replay.items": ("evidence_items",),
    "refold.replay.kinds": ("KINDS",),
    "refold.replay.projection_only": ("replay_projections",),
    "refold.replay.state": ("state_at", "state_now"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "KINDS",
    "SCOPE_STREAM",
    "Abandon",
    "Abandoned",
    "App",
    "BadArguments",
    "Budget",
    "BudgetExceeded",
    "CannotTell",
    "ChildFailed",
    "Completion",
    "DidNotHappen",
    "Doubt",
    "Draft",
    "Event",
    "Existing",
    "FixedPrices",
    "Happened",
    "Head",
    "IdempotencyConflict",
    "InProgress",
    "InferenceFailed",
    "InferenceSkipping",
    "Ledger",
    "ModelCall",
    "NoAnswer",
    "NotOffered",
    "NotRegistered",
    "NotSent",
    "NothingRecorded",
    "OutcomeUnknown",
    "Part",
    "PartChain",
    "PartList",
    "Partial",
    "Proof",
    "Rates",
    "RecordingDiverged",
    "RecordingExists",
    "RefoldError",
    "Refused",
    "Resend",
    "ResultNotRecordable",
    "Retry",
    "Run",
    "RunEnded",
    "RunPaused",
    "Scope",
    "ScopedLedger",
    "Scripted",
    "StepFailed",
    "Stream",
    "StreamWriter",
    "SyncRun",
    "Tool",
    "ToolFailed",
    "View",
    "Winner",
    "__version__",
    "current_call",
    "erase_run",
    "evidence",
    "evidence_items",
    "exact_content",
    "open_artifact",
    "open_ledger",
    "openai_compatible",
    "record",
    "replay_projections",
    "replay_recording",
    "state_at",
    "state_now",
    "store_artifact",
    "verify_all",
    "verify_run",
    "write_evidence",
]


if not TYPE_CHECKING:  # A type checker that saw it would take any name for one of ours.

    def __getattr__(name: str) -> object:
        home = _HOME_OF.get(name)
        if home is None:
            raise AttributeError(f"module 'refold' has no attribute {name!r}")
        value = globals()[name] = getattr(import_module(home), name)
        return value


def __dir__() -> list[str]:
    return sorted(__all__)
