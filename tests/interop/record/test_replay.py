"""A recording answers the same clients again, without network: by request, in order, chunk by chunk."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import refold
from refold.events.catalog.run import RunCreated
from refold.interop.record.divergence import Report
from refold.interop.record.errors import NotARecording
from refold.ledger.drafts import Draft
from tests.interop.record.servers import (
    Reply,
    Script,
    as_events,
    as_json,
    asking,
    chat,
    one_after_the_other,
    piece,
    serving,
)
from tests.interop.record.sides import NAMES, SIDES, Answered, Side
from tests.interop.record.support import FILE, offline, state_of

sides = pytest.mark.parametrize("side", SIDES, ids=NAMES)
CHAT = "/v1/chat/completions"


def recorded(folder: Path, side: Side, script: Script, *bodies: Any) -> tuple[str, str, list[Answered]]:
    """Records requests: the run, the address of the server that is gone, what was answered."""
    with serving(script) as server, refold.record("nightly", ledger=folder / FILE) as rec:
        answers = [side.ask(rec, server.url + CHAT, body) for body in bodies]
    return rec.run_id, server.url + CHAT, answers


@sides
def test_the_same_request_with_different_answers_gives_them_in_order(side: Side, tmp_path: Path) -> None:
    """Case 18: a poll loop."""
    script = one_after_the_other(*(as_json(chat(text)) for text in ("not yet", "not yet", "done")))
    run_id, url, answers = recorded(tmp_path, side, script, *[asking("Is it done?")] * 3)
    with offline(), refold.replay_recording(run_id, ledger=tmp_path / FILE) as rec:
        assert [side.ask(rec, url, asking("Is it done?")) for _ in range(3)] == answers
        assert rec.report.equal
        with pytest.raises(refold.RecordingDiverged) as caught:
            side.ask(rec, url, asking("Is it done?"))
    assert caught.value.facts["kind"] == "exhausted"
    assert [each.kind for each in rec.report.divergences] == ["exhausted"]


@sides
def test_two_replays_give_the_same_bytes_and_write_nothing(side: Side, tmp_path: Path) -> None:
    replies = [
        as_events(piece("In "), piece("Leipzig."), piece(finish="stop"), "[DONE]"),
        as_json(chat("ü\x00")),
        as_json({}, 503),
    ]
    bodies = [asking("Where?"), asking("Umlaut?"), asking("Busy?")]
    run_id, url, answers = recorded(tmp_path, side, one_after_the_other(*replies), *bodies)
    assert [len(each.chunks) for each in answers] == [4, 1, 1]
    before = state_of(tmp_path)
    for _ in range(2):
        with offline(), refold.replay_recording(run_id, ledger=tmp_path / FILE) as rec:
            assert [side.ask(rec, url, body) for body in bodies] == answers
        assert rec.report == Report(run_id, 3, [])
    assert state_of(tmp_path) == before


def test_requests_are_found_in_any_order_and_whatever_the_order_of_members(tmp_path: Path) -> None:
    side = SIDES[0]
    script = one_after_the_other(*(as_json(chat(text)) for text in ("first", "second")))
    run_id, url, answers = recorded(tmp_path, side, script, asking("1"), asking("2"))
    with offline(), refold.replay_recording(run_id, ledger=tmp_path / FILE) as rec:
        for text, answer in (("2", answers[1]), ("1", answers[0])):
            assert side.ask(rec, url, dict(reversed(asking(text).items()))) == answer
    assert rec.report.equal


@sides
def test_a_changed_request_names_the_nearest_and_where_it_differs(side: Side, tmp_path: Path) -> None:
    script = one_after_the_other(*(as_json(chat("yes")) for _ in range(3)))
    run_id, url, _ = recorded(tmp_path, side, script, asking("a", "b", "c"), asking("x", "y", "z"), asking("q"))
    with offline(), refold.replay_recording(run_id, ledger=tmp_path / FILE) as rec:
        side.ask(rec, url, asking("q"))
        with pytest.raises(refold.RecordingDiverged, match=r"differs from event 6 at \$\.body\.messages\[2\]\.content"):
            side.ask(rec, url, asking("x", "y", "changed"))
    changed, missing = rec.report.divergences
    assert (changed.kind, changed.seq, changed.recorded, changed.attempted) == ("changed_request", 6, "z", "changed")
    assert (missing.kind, missing.seq) == ("missing", 3)
    assert not rec.report.equal


@pytest.mark.parametrize(
    ("recorded_body", "body", "path"),
    [
        (asking("a"), {**asking("a"), "temperature": 0.2}, "$.body.temperature"),
        ({**asking("a"), "n": 1}, {**asking("a"), "n": 1.0}, "$.body.n"),
        ({**asking("a"), "n": 0.0}, {**asking("a"), "n": -0.0}, "$"),
        (asking("a", "b"), asking("a"), "$.body.messages[1]"),
        (asking("a"), None, "$.method"),
        (["text"], {"a": 1}, "$.body"),
    ],
)
def test_what_differs_is_found_whatever_it_is(recorded_body: Any, body: Any, path: str, tmp_path: Path) -> None:
    run_id, url, _ = recorded(tmp_path, SIDES[0], one_after_the_other(as_json({})), recorded_body)
    with offline(), refold.replay_recording(run_id, ledger=tmp_path / FILE) as rec:
        with pytest.raises(refold.RecordingDiverged) as caught:
            SIDES[0].ask(rec, url, body)
        assert caught.value.facts["path"] == path


@sides
def test_errors_of_the_transport_are_raised_again_at_their_place(side: Side, tmp_path: Path) -> None:
    replies: list[Reply | None] = [None, as_events(piece("In "), then="reset")]
    with serving(one_after_the_other(*replies)) as server, refold.record("nightly", ledger=tmp_path / FILE) as rec:
        errors = []
        for _ in replies:
            with pytest.raises(side.module.TransportError) as caught:
                side.ask(rec, server.url + CHAT, asking("?"))
            errors.append(caught.value)
    with offline(), refold.replay_recording(rec.run_id, ledger=tmp_path / FILE) as again:
        for error in errors:
            with pytest.raises(type(error)) as caught:
                side.ask(again, server.url + CHAT, asking("?"))
            assert str(caught.value) == str(error)
    assert again.report.equal


@sides
def test_reading_on_where_a_stream_was_left_is_a_divergence(side: Side, tmp_path: Path) -> None:
    reply = as_events(piece("In "), piece("Leipzig."), then="stall")
    with serving(one_after_the_other(reply)) as server, refold.record("nightly", ledger=tmp_path / FILE) as rec:
        answer = side.ask(rec, server.url + CHAT, asking("?"), read=1)
    with offline(), refold.replay_recording(rec.run_id, ledger=tmp_path / FILE) as again:
        assert side.ask(again, server.url + CHAT, asking("?"), read=1) == answer
    assert again.report.equal
    with offline(), refold.replay_recording(rec.run_id, ledger=tmp_path / FILE) as again:
        with pytest.raises(refold.RecordingDiverged):
            side.ask(again, server.url + CHAT, asking("?"))
        assert [each.kind for each in again.report.divergences] == ["cut"]


@pytest.mark.parametrize(("status", "kind"), [(0, "unanswered"), (200, "cut")])
def test_a_request_that_was_cancelled_has_no_answer_to_give(status: int, kind: str, tmp_path: Path) -> None:
    stalled = Reply([], status, then="stall")

    async def agent(url: str) -> str:
        async with refold.record("nightly", ledger=tmp_path / FILE) as rec, rec.httpx_async_client() as client:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(client.post(url, json=asking("?")), 0.2)
        return rec.run_id

    with serving(one_after_the_other(stalled)) as server:
        run_id = asyncio.run(agent(server.url))
    with offline(), refold.replay_recording(run_id, ledger=tmp_path / FILE) as rec:
        with pytest.raises(refold.RecordingDiverged):
            SIDES[1].ask(rec, server.url, asking("?"))
        assert [each.kind for each in rec.report.divergences] == [kind]


def test_what_is_no_recording_or_is_not_there_is_refused(tmp_path: Path) -> None:
    async def other() -> str:
        async with await refold.open_ledger(tmp_path / FILE) as ledger:
            made = await ledger.scope().create(Draft(RunCreated("orders", "root", "root")))
            assert isinstance(made, refold.StreamWriter)
            await made.close()
            return made.stream.run_id

    with pytest.raises(refold.RefoldError), refold.replay_recording("run_0", ledger=tmp_path / "nothing.db"):
        pass
    assert not (tmp_path / "nothing.db").exists()
    run_id = asyncio.run(other())
    with pytest.raises(NotARecording), refold.replay_recording(run_id, ledger=tmp_path / FILE):
        pass
    with pytest.raises(refold.RefoldError), refold.replay_recording(run_id, ledger=tmp_path / FILE, scope="other/one"):
        pass


def test_another_scope_s_recording_is_not_found_and_an_erased_one_says_so(tmp_path: Path) -> None:
    run_id, _, _ = recorded(tmp_path, SIDES[0], one_after_the_other(as_json(chat("yes"))), asking("?"))

    async def erase() -> None:
        async with await refold.open_ledger(tmp_path / FILE) as ledger:
            await refold.erase_run(ledger.scope(), run_id, actor="ada", basis="asked for")

    asyncio.run(erase())
    with pytest.raises(refold.RefoldError, match="erased"), refold.replay_recording(run_id, ledger=tmp_path / FILE):
        pass


def test_a_key_is_used_once_and_its_error_says_how_to_replay(tmp_path: Path) -> None:
    with (
        serving(one_after_the_other(as_json(chat("yes")))) as server,
        refold.record("nightly", key="monday", ledger=tmp_path / FILE) as rec,
    ):
        with (
            pytest.raises(refold.RecordingExists, match="by a process that lives"),
            refold.record("nightly", key="monday", ledger=tmp_path / FILE),
        ):
            pass
        SIDES[0].ask(rec, server.url + CHAT, asking("?"))
    with (
        pytest.raises(refold.RecordingExists, match="succeeded") as caught,
        refold.record("nightly", key="monday", ledger=tmp_path / FILE),
    ):
        pass
    assert "replay_recording" in caught.value.remedy
    with refold.replay_recording(caught.value.facts["run_id"], ledger=tmp_path / FILE) as again:
        SIDES[0].ask(again, server.url + CHAT, asking("?"))
