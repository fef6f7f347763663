"""The identity of an effect. Every digest is keyed by the tenant's secret: 16 bytes, in hexadecimal.

A *key* finds an intent: derived from the site, or namespaced by the tool when people gave it. A *fingerprint* says
what is asked for; it is compared and never looked up. The *downstream key* is what the other side gets.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from refold.events import values
from refold.events.identity import keyed_digest
from refold.gateway.errors import BadKey

MAX_KEY = 255
"""Characters of a caller's key."""

KeyKind = Literal["derived", "business", "caller"]


class Identity(NamedTuple):
    """What a call asks for, and under which name. `text` is what people gave as its key, None for a derived one."""

    kind: KeyKind
    key: str
    text: str | None
    fingerprint: str


def fingerprint(secret: bytes, tool: str, version: int, encoded_arguments: bytes) -> str:
    """What a call asks for: the tool, its declared version, and the canonical form of the proposed arguments."""
    return _digest(secret, "fingerprint", f"{tool}\0{version}\0".encode() + values.canonical(encoded_arguments))


def derived_key(secret: bytes, domain: str, site: str) -> str:
    """The key of a call that nobody named: one a site of an effect domain."""
    return _digest(secret, "derived key", f"{domain}\0{site}".encode("utf-8", "surrogatepass"))


def given_key(secret: bytes, tool: str, text: str) -> str:
    """The key that people gave an effect of a tool, by template or by call; the same in every domain."""
    return _digest(secret, "given key", f"{tool}\0{text}".encode("utf-8", "surrogatepass"))


def downstream_key(secret: bytes, intent_id: str, settled: int) -> str:
    """What the other side gets as the effect's key. Changes only after it is known that nothing was done under it."""
    return _digest(secret, "downstream key", f"{intent_id}\0{settled}".encode())


def checked_key(text: str) -> str:
    """A caller's key, or BadKey."""
    if not isinstance(text, str) or not 1 <= len(text) <= MAX_KEY:
        size = f"{len(text)} characters" if isinstance(text, str) else f"a {type(text).__name__}"
        raise BadKey(f"A key has 1 to {MAX_KEY} characters; this one is {size}.")
    return text


def _digest(secret: bytes, purpose: str, data: bytes) -> str:
    return keyed_digest(secret, purpose, data).hex()
