"""Case 18: the same request was made twice and answered differently; the replay gave the first answer for ever, and a
poll loop hung. Here the place among equal requests is part of what finds an answer, and a recording that is used
up is a typed divergence.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import refold
from tests.interop.record.servers import as_json, asking, chat, one_after_the_other, serving
from tests.interop.record.support import FILE, offline

ANSWERS = ["pending", "pending", "pending", "done"]


def polls(client: Any, url: str, until: str) -> list[str]:
    """An agent that asks the same until it hears what it waits for."""
    heard = [""]
    while heard[-1] != until:
        answer = client.post(url + "/v1/chat/completions", json=asking("Is the refund through?"))
        heard.append(answer.json()["choices"][0]["message"]["content"])
    return heard[1:]


def test_a_poll_loop_ends_in_its_replay_as_it_did(tmp_path: Path) -> None:
    script = one_after_the_other(*(as_json(chat(text)) for text in ANSWERS))
    with (
        serving(script) as server,
        refold.record("refunds", ledger=tmp_path / FILE) as rec,
        rec.httpx_client() as client,
    ):
        assert polls(client, server.url, "done") == ANSWERS
    with (
        offline(),
        refold.replay_recording(rec.run_id, ledger=tmp_path / FILE) as again,
        again.httpx_client() as client,
    ):
        assert polls(client, server.url, "done") == ANSWERS
        assert again.report.equal
    with (
        offline(),
        refold.replay_recording(rec.run_id, ledger=tmp_path / FILE) as again,
        again.httpx_client() as client,
        pytest.raises(refold.RecordingDiverged) as caught,
    ):
        polls(client, server.url, "refused")  # The code waits for something else now: it does not hang.
    assert caught.value.facts["kind"] == "exhausted"


def agent(until: str) -> refold.App:
    """A workflow that asks its model the same until it hears what it waits for."""
    app = refold.App("refunds", models={"main": refold.Scripted(ANSWERS)})

    @app.workflow()
    async def poll(run: refold.Run) -> list[str]:
        heard = [""]
        while heard[-1] != until:
            messages = [{"role": "user", "content": "Is the refund through?"}]
            heard.append((await run.infer("main", messages=messages)).text)
        return heard[1:]

    return app


def test_a_workflow_that_polls_gets_each_answer_in_its_place(tmp_path: Path) -> None:
    async def live() -> str:
        async with agent("done").open(str(tmp_path / FILE)) as rf:
            run = await rf.start("poll")
            assert await run.result() == ANSWERS
            return run.id

    async def replayed(until: str) -> Any:
        async with agent(until).open(str(tmp_path / FILE)) as rf:
            return await rf.replay(run_id, refold.InferenceSkipping())

    run_id = asyncio.run(live())
    with offline():
        again = asyncio.run(replayed("done"))
        assert again.equal
        assert again.state["output"] == ANSWERS
        (divergence,) = asyncio.run(replayed("refused")).divergences
    assert (divergence.kind, divergence.step) == ("extra", "0/main#5")
    assert "asks for an inference" in divergence.first_difference
