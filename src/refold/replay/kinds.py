"""The nine kinds of replay as one table: what each executes, what it can cost, and what it needs.

A kind is a fixed preset; other combinations do not exist. Commands, answers and documentation take their
words from here.
"""

from __future__ import annotations

from typing import NamedTuple


class Kind(NamedTuple):
    """One kind of replay. `inference`, `tools` and `clock` say where their results come from, `-` meaning
    that none are asked for.

    `executes` names what really runs; empty: nothing does. `cost` and `needs` are phrases for people. The
    kinds that need only the store, the configuration and the workflow's code (`offline`) give the same bytes
    when they are done twice.
    """

    number: int
    name: str
    inference: str
    tools: str
    clock: str
    start: str
    result: str
    executes: tuple[str, ...]
    cost: str
    needs: str

    @property
    def offline(self) -> bool:
        """Whether it needs no model, tool, network or credential."""
        return not {"models", "tools"} & set(self.executes)

    def answer(self) -> dict[str, object]:
        """What every answer says of its kind: {kind, number, executes, cost}."""
        return {"kind": self.name, "number": self.number, "executes": list(self.executes), "cost": self.cost}


_STORE = "the store"
_READ = "one read of the store"
_TIME = "the time of the workflow's own code"
_CODE = "the store, the configuration and the workflow's code"

# fmt: off
EVIDENCE = Kind(
    1, "evidence", "-", "-", "-", "the record",
    "the bundle: everything recorded about the run",
    (), _READ, _STORE,
)
CATCH_UP = Kind(
    2, "catch-up", "-", "-", "-", "a seq",
    "the missed events in order, then the live tail",
    (), "one read of the store, then the tail", _STORE,
)
IDEMPOTENT_REPLY = Kind(
    3, "idempotent reply", "-", "recorded receipt", "-", "a tool call",
    "the recorded outcome, marked idempotent_replay",
    (), _READ, _STORE,
)
RE_EXECUTION = Kind(
    4, "re-execution", "live", "by plan and policy", "live", "1 or any seq",
    "a new run, with lineage; effects may go out",
    ("code", "models", "tools"), "models and tools again, as the plan says", f"{_CODE}, models, tools, credentials",
)
PROJECTION_ONLY = Kind(
    5, "projection-only", "-", "-", "-", "1",
    "rebuilt read models, compared with the stored",
    (), "one read of the events", _STORE,
)
INFERENCE_SKIPPING = Kind(
    6, "inference-skipping", "recorded", "recorded", "recorded", "1",
    "state reconstructed by the workflow's own code; divergences",
    ("code",), _TIME, _CODE,
)
PARTIAL = Kind(
    7, "partial", "recorded", "recorded", "recorded", "up to a seq",
    "as inference-skipping, stopped at a seq: inspect, step",
    ("code",), _TIME, _CODE,
)
FULL = Kind(
    8, "full", "live", "recorded receipts or declared stubs only", "live", "1",
    "a sandbox run compared with its source",
    ("code", "models"), "the models' tokens again", f"{_CODE}, models, credentials",
)
SIMULATION = Kind(
    9, "simulation", "recorded", "recorded or stubs", "virtual", "1",
    "pass, or all divergences from a golden reference",
    ("code",), _TIME, f"a golden reference, {_CODE}",
)
# fmt: on

KINDS = (
    EVIDENCE,
    CATCH_UP,
    IDEMPOTENT_REPLY,
    RE_EXECUTION,
    PROJECTION_ONLY,
    INFERENCE_SKIPPING,
    PARTIAL,
    FULL,
    SIMULATION,
)
"""All kinds, in the order of their numbers."""
