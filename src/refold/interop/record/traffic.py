"""Requests and answers as they are kept: without credentials, bodies byte for byte."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import cached_property
from typing import Any, Literal
from urllib.parse import unquote_plus, urlsplit, urlunsplit

from refold.events.redaction import Redactor
from refold.events.secret_names import is_secret_key
from refold.interop.record.bodies import Body, plain, read_body

REMOVED = "[removed]"
_BOUNDARY = re.compile(r'multipart/[\w-]+\s*;.*boundary="?([^";,]+)', re.IGNORECASE)
_SHORTEST_WORD = 8
_PROTOCOL = ("http_version", "reason_phrase")
_QUERY_SECRETS = frozenset({"key", "sig", "signature", "code"})

Headers = list[tuple[str, str]]


class Sent:
    """A request. `removed` names the headers whose values are not kept; `hidden` are those values, for as long as the
    request lives.
    """

    def __init__(self, method: str, url: str, headers: Headers, removed: list[str], body: bytes) -> None:
        self.method = method
        self.url = url
        self.headers = headers
        self.removed = removed
        self.body = body
        self.hidden: list[str] = []

    @property
    def host(self) -> str:
        return urlsplit(self.url).netloc

    @property
    def path(self) -> str:
        return urlsplit(self.url).path

    @cached_property
    def json(self) -> Body | None:
        """The body, where it is JSON."""
        return read_body(self.body)

    def matched(self) -> dict[str, Any]:
        """What makes two requests equal: method, URL and body, whatever the order of a JSON object's members."""
        if self.json is not None:
            return {"method": self.method, "url": self.url, "body": self.json.value}
        body = self.body
        boundary = next((_BOUNDARY.match(value) for name, value in self.headers if name == "content-type"), None)
        if boundary is not None:  # A client makes a new one for each request.
            body = body.replace(boundary[1].encode("latin-1"), b"boundary")
        return {"method": self.method, "url": self.url, "body": plain(body)}


class Received:
    """What has come back so far, as the client was given it. Filled by whoever reads, chunk by chunk.

    `decode` undoes the content encoding of the body.
    """

    def __init__(self, status: int, headers: Headers, removed: list[str], extensions: dict[str, str]) -> None:
        self.status = status
        self.headers = headers
        self.removed = removed
        self.extensions = extensions
        self.chunks: list[bytes] = []
        self.decode: Callable[[bytes], bytes] = lambda body: body

    def header(self, name: str) -> str:
        return next((value for each, value in self.headers if each == name), "")


class Exchange:
    """One request on its way: what was sent, what came back, and, once it is on record, its step."""

    def __init__(self, sent: Sent) -> None:
        self.sent = sent
        self.received: Received | None = None
        self.step_id = ""
        self.started = 0
        self.ended = False
        """How it ended is on record: what is read from now on is not."""


Ending = Literal["whole", "closed", "failed"]
"""How an exchange ended: read to its end, closed by the client before that, or by an error."""


class Curtain:
    """Keeps credentials out of what is stored: by the names of headers and parameters, by known formats of secrets, and
    by the values that the ledger was opened with.
    """

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor

    def sent(self, method: str, url: str, headers: Iterable[tuple[bytes, bytes]], body: bytes) -> Sent:
        listed = list(headers)
        kept, removed = self._headers(listed)
        sent = Sent(method, self._url(url), kept, removed, body)
        sent.hidden = [_text(value) for name, value in listed if _text(name).lower() in removed]
        return sent

    def received(self, status: int, headers: Iterable[tuple[bytes, bytes]], extensions: dict[str, bytes]) -> Received:
        kept, removed = self._headers(headers)
        words = {name: _text(each) for name, each in extensions.items() if name in _PROTOCOL}
        return Received(status, kept, removed, words)

    def text(self, text: str, hidden: Iterable[str]) -> str:
        """A text of an error without values that are not kept: some clients say which header they did not like."""
        for value in hidden:
            for word in (value.strip(), *value.split()):
                if len(word) >= _SHORTEST_WORD:
                    text = text.replace(word, REMOVED)
        shown, _ = self._redactor.redact(text)
        return str(shown)

    def _headers(self, headers: Iterable[tuple[bytes, bytes]]) -> tuple[Headers, list[str]]:
        kept: Headers = []
        removed: list[str] = []
        for raw_name, raw_value in headers:
            name, value = _text(raw_name).lower(), _text(raw_value)
            if self._hides(name, value):
                removed.append(name)
            else:
                kept.append((name, value))
        return kept, removed

    def _hides(self, name: str, value: str) -> bool:
        keyed = name.endswith("-key") and name != "idempotency-key"
        return keyed or is_secret_key(name) or self._redactor.redact(value)[1] > 0

    def _url(self, url: str) -> str:
        """The URL without user, password and fragment, and without the values of parameters that are secrets."""
        parts = urlsplit(url)
        query = "&".join(map(self._parameter, parts.query.split("&"))) if parts.query else ""
        return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, query, ""))

    def _parameter(self, text: str) -> str:
        name, _, value = text.partition("=")
        plain = unquote_plus(name)
        if plain.lower() in _QUERY_SECRETS or is_secret_key(plain) or self._redactor.redact(unquote_plus(value))[1]:
            return f"{name}={REMOVED}"
        return text


def _text(data: bytes) -> str:
    return data.decode("latin-1")
