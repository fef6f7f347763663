"""Peers in processes of their own: their threads do not disturb the other sides, and the standard library's SQLite,
which they use, never meets apsw's on one file in one process.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from benchmarks.harness import Sample, Side

DBOS, LANGGRAPH = "dbos", "langgraph"
_NEEDS = {DBOS: "dbos", LANGGRAPH: "langgraph.checkpoint.sqlite"}
_SETTINGS = ("DBOS_", "LANGCHAIN_", "LANGGRAPH_", "LANGSMITH_", "OTEL_")
"""Beginnings of variables that would give a peer another database, or somewhere to send traces."""
_ROOT = Path(__file__).parent.parent
_LOCAL = ("127.0.0.1", "::1", "localhost")


class Peer(NamedTuple):
    """A peer's script, what it does there, and with which numbers."""

    name: str
    work: str
    numbers: tuple[int, ...]


def sides(wanted: Mapping[str, Peer], fresh: Callable[[str], Path]) -> dict[str, Side]:
    """A side for each peer that is installed, on new files each time."""
    return {
        side: lambda peer=peer: measured(peer, fresh(peer.name))  # type: ignore[misc]
        for side, peer in wanted.items()
        if installed(peer.name)
    }


def missing() -> list[str]:
    """A note for each peer that is not installed."""
    return [f"{name} is not installed, so it was not measured." for name in _NEEDS if not installed(name)]


def installed(name: str) -> bool:
    """Whether a peer is there; the extra `bench` brings it."""
    try:
        return importlib.util.find_spec(_NEEDS[name]) is not None
    except ModuleNotFoundError:
        return False


def measured(peer: Peer, folder: Path) -> Sample:
    """Has a peer's script work on the files in `folder`; what the part that counts took there."""
    command = [sys.executable, "-m", f"benchmarks.peer_{peer.name}", peer.work, str(folder), *map(str, peer.numbers)]
    settings = {name: value for name, value in os.environ.items() if not name.startswith(_SETTINGS)}
    done = subprocess.run(command, cwd=_ROOT, env=settings, capture_output=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{peer.name} {peer.work} failed: {done.stderr.decode(errors='replace')[-2000:]}")
    return msgspec.json.decode(done.stdout.splitlines()[-1], type=Sample)


def report(sample: Sample) -> None:
    """How a peer's script says what it measured."""
    print(msgspec.json.encode(sample).decode(), flush=True)


def stay_here() -> None:
    """Refuses every connection to another machine, in this process and for good. No peer here has a reason for one."""
    sys.addaudithook(_refuse)


def _refuse(event: str, arguments: tuple[Any, ...]) -> None:
    if event in ("socket.connect", "socket.sendto"):
        address = arguments[1]
        if isinstance(address, tuple) and address[0] not in _LOCAL:
            raise PermissionError(f"a benchmark connects to {address[0]}")
    if event == "socket.getaddrinfo" and arguments[0] not in (*_LOCAL, None):
        raise PermissionError(f"a benchmark looks up {arguments[0]}")
