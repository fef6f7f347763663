"""Rows and events as people and programs get them: plain JSON, with times as ISO 8601, digests as hex, and
views in place of secrets.

Everything that leaves a ledger through a screen, a stream or a command goes through here, so that there is
one place that decides what of an event's content may be seen.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any

import msgspec

from refold.errors import RefoldError
from refold.events.content import StoredContent, decode_content, unseal
from refold.events.envelope import Event, View
from refold.events.identity import Stream
from refold.ledger.port import BlobRow, Reader
from refold.projections import Row
from refold.projections.rows import ApprovalRow, ToolCallRow

ERASED = "erased"
"""Stands in place of content that was erased, or whose redacted form was."""
DAMAGED = "damaged"
"""Stands in place of content whose stored bytes cannot be read."""
SHOWN = 8192
"""Bytes of UTF-8 of a summary that an API shows at most."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_CUT = "…"
_VIEW_TEXTS = ("input", "output", "error", "name", "provider", "ref")

# Inside JSON these stand in strings only, where an escape means the same: C1 controls, DEL, and the marks
# that turn or break lines.
_HOSTILE = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]")
_ENCODER = msgspec.json.Encoder()


def to_json(value: Any) -> bytes:
    """JSON in UTF-8 that is safe to print: no control character and no mark that turns text stands in it
    unescaped.

    The same value gives the same bytes. Half a surrogate pair, which UTF-8 cannot hold, becomes U+FFFD.
    """
    try:
        data = _ENCODER.encode(value)
    except UnicodeEncodeError:
        data = _ENCODER.encode(_whole(value))
    if data.isascii() and b"\x7f" not in data:
        return data
    return _HOSTILE.sub(lambda found: f"\\u{ord(found[0]):04x}", data.decode()).encode()


def _whole(value: Any) -> Any:
    match value:
        case str():
            return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        case dict():
            return {_whole(key): _whole(item) for key, item in value.items()}
        case list() | tuple():
            return [_whole(item) for item in value]
        case _:
            return value


def iso(at: int) -> str:
    """A time in microseconds UTC as ISO 8601 with Z. One that no calendar has (before year 1, after 9999) as
    `<number>us`.
    """
    try:
        moment = _EPOCH + timedelta(microseconds=at)
    except OverflowError:
        return f"{at}us"
    return moment.isoformat(timespec="microseconds").replace("+00:00", "Z")


def _is_time(name: str) -> bool:
    return name == "at" or name.endswith("_at")


def cut(text: str, limit: int = SHOWN) -> str:
    """The text, or its first characters and `…`, in at most `limit` bytes of UTF-8."""
    data = text.encode("utf-8", "replace")
    if len(data) <= limit:
        return text
    return data[: limit - len(_CUT.encode())].decode("utf-8", "ignore") + _CUT


def row_json(row: Row) -> dict[str, Any]:
    """A table's row: its columns, times as ISO 8601. Money is a decimal string in the row already."""
    shown = msgspec.structs.asdict(row)
    for name in _times(type(row)):
        if shown[name] is not None:
            shown[name] = iso(shown[name])
    return shown


@cache
def _times(table: type[Row]) -> tuple[str, ...]:
    return tuple(name for name in table.__struct_fields__ if _is_time(name))


def facts_json(facts: msgspec.Struct) -> dict[str, Any]:
    """An event's facts as they were hashed (defaults are left out), times as ISO 8601."""
    built: dict[str, Any] = msgspec.to_builtins(facts)
    return {name: iso(value) if _is_time(name) and isinstance(value, int) else value for name, value in built.items()}


def content_json(event: Event) -> Any:
    """An event's content as people may see it: field names and values, None when it has none, or ERASED or
    DAMAGED.

    Where the scan at the write found a secret, the redacted form that was made then; otherwise the content
    itself. A field that is a list of blobs is `{"parts": [[first, last], ...], "digest": hex}`.
    """
    row, view = event.stored, event.view
    try:
        if view.redacted:
            return _fields(msgspec.json.decode(view.redacted, type=StoredContent))
        if row.content is None:
            return None if row.content_digest is None else ERASED
        if event.facts.secrets and row.view_digest is not None and row.view is None:
            return ERASED  # Its redacted form is gone, and the exact one is not for people.
        return _fields(decode_content(row.content))
    except (RefoldError, msgspec.MsgspecError, UnicodeError):
        return DAMAGED


