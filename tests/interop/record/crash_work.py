"""An agent that is recorded and killed, and what must be true of its recording afterwards."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

import refold
from refold.testing import faults
from refold.testing.crash import Ack
from tests.interop.record.servers import Asked, Reply, as_events, as_json, asking, chat, piece
from tests.interop.record.support import FILE, endings, events, offline, run_row
from tests.invariants.checks import check_all

_QUESTIONS = ("Where is it?", "And now?", "Is it there?")
_STREAMED = "Where is it?"
SERVED = "served"


def noting(asked: Asked) -> Reply:
    """The server's script: what it was asked stands in its own file, in the folder of the run that asked."""
    body = json.loads(asked.body)
    with (Path(asked.headers["x-folder"]) / SERVED).open("a") as file:
        file.write(body["messages"][0]["content"] + "\n")
    if body.get("stream"):
        return as_events(piece("In "), piece("Leipzig."), piece(finish="stop"), "[DONE]")
    return as_json(chat(body["messages"][0]["content"]))


def prepared(folder: Path) -> Path:
    """An empty ledger: making one is killed elsewhere."""

    async def make() -> None:
        await (await refold.open_ledger(folder / "empty.db")).close()

    asyncio.run(make())
    return folder / "empty.db"


def recorded_agent(empty: Path, url: str, questions: int, folder: Path, ack: Ack) -> None:
    """The scenario: up to three questions, one of them streamed; whoever has an answer acknowledges it."""
    shutil.copyfile(empty, folder / FILE)
    opened = partial(refold.open_ledger, folder / FILE, vfs=faults.register())
    with refold.record("nightly", key="monday", ledger=opened) as rec, rec.httpx_client(verify=False) as client:
        for question in _QUESTIONS[:questions]:
            ack(json.dumps(ask(client, url, folder, question)))
    ack(json.dumps("done"))


def ask(client: httpx.Client, url: str, folder: Path, question: str) -> list[str]:
    """A question and its answer."""
    body = {**asking(question), "stream": question == _STREAMED}
    with client.stream("POST", url + "/v1/chat/completions", json=body, headers={"x-folder": str(folder)}) as answer:
        return [question, "|".join(chunk.decode() for chunk in answer.iter_raw())]


def is_honest(url: str, folder: Path, acks: list[str]) -> None:
    """The check: what the next process finds when it comes with the same key."""
    answers = [json.loads(line) for line in acks]
    served = Counter((folder / SERVED).read_text().splitlines() if (folder / SERVED).exists() else [])
    run_id = _next_process(folder)
    check_all(folder / FILE)
    if run_id is None:
        assert not served
        assert not answers
        return
    ended = endings(folder, run_id)
    asked = sum(event.type == "inference.requested" for event in events(folder, run_id))
    assert served.total() <= asked <= served.total() + 1, "asked without being on record, or more on record than asked"
    assert all(count == 1 for count in served.values())
    whole = [how for how, _ in ended if how == "completed"]
    assert len(whole) >= len([each for each in answers if each != "done"]), "an answer that the code saw is lost"
    row = run_row(folder, run_id)
    lost = [how for how, _ in ended if how == "lost"]
    assert len(whole) + len(lost) == len(ended)
    assert len(lost) <= 1
    if "done" in answers:
        assert (row.status, lost) == ("succeeded", [])
    elif row.status == "failed":
        assert row.error_code == "process_lost"
    _replays(url, folder, run_id, answers, len(whole), len(lost))


def _next_process(folder: Path) -> str | None:
    """The run that the key belongs to, ended; None when none had come to be."""
    for _ in range(2):  # The first ends what was left open, the second finds it closed.
        try:
            with refold.record("nightly", key="monday", ledger=folder / FILE):
                pass
        except refold.RecordingExists as error:
            run_id: str = error.facts["run_id"]
        except refold.NothingRecorded:
            return None
    assert run_row(folder, run_id).status in ("succeeded", "failed")
    return run_id


def _replays(url: str, folder: Path, run_id: str, answers: list[Any], whole: int, lost: int) -> None:
    with (
        offline(),
        refold.replay_recording(run_id, ledger=folder / FILE) as rec,
        rec.httpx_client(verify=False) as client,
    ):
        given = [ask(client, url, folder, question) for question in _QUESTIONS[:whole]]
        assert given[: len(answers)] == [each for each in answers if each != "done"][:whole]
        if whole < len(_QUESTIONS):
            with pytest.raises(refold.RecordingDiverged) as caught:
                ask(client, url, folder, _QUESTIONS[whole])
            assert caught.value.facts["kind"] == ("unanswered" if lost else "changed_request")
