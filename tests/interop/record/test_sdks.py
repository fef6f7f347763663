"""The real SDKs over recorded traffic: recorded they get what they get without us, and the same offline afterwards."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anthropic
import openai
import pytest
from anthropic.types import Message, RawMessageStreamEvent
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.responses import Response, ResponseStreamEvent

import refold
from refold.interop.record.clients import Clients
from tests.interop.record.cassettes import Interaction, cassettes, interactions, played
from tests.interop.record.servers import serving
from tests.interop.record.support import FILE, cost_rows, endings, offline

KEY = "sk-proj-this-is-the-key-of-nobody-1234567890"
Ask = Callable[[Clients | None, str, list[Interaction]], list[Any]]


class Api:
    """One API of one SDK: its types, and its blocking and other clients."""

    def __init__(self, sdk: Any, path: str, whole: Any, event: Any) -> None:
        self._sdk, self.path, self._whole, self._event = sdk, path, whole, event

    def ask(self, clients: Clients | None, url: str, asked: list[Interaction]) -> list[Any]:
        """What a blocking client makes of the answers; without `clients` it has its own."""
        own = {} if clients is None else {"http_client": clients.httpx2_client()}
        with self._made("", url, own) as client:
            return [self._one(client, each) for each in asked]

    def _one(self, client: Any, each: Interaction) -> Any:
        try:
            if each.stream:
                stream = client.post(**self._call(each), stream=True, stream_cls=self._sdk.Stream[self._event])
                return [event.to_dict(warnings=False) for event in stream]
            return client.post(**self._call(each), cast_to=self._whole).to_dict(warnings=False)
        except self._sdk.APIError as error:
            return (type(error).__name__, str(error))

    def ask_async(self, clients: Clients | None, url: str, asked: list[Interaction]) -> list[Any]:
        """The same with an asynchronous client."""

        async def run() -> list[Any]:
            own = {} if clients is None else {"http_client": clients.httpx2_async_client()}
            async with self._made("Async", url, own) as client:
                return [await self._one_async(client, each) for each in asked]

        return asyncio.run(run())

    async def _one_async(self, client: Any, each: Interaction) -> Any:
        try:
            if each.stream:
                stream_cls = self._sdk.AsyncStream[self._event]
                stream = await client.post(**self._call(each), stream=True, stream_cls=stream_cls)
                return [event.to_dict(warnings=False) async for event in stream]
            return (await client.post(**self._call(each), cast_to=self._whole)).to_dict(warnings=False)
        except self._sdk.APIError as error:
            return (type(error).__name__, str(error))

    def _made(self, prefix: str, url: str, own: dict[str, Any]) -> Any:
        name = prefix + ("OpenAI" if self._sdk is openai else "Anthropic")
        return getattr(self._sdk, name)(base_url=url + "/v1", api_key=KEY, max_retries=0, **own)

    def _call(self, each: Interaction) -> dict[str, Any]:
        call = {"path": "/" + each.path.lstrip("/"), "body": each.body}
        return {**call, "cast_to": self._event} if each.stream else call


CHAT = Api(openai, "/chat/completions", ChatCompletion, ChatCompletionChunk)
RESPONSES = Api(openai, "/responses", Response, ResponseStreamEvent)
MESSAGES = Api(anthropic, "/messages", Message, RawMessageStreamEvent)


def goes_round(api: Api, ask: Ask, file: Path, folder: Path) -> None:
    asked = interactions(file, api.path)
    with serving(played(asked)) as server:
        plain = ask(None, server.url, asked)
        server.script = played(asked)
        with refold.record(file.stem, ledger=folder / FILE) as rec:
            recorded = ask(rec, server.url, asked)
    assert recorded == plain
    replays = []
    for _ in range(2):
        with offline(), refold.replay_recording(rec.run_id, ledger=folder / FILE) as again:
            replays.append(ask(again, server.url, asked))
        assert again.report.equal
    assert replays == [plain, plain]
    assert len(endings(folder, rec.run_id)) == len(asked)
    _usage_is_counted_once(folder, rec.run_id, plain)
    stored = b"".join(path.read_bytes() for path in folder.iterdir())
    assert KEY.encode() not in stored
    assert b"not-for-the-ledger" not in stored


def _usage_is_counted_once(folder: Path, run_id: str, answers: list[Any]) -> None:
    """Case 37: prompt includes what was cached, once, whatever the provider's own count does."""
    for answer, row in zip(answers, cost_rows(folder, run_id), strict=True):
        said = _last_usage(answer)
        if said is None:
            continue
        if "prompt_tokens" in said:
            wanted = (said["prompt_tokens"], said["completion_tokens"] or 0)
        else:
            apart = (said.get("cache_read_input_tokens") or 0) + (said.get("cache_creation_input_tokens") or 0)
            wanted = (said["input_tokens"] + apart, said["output_tokens"])
        assert (row.tokens_prompt, row.tokens_completion) == wanted


def _last_usage(answer: Any) -> dict[str, Any] | None:
    if isinstance(answer, dict):
        return answer.get("usage")
    found: dict[str, Any] = {}
    for event in answer if isinstance(answer, list) else ():
        for place in (event, event.get("message") or {}, event.get("response") or {}):
            found.update({name: value for name, value in (place.get("usage") or {}).items() if value is not None})
    return found or None


ways = pytest.mark.parametrize("way", ["ask", "ask_async"], ids=["sync", "async"])


@ways
@pytest.mark.parametrize("file", cassettes("/chat/completions"))
def test_openai_chat(file: Path, way: str, tmp_path: Path) -> None:
    goes_round(CHAT, getattr(CHAT, way), file, tmp_path)


@ways
@pytest.mark.parametrize("file", cassettes("/responses"))
def test_openai_responses(file: Path, way: str, tmp_path: Path) -> None:
    goes_round(RESPONSES, getattr(RESPONSES, way), file, tmp_path)


@ways
@pytest.mark.parametrize("file", cassettes("/messages"))
def test_anthropic_messages(file: Path, way: str, tmp_path: Path) -> None:
    goes_round(MESSAGES, getattr(MESSAGES, way), file, tmp_path)