def part_json(blob: BlobRow) -> dict[str, Any]:
    """A numbered part as people may see it: {number, value}; its redacted form where the scan found a secret in it."""
    stored = blob.stored if blob.view is None else blob.view
    try:
        value = ERASED if stored is None else msgspec.json.decode(unseal(stored))
    except (RefoldError, msgspec.MsgspecError, UnicodeError):
        value = DAMAGED
    return {"number": blob.number, "value": value}


def _fields(content: StoredContent) -> dict[str, Any]:
    fields: dict[str, Any] = msgspec.json.decode(content.values)
    for name, parts in content.parts.items():
        fields[name] = {"parts": [list(each) for each in parts.ranges], "digest": parts.digest}
    return fields


def _view_json(view: View) -> dict[str, str]:
    texts = ((name, getattr(view, name)) for name in _VIEW_TEXTS)
    return {name: text for name, text in texts if text is not None}


def event_json(event: Event, stream: Stream, step_id: str | None = None) -> dict[str, Any]:
    """One event: {id, seq, type, version, recorded_at, occurred_at, step_id, actor, site, cause, data, hash,
    ...}.

    `data` holds the facts, and beside them `content` (see `content_json`) and `view` (the texts behind
    digests in the facts, and summaries), each only where there is one. `step_id` is what the caller knows of
    the step of an event whose facts do not name it (see `events_json`).
    """
    row = event.stored
    data = facts_json(event.facts)
    content = content_json(event)
    if content is not None:
        data["content"] = content
    view: dict[str, str] | str = _view_json(event.view)
    if row.view_digest is not None and row.view is None:
        view = ERASED
    if view:
        data["view"] = view
    return {
        "id": stream.event_id(event.seq),
        "seq": event.seq,
        "type": event.type,
        "version": row.version,
        "recorded_at": iso(event.recorded_at),
        "occurred_at": None if event.occurred_at is None else iso(event.occurred_at),
        "step_id": own_step(event) or step_id,
        "actor": row.actor or None,
        "site": row.site or None,
        "cause": row.cause,
        "epoch": row.epoch,
        "data": data,
        "content_digest": None if row.content_digest is None else row.content_digest.hex(),
        "view_digest": None if row.view_digest is None else row.view_digest.hex(),
        "hash": row.hash.hex(),
    }


def own_step(event: Event) -> str | None:
    """The step that an event's facts name, directly or in their claim."""
    facts = event.facts
    found: str | None = getattr(facts, "step_id", None)
    if found is None and (claim := getattr(facts, "claim", None)) is not None:
        found = claim.step_id
    return found


async def events_json(reader: Reader, stream: Stream, events: Sequence[Event]) -> list[dict[str, Any]]:
    """A page of a stream's events; the steps of answers and decisions are looked up where no event of the
    page names them.
    """
    known: dict[str, str] = {}
    result = []
    for event in events:
        step = own_step(event)
        subject = getattr(event.facts, "approval_id", None) or getattr(event.facts, "tool_call_id", None)
        if subject is not None:
            if step is not None:
                known[subject] = step
            elif subject in known or (found := await _step_of(reader, subject, event.facts)) is None:
                step = known.get(subject)
            else:
                step = known[subject] = found
        result.append(event_json(event, stream, step))
    return result


async def _step_of(reader: Reader, subject: str, facts: Any) -> str | None:
    if hasattr(facts, "approval_id"):
        approvals = await reader.rows(ApprovalRow, {"approval_id": subject})
        return approvals[0].step_id if approvals else None
    calls = await reader.rows(ToolCallRow, {"tool_call_id": subject})
    return calls[0].run_step_id if calls else None


def whole_summary(stored: str | None, field: str, content: Any) -> str | None:
    """A summary of up to SHOWN bytes: `field` of the content that a stored one was cut from, where that says
    more.
    """
    if stored is None or not stored.endswith(_CUT) or not isinstance(content, Mapping) or field not in content:
        return stored
    value = content[field]
    return cut(value if isinstance(value, str) else to_json(value).decode())
