"""Case 38: a stream that was abandoned was never recorded. Here each request has one final record on every exit, with
what had come until then.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

import refold
from tests.interop.record.servers import as_events, asking, one_after_the_other, piece, serving
from tests.interop.record.support import FILE, contents, endings

STREAM = as_events(piece("In "), piece("Leipzig."), then="stall")


def _this_task() -> asyncio.Task[Any]:
    task = asyncio.current_task()
    assert task is not None
    return task


async def _breaks(answer: httpx.Response) -> None:
    async for _ in answer.aiter_lines():
        break


async def _raises(answer: httpx.Response) -> None:
    async for _ in answer.aiter_lines():
        raise ZeroDivisionError


async def _is_cancelled(answer: httpx.Response) -> None:
    async for _ in answer.aiter_lines():
        _this_task().cancel()  # Arrives where it waits for the next line.


async def _never_reads(answer: httpx.Response) -> None:
    return


async def _closes(answer: httpx.Response) -> None:
    await answer.aclose()


@pytest.mark.parametrize("leave", [_breaks, _raises, _is_cancelled, _never_reads, _closes])
def test_whoever_leaves_a_stream_leaves_a_record(leave: Callable[[Any], Awaitable[None]], tmp_path: Path) -> None:
    async def agent(url: str) -> str:
        async with refold.record("nightly", ledger=tmp_path / FILE) as rec, rec.httpx_async_client() as client:
            try:
                async with client.stream("POST", url + "/v1/chat/completions", json=asking("Where?")) as answer:
                    await leave(answer)
            except ZeroDivisionError:
                pass
            except asyncio.CancelledError:
                _this_task().uncancel()
            # Not only at the block's end.
            assert await asyncio.to_thread(endings, tmp_path, rec.run_id) == [("failed", "aborted")]
        return rec.run_id

    with serving(one_after_the_other(STREAM)) as server:
        run_id = asyncio.run(agent(server.url))
    assert endings(tmp_path, run_id) == [("failed", "aborted")]
    (left,) = contents(tmp_path, run_id, "inference.failed")
    read = left["response"]["body"]
    assert b"".join(STREAM.chunks).decode().startswith(read)
    assert ("In" in read) == (leave in (_breaks, _raises, _is_cancelled))
