"""Processes that end in the middle of a run: what they run, and how they are run."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
from pathlib import Path
from typing import Any

import httpx

from refold import App, Run, Stream
from refold.gateway import http
from refold.gateway.tools import Retry

KEY = "the run"


def shop(url: str, *, dies: str = "") -> App:
    """Workflows that pay at `url`. `dies`: where the process ends, with status 0, as if all were well."""
    app = App("shop")

    @app.tool(effect="unsafe")
    async def charge(order: str) -> Any:
        async with http.async_client(transport=httpx.AsyncHTTPTransport(verify=False)) as client:
            answer = await client.post(url, json={"order": order})
        if dies == "after the charge":
            os._exit(0)
        return answer.raise_for_status().json()

    @app.tool(effect="idempotent", retry=Retry(attempts=3, first=0.0))
    async def fetch(order: str) -> Any:
        if dies == "in the second attempt" and _again():
            os._exit(0)
        async with http.async_client(transport=httpx.AsyncHTTPTransport(verify=False)) as client:
            return (await client.post(url, json={"order": order})).raise_for_status().json()

    @app.workflow()
    async def pays(run: Run) -> Any:
        return await charge("7")

    @app.workflow()
    async def fetches(run: Run) -> Any:
        return await fetch("7")

    @app.workflow()
    async def mails_and_waits(run: Run) -> Any:
        mailed = await charge("the mail")
        return [mailed, await run.signal("answer", str)]

    return app


_attempts: list[None] = []


def _again() -> bool:
    _attempts.append(None)
    return len(_attempts) > 1


def run_and_die(directory: Path, url: str, workflow: str, dies: str) -> None:
    """Runs a workflow in a process of its own, which ends in the middle of it."""
    process = multiprocessing.get_context("spawn").Process(target=_run, args=(directory, url, workflow, dies))
    process.start()
    process.join(120)
    assert process.exitcode == 0
    process.close()


def _run(directory: Path, url: str, workflow: str, dies: str) -> None:
    asyncio.run(_work(directory, url, workflow, dies))


async def _work(directory: Path, url: str, workflow: str, dies: str) -> None:
    async with shop(url, dies=dies).open(str(directory / "ledger.db")) as rf:
        run = await rf.start(workflow, key=KEY)
        if dies == "while it waits":
            async for event in rf.scope.follow(Stream.run(run.id)):
                if event.type == "tool.answered":
                    os._exit(0)
        await run.result()
        os._exit(1)
