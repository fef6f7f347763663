"""Who an event belongs to: scopes, streams, and the keyed digests that stand for names."""

from __future__ import annotations

import hmac
import re
from functools import lru_cache
from typing import ClassVar, Literal, NamedTuple

from refold.errors import RefoldError
from refold.ids import decode_ulid, encode_ulid

StreamKind = Literal["run", "annex", "scope"]

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,127}\Z")
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,127}\Z")
_NO_ULID = bytes(16)
_KIND_NUMBERS: dict[StreamKind, int] = {"run": 1, "annex": 2, "scope": 3}

DIGEST_SIZE = 16
"""Bytes of a keyed digest: HMAC-SHA-256 cut in half, enough for look-ups inside one tenant."""


class BadName(RefoldError):
    """What was given as a tenant, workspace or id cannot be one.

    Tenants and workspaces become parts of artifact paths and of every key, so they are 1 to 128 letters, digits, dots,
    dashes, underscores or @, and begin with a letter or digit.
    """

    code: ClassVar[str] = "bad_name"
    exit_status: ClassVar[int] = 2
    remedy = "Use 1 to 128 of A-Z a-z 0-9 . _ @ - and begin with a letter or digit."


class Scope(NamedTuple):
    """A tenant's workspace. Everything that is stored belongs to one; nothing is visible from another."""

    tenant: str = "default"
    workspace: str = "default"

    @classmethod
    def parse(cls, text: str) -> Scope:
        """The scope written as `tenant/workspace`. Raises BadName."""
        tenant, slash, workspace = text.partition("/")
        if not slash:
            raise BadName(f"A scope is written tenant/workspace, and {text!r} has no slash.", scope=text)
        return cls(tenant, workspace).checked()

    def checked(self) -> Scope:
        """This scope, or BadName."""
        for what, name in (("tenant", self.tenant), ("workspace", self.workspace)):
            if not isinstance(name, str) or not _NAME.match(name):
                raise BadName(f"{name!r} cannot be the name of a {what}.", **{what: str(name)})
        return self

    def __str__(self) -> str:
        return f"{self.tenant}/{self.workspace}"


class Stream(NamedTuple):
    """The name of a stream within its scope: a run, a run's annex, or the scope's administration."""

    kind: StreamKind
    ulid: bytes = _NO_ULID

    @classmethod
    def run(cls, run_id: str) -> Stream:
        return cls("run", _run_ulid(run_id))

    @classmethod
    def annex(cls, run_id: str) -> Stream:
        return cls("annex", _run_ulid(run_id))

    @classmethod
    def parse(cls, text: str) -> Stream:
        """The stream whose `str()` is `text`. Raises BadName."""
        if text == "scope":
            return SCOPE_STREAM
        run_id, slash, rest = text.partition("/")
        if slash and rest != "annex":
            raise BadName(f"{text!r} is not the name of a stream.", stream=text)
        return cls.annex(run_id) if slash else cls.run(run_id)

    @property
    def number(self) -> int:
        """The stream kind as it is hashed: 1 run, 2 annex, 3 scope."""
        return _KIND_NUMBERS[self.kind]

    @property
    def run_id(self) -> str:
        """The run's id; empty for the scope's stream."""
        if self.kind == "scope":
            return ""
        return _run_id(self.ulid)

    def event_id(self, seq: int) -> str:
        """The identity of one event as a string: `evt_<ulid>_<seq>`; annex and scope events say so."""
        if self.kind == "scope":
            return f"evt_scope_{seq}"
        annex = "annex_" if self.kind == "annex" else ""
        return f"evt_{self.run_id[4:]}_{annex}{seq}"

    def __str__(self) -> str:
        if self.kind == "scope":
            return "scope"
        return f"{self.run_id}/annex" if self.kind == "annex" else self.run_id


SCOPE_STREAM = Stream("scope")


def keyed_digest(secret: bytes, purpose: str, data: bytes) -> bytes:
    """16 bytes that stand for `data` under a tenant's secret; equal data under another purpose or tenant differ."""
    return hmac.digest(secret, purpose.encode() + b"\0" + data, "sha256")[:DIGEST_SIZE]


def scope_digest(secret: bytes, scope: Scope) -> bytes:
    """What stands for the scope's names in every envelope."""
    return keyed_digest(secret, "scope", f"{scope.tenant}/{scope.workspace}".encode())


def name_digest(secret: bytes, name: str) -> str:
    """What stands in facts for a name that a model or a file made up: `~` and 32 hex digits."""
    return "~" + keyed_digest(secret, "name", name.encode("utf-8", "surrogatepass")).hex()


def checked_id(text: str) -> str:
    """An id that can be a part of a path: letters, digits, dashes and underscores. Raises BadName."""
    if not _ID.match(text):
        raise BadName(f"{text[:80]!r} cannot be an id.", id=text[:80])
    return text


def run_folder(scope: Scope, run_id: str) -> str:
    """Where the files of a run's artifacts are, below the ledger's folder of them."""
    return f"{scope.tenant}/{scope.workspace}/{run_id}"


def storage_key(scope: Scope, run_id: str, artifact_id: str) -> str:
    """Where an artifact's file is, below the ledger's folder of them; unique in a ledger."""
    return f"{run_folder(scope, run_id)}/{artifact_id}"


@lru_cache(maxsize=4096)
def _run_id(ulid: bytes) -> str:
    return f"run_{encode_ulid(int.from_bytes(ulid, 'big'))}"


def _run_ulid(run_id: str) -> bytes:
    if not run_id.startswith("run_"):
        raise BadName(f"{run_id!r} is not the id of a run: those begin with run_.", run_id=run_id)
    try:
        return decode_ulid(run_id.removeprefix("run_"))
    except ValueError:
        raise BadName(f"{run_id!r} is not the id of a run: run_ and 26 characters.", run_id=run_id) from None
