"""From how a call ended to the event that says so, and from the event to what code gets.

`outcome` is the one function for the second, live and replayed: code never gets a value but through a recorded event.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from refold.errors import RefoldError
from refold.events import values
from refold.events.content import Encoded, decode_content, encoded_fields
from refold.events.envelope import Event
from refold.events.identity import Stream
from refold.events.values import NotRecordable, Registry
from refold.gateway import errors
from refold.gateway.tools import Tool
from refold.ledger.artifacts import ArtifactFiles, open_artifact
from refold.ledger.errors import Erased
from refold.ledger.port import Reader
from refold.ledger.reading import stored_content
from refold.projections.rows import ArtifactRow

_DEPTH, _ITEMS = 20, 1000

_REFUSALS: dict[str, type[errors.Refused]] = {
    "conflict": errors.IdempotencyConflict,
    "in_progress": errors.InProgress,
    "outcome_unknown": errors.OutcomeUnknown,
    "key_expired": errors.KeyExpired,
    "receipt_erased": errors.ReceiptErased,
}


class Recorded(NamedTuple):
    """A result as it goes on record: content fields, bytes of the result, and what the view shows."""

    fields: dict[str, Any]
    size: int
    shown: Any


def record_result(value: Any, tool: Tool[Any, Any], types: Registry | None) -> Recorded:
    """The content of a result. One that cannot be recorded leaves what can be kept, and says where it failed."""
    try:
        encoded = tool.encode_result(value, types)
    except NotRecordable as error:
        why = {name: str(error.facts.get(name, "")) for name in ("path", "type", "reason")}
    except Exception as error:  # noqa: BLE001 - code of people's classes; the call has happened all the same
        why = {"path": "$", "type": type(value).__qualname__, "reason": f"reading it raised {type(error).__name__}"}
    else:
        return Recorded({"result": Encoded(encoded)}, len(encoded), shown(encoded))
    kept = values.encode(_salvage(value, tool, types, 0))
    return Recorded({"not_recordable": why, "kept": Encoded(kept)}, len(kept), shown(kept))


def shown(encoded: bytes) -> Any:
    """An encoded value as views show it: its JSON."""
    try:
        return values.decode(encoded) if b"$" not in encoded else encoded.decode()
    except RefoldError:
        return encoded.decode("utf-8", "replace")


def _salvage(value: Any, tool: Tool[Any, Any], types: Registry | None, depth: int) -> Any:
    if depth < _DEPTH and type(value) is dict:
        pairs = list(value.items())[:_ITEMS]
        return {name: _salvage(item, tool, types, depth + 1) for name, item in pairs if type(name) is str}
    if depth < _DEPTH and type(value) in (list, tuple):
        return [_salvage(item, tool, types, depth + 1) for item in value[:_ITEMS]]
    try:
        values.encode(value)
    except Exception:  # noqa: BLE001 - code of people's classes
        return f"<{type(value).__qualname__}>"
    return value


def fields_of(event: Event) -> dict[str, bytes]:
    """An event's content, each field still encoded. Raises Erased, ContentDamaged."""
    stored = stored_content(event)
    return {} if stored is None else encoded_fields(decode_content(stored))


async def read_fields(reader: Reader, files: ArtifactFiles, run_id: str, event: Event) -> dict[str, bytes]:
    """The same, with a result that an artifact of the run holds. Raises Erased, ContentDamaged, ArtifactDamaged."""
    fields = fields_of(event)
    artifact_id = getattr(event.facts, "artifact_id", None)
    if artifact_id is not None:
        fields["result"] = await read_artifact(reader, files, run_id, artifact_id)
    return fields


async def read_artifact(reader: Reader, files: ArtifactFiles, run_id: str, artifact_id: str) -> bytes:
    """The bytes of a run's artifact, checked. Raises Erased, ArtifactDamaged."""
    rows = await reader.rows(ArtifactRow, {"run_id": run_id, "artifact_id": artifact_id})
    if not rows:
        raise Erased(f"Artifact {artifact_id} of {run_id} is not there.", artifact_id=artifact_id, run_id=run_id)
    return open_artifact(rows[0], await reader.blob(Stream.run(run_id), rows[0].blob), files)


def outcome(event: Event, fields: Mapping[str, bytes], tool: Tool[Any, Any], types: Registry | None = None) -> Any:
    """What the code that called gets: the result, or the error that is raised.

    `event` is one after which nothing more follows for the call, `fields` its content by name. Raises ToolFailed and
    its kinds, Refused and its kinds, ResultNotRecordable; UnknownType or ShapeChanged when the recorded result no
    longer fits the code.
    """
    facts = event.facts
    match event.type:
        case "tool.answered":
            return _result(fields, tool, types)
        case "tool.failed":
            raise _failure(facts.how, facts.error_code, facts.retryable, fields)
        case "tool.replayed" if facts.failed is not None:
            raise _failure(facts.failed, facts.error_code or "tool_failed", facts.retryable, fields)
        case "tool.replayed":
            return _result(fields, tool, types)
        case "tool.refused":
            raise _refusal(facts.reason, fields)
        case "tool.resolved" if facts.resolution == "happened":
            return _result(fields, tool, types)
        case "tool.resolved" if facts.resolution == "abandon":
            raise errors.Abandoned(
                f"It is not known whether {tool.name} happened; the doubt was given up.",
                tool=tool.name,
                tool_call_id=facts.tool_call_id,
            )
    raise ValueError(f"{event.type} is not the outcome of a call")


def error_fields(message: str, **facts: Any) -> dict[str, Any]:
    """The content of a failure or refusal."""
    return {"error": {"message": message, **({"facts": facts} if facts else {})}}


def _result(fields: Mapping[str, bytes], tool: Tool[Any, Any], types: Registry | None) -> Any:
    if "not_recordable" not in fields:
        return tool.decode_result(fields["result"], types)
    why = values.decode(fields["not_recordable"])
    raise errors.ResultNotRecordable(
        f"{tool.name} answered, and the part at {why['path']} cannot be recorded: {why['reason']}.",
        kept=values.decode(fields["kept"]),
        tool=tool.name,
        **why,
    )


def _failure(how: str, code: str, retryable: bool, fields: Mapping[str, bytes]) -> errors.ToolFailed:
    kind = {"not_sent": errors.NotSent, "unknown": errors.NoAnswer}.get(how, errors.ToolFailed)
    message, facts = _error(fields)
    return kind(message, retryable=retryable, why=code, **facts)


def _refusal(reason: str, fields: Mapping[str, bytes]) -> errors.Refused:
    message, facts = _error(fields)
    return _REFUSALS.get(reason, errors.Refused)(message, **{"reason": reason, **facts})


def _error(fields: Mapping[str, bytes]) -> tuple[str, dict[str, Any]]:
    found = values.decode(fields["error"]) if "error" in fields else {}
    return found.get("message", ""), found.get("facts", {})
