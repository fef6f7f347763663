"""SIGKILL of a process that asks a model over real HTTP, at each of its points."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import partial
from http.server import ThreadingHTTPServer
from pathlib import Path

import pytest

from refold.testing import crash
from tests.gateway import models_crash_work as work
from tests.ledger.memory import fast

__all__ = ["fast"]


@pytest.fixture
def url() -> Iterator[str]:
    work.Provider.asked.clear()
    server = ThreadingHTTPServer(("127.0.0.1", 0), work.Provider)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.parametrize(
    ("at", "require"),
    [
        ("http.send", {"http.send"}),
        ("vfs.sync:wal", {"vfs.sync:wal"}),
        # Between two syncs a killed process leaves what it would have left before the first.
        pytest.param("vfs.write:wal", {"vfs.write:wal"}, marks=pytest.mark.soak),
    ],
)
def test_case_11_killed_anywhere_the_count_goes_on_and_no_attempt_lacks_its_end_or_cost(
    at: str, require: set[str], url: str, fast: Path
) -> None:
    scenario, check = partial(work.asks_twice, url), partial(work.nothing_repeated_or_missing, url)
    crash.kill_at_each(scenario, check, under=fast, at=at, require=require)
