"""From what somebody wants to record to the bytes of an event: encode, scan, redact, seal."""

from __future__ import annotations

import json
from functools import cache
from typing import Any, NamedTuple

import msgspec

from refold.events.catalog import Facts
from refold.events.content import SALT_SIZE, Encoded, encode_content, seal
from refold.events.envelope import NO_VIEW, View, encode_view
from refold.events.redaction import Redactor, summary, summary_of_json
from refold.events.values import NotRecordable
from refold.events.values.tags import dump_json, may_hold_tags
from refold.ids import Ids

SUMMARY_BYTES = 160
"""Bytes of UTF-8 in a stored summary; the whole stands at the seq beside it."""
_WINDOW = 4096
"""Characters of a text that are scanned for its summary; what the summary shows lies well inside."""
_MARGIN = 256
_SMALL = 16_384
"""Bytes of a content that are written again rather than that the beginning of one value is put together by hand."""

_TEXTS = ("input", "output", "error", "name", "provider", "ref")

_FACTS = msgspec.json.Encoder()


class Draft(msgspec.Struct, gc=False):
    """An event that is wanted: facts and content, and what its view says.

    `content` maps field names to values, or to part lists. `input`, `output` and `error` are the values that the view
    summarises; `name`, `provider` and `ref` are texts (a tool's name, a foreign id) that the facts hold only as
    digests. All of them are redacted here, at the write - unless `clean` says that all of it is made of pieces of
    values in which `StreamWriter.part` has found no secret. `delivers` is the key of the inbox item that the event
    turns into a fact.
    """

    facts: Facts
    content: dict[str, Any] | None = None
    input: Any = None
    output: Any = None
    error: Any = None
    name: str | None = None
    provider: str | None = None
    ref: str | None = None
    occurred_at: int | None = None
    actor: str = ""
    site: str = ""
    cause: int | None = None
    clean: bool = False
    delivers: str | None = None


class Sealed(NamedTuple):
    """A draft made into stored bytes, before it has a place in a stream."""

    facts: Facts
    facts_bytes: bytes
    content_digest: bytes | None
    content: bytes | None
    view: View
    view_digest: bytes | None
    view_bytes: bytes | None


def seal_draft(draft: Draft, redactor: Redactor, ids: Ids) -> Sealed:
    """The stored bytes of a draft. Raises NotRecordable when a value cannot be kept losslessly."""
    secrets = 0
    redacted = NO_VIEW.redacted
    salts = ids.random(2 * SALT_SIZE)
    content_digest = content = payload = None
    clean: tuple[Any, ...] = ()
    if draft.content is not None:
        payload = encode_content(draft.content)
        if draft.clean or not redactor.suspicious(payload):
            clean = tuple(draft.content.values())
        else:
            shown, secrets = redact_json(redactor, payload)
            if secrets:
                redacted = msgspec.Raw(shown)
            else:  # A text is scanned the same way wherever it stands.
                clean = tuple(value for value in draft.content.values() if type(value) is str)
        content, content_digest = seal(payload, salts[:SALT_SIZE])
    texts: dict[str, str] = {}
    shown_values = (draft.input, draft.output, draft.error, draft.name, draft.provider, draft.ref)
    for name, value in zip(_TEXTS, shown_values, strict=True):
        if value is None:
            continue
        if _holds(clean, value):
            texts[name] = _clean_summary(value, payload)
        elif draft.clean:
            texts[name] = summary(_open(value), SUMMARY_BYTES)
        else:
            texts[name], found = view_text(redactor, value)
            secrets = max(secrets, found)
    view, view_digest, view_bytes = NO_VIEW, None, None
    if texts or secrets:
        view = View(**texts, redacted=redacted)
        view_bytes, view_digest = seal(encode_view(view), salts[SALT_SIZE:])
    facts = msgspec.structs.replace(draft.facts, secrets=secrets) if secrets else draft.facts
    return Sealed(facts, _encode_facts(facts), content_digest, content, view, view_digest, view_bytes)


def _encode_facts(facts: Facts) -> bytes:
    """The bytes of facts, proven to be read back equal: a struct takes anything, its decoder only what its type is."""
    kind = type(facts)
    try:
        encoded = _FACTS.encode(facts)
        if _facts_decoder(kind).decode(encoded) == facts:
            return encoded
        why = "they would not come back equal"
    except (msgspec.MsgspecError, UnicodeError, TypeError, ValueError, OverflowError) as error:
        why = str(error)
    raise NotRecordable(
        f"The facts of {kind.EVENT_TYPE} cannot be recorded: {why}.", path="$", type=kind.EVENT_TYPE, reason=why
    )


@cache
def _facts_decoder(kind: type[Facts]) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(kind)


def _clean_summary(value: Any, payload: bytes | None) -> str:
    """The summary of a value that was scanned with the content, of which `payload` is the stored form."""
    kind = type(value)
    encoded = None
    if kind is Encoded:
        encoded = value.data
    elif (kind is dict or kind is list) and payload and len(payload) <= _SMALL and not may_hold_tags(payload):
        encoded = dump_json(value)
    short = None if encoded is None else summary_of_json(encoded, SUMMARY_BYTES)
    return summary(_open(value), SUMMARY_BYTES) if short is None else short


def _holds(values: tuple[Any, ...], value: Any) -> bool:
    """Whether this very object is among them: what equals it may be of another type."""
    for each in values:  # noqa: SIM110 - a generator costs as much as the rest of the view
        if each is value:
            return True
    return False


def _open(value: Any) -> Any:
    return _stored_json(value.data) if type(value) is Encoded else value


def redact_json(redactor: Redactor, encoded: bytes) -> tuple[bytes, int]:
    """Stored JSON with its secrets replaced, still JSON, and how many there were; the same bytes when
    there were none.
    """
    shown, count = redactor.redact(_stored_json(encoded))
    return (json.dumps(shown, separators=(",", ":")).encode("ascii"), count) if count else (encoded, 0)


def _stored_json(encoded: bytes) -> Any:
    try:
        return msgspec.json.decode(encoded)
    except (msgspec.MsgspecError, UnicodeError):
        # The standard library's parser takes what somebody else may have stored: lone surrogates, integers of any size.
        return json.loads(encoded)


def view_text(redactor: Redactor, value: Any, limit: int = SUMMARY_BYTES) -> tuple[str, int]:
    """A value's summary for people, redacted before it is cut, and how many secrets were replaced in it."""
    value = _open(value)
    text = value if isinstance(value, str) else summary(value, _WINDOW)
    window = text[:_WINDOW]
    found = 0
    if redactor.suspicious(window.encode("utf-8", "surrogatepass")):
        if not isinstance(value, str):
            value, found = redactor.redact(value)
            window = summary(value, _WINDOW)
        window, more = redactor.redact(window)
        found += more
        if len(text) > _WINDOW:
            # A secret may run over the window's end and be seen only in part.
            window = window[:-_MARGIN] + "…"
    return summary(window, limit), found
