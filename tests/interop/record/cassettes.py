"""Recorded traffic of providers, from the shared data, served again on loopback."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import pytest
import yaml

from tests.interop.record.servers import Asked, Reply

_NAMED = os.environ.get("REFOLD_SHARED")
ROOT = (Path(_NAMED) if _NAMED else Path(__file__).resolve().parents[3].parent / "shared") / "data" / "vcr"

# What a server says of the connection, and not of the answer.
_OF_THE_CONNECTION = frozenset({"connection", "content-length", "transfer-encoding", "keep-alive"})


class Interaction(NamedTuple):
    """A request of a cassette and its answer. `path` has its query."""

    path: str
    body: dict[str, Any]
    reply: Reply

    @property
    def stream(self) -> bool:
        return any("event-stream" in value for name, value in self.reply.headers if name == "content-type")

    def answers(self, asked: Asked) -> bool:
        return asked.path.endswith(self.path)


def cassettes(end: str) -> list[Any]:
    """The cassettes that have a POST to a path with this end, as parameters of a test; one that skips where there is no
    shared data.
    """
    found = [file for file in sorted(ROOT.rglob("*.yaml")) if interactions(file, end)] if ROOT.is_dir() else []
    if not found:
        why = f"no recorded traffic at {ROOT}: set REFOLD_SHARED to have it served"
        return [pytest.param(Path(), marks=pytest.mark.skip(reason=why))]
    return [pytest.param(file, id=f"{file.parent.name}-{file.stem}") for file in found]


def interactions(file: Path, end: str) -> list[Interaction]:
    """The POSTs of a cassette to paths with this end, in order."""
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    found = []
    for each in yaml.load(file.read_bytes(), Loader=loader)["interactions"]:
        request, url = each["request"], urlsplit(each["request"]["uri"])
        if request["method"] == "POST" and url.path.endswith(end):
            query = f"?{url.query}" if url.query else ""
            found.append(Interaction(f"/{end.strip('/')}{query}", _asked(request), _reply(each["response"])))
    return found


def _asked(request: dict[str, Any]) -> dict[str, Any]:
    body = request.get("parsed_body")
    result: dict[str, Any] = json.loads(request["body"]) if body is None else body
    return result


def _reply(response: dict[str, Any]) -> Reply:
    if "parsed_body" in response:
        data = json.dumps(response["parsed_body"]).encode()
    else:
        text = response["body"]["string"]
        data = text.encode() if isinstance(text, str) else text
    headers = [(name.lower(), value) for name, values in response["headers"].items() for value in values]
    kept = [
        (name, value)
        for name, value in headers
        if name not in _OF_THE_CONNECTION and (name != "content-encoding" or data.startswith(b"\x1f\x8b"))
    ]
    kept += [("set-cookie", "session=not-for-the-ledger")]
    chunks = data.split(b"\n\n") if b"event-stream" in repr(kept).encode() else [data]
    # A separator belongs to the event before it; some chunks end in the middle of one.
    parts = [chunk + b"\n\n" for chunk in chunks[:-1]] + [chunks[-1]]
    torn = [piece for part in parts for piece in (part[:37], part[37:]) if piece]
    return Reply(torn or [b""], response["status"]["code"], tuple(kept))


def played(recorded: list[Interaction]) -> Any:
    """A script that plays interactions once, each request getting the next of its path."""
    left = list(recorded)

    def script(asked: Asked) -> Reply | None:
        found = next((each for each in left if each.answers(asked)), None)
        if found is None:
            return None
        left.remove(found)
        return found.reply

    return script
