"""Any endpoint that speaks OpenAI's chat API over HTTP."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import aclosing, asynccontextmanager
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from refold import seam
from refold.gateway.model_errors import BadRequest, InferenceTimeout, ProviderUnreachable
from refold.gateway.models import Completion, ModelRequest, Part
from refold.gateway.providers.answering import Answer
from refold.gateway.providers.chat import Assembling, completion_of

if TYPE_CHECKING:
    import httpx


def openai_compatible(
    base_url: str,
    model: str,
    *,
    api_key: str | None = None,
    api_key_env: str | None = None,
    name: str = "openai_compatible",
    **settings: Any,
) -> OpenAICompatible:
    """A model behind an endpoint such as `http://127.0.0.1:8000/v1`. `settings` go with every request.

    The key is `api_key`, or stands in the environment under `api_key_env`, which is read at each request, so that code
    can be loaded and replayed without it. It is sent, and never recorded, logged or shown. `name` stands in facts and
    price tables for whoever answers.
    """
    return OpenAICompatible(base_url, model, name, settings, _key(api_key, api_key_env))


class OpenAICompatible:
    """A provider over HTTP. Made by `openai_compatible`; one pool of connections for each event loop that uses it."""

    def __init__(self, base_url: str, model: str, name: str, settings: Mapping[str, Any], key: Any) -> None:
        self._url = base_url.rstrip("/") + "/chat/completions"
        self.model = model
        self.name = name
        self.settings = dict(settings)
        self._key = key
        self._clients: WeakKeyDictionary[asyncio.AbstractEventLoop, httpx.AsyncClient] = WeakKeyDictionary()

    def __repr__(self) -> str:
        return f"<OpenAICompatible {self.name} {self.model}>"

    async def complete(self, request: ModelRequest, *, timeout: float) -> Completion:
        async with self._answer(_body(request), timeout) as answer:
            return completion_of(await answer.json(), answer.status)

    async def stream(self, request: ModelRequest, *, timeout: float) -> AsyncGenerator[Part | Completion, None]:
        body = _body(request)
        body["stream"] = True
        body["stream_options"] = {"include_usage": True, **body.get("stream_options", {})}
        async with self._answer(body, timeout) as answer:
            if not answer.is_stream:
                # A server that cannot stream answers whole, or with an error.
                whole = completion_of(await answer.json(), answer.status)
                if whole.text:
                    yield Part(whole.text)
                yield whole
                return
            assembling = Assembling()
            async with aclosing(answer.events(assembling)) as events:
                async for data in events:
                    for part in assembling.add(data, answer.status):
                        yield part
            yield assembling.end(answer.status)

    async def aclose(self) -> None:
        """Closes the connections that this event loop has."""
        client = self._clients.pop(asyncio.get_running_loop(), None)
        if client is not None:
            await client.aclose()

    def _client(self) -> httpx.AsyncClient:
        httpx = _httpx()
        loop = asyncio.get_running_loop()
        client = self._clients.get(loop)
        if client is None:
            # How long an answer may take is the attempt's to say, from the first byte sent to the last received.
            client = self._clients[loop] = httpx.AsyncClient(timeout=None)
        return client

    @asynccontextmanager
    async def _answer(self, body: dict[str, Any], timeout: float) -> AsyncIterator[Answer]:
        """The answer to a request, open for reading. Raises InferenceFailed."""
        httpx = _httpx()
        client, key = self._client(), self._key()
        deadline = asyncio.get_running_loop().time() + timeout
        try:
            request = client.build_request("POST", self._url, content=json.dumps(body), headers=_headers(key))
        except (httpx.InvalidURL, ValueError) as error:
            raise BadRequest(f"{self.name} cannot be asked: {_told(error)}", sent=False) from error
        try:
            seam.reach("http.send")
            async with asyncio.timeout_at(deadline):
                response = await client.send(request, stream=True)
            try:
                answer = Answer(response, key, deadline)
                await answer.check()
                yield answer
            finally:
                await response.aclose()
        except TimeoutError:
            raise InferenceTimeout(f"{self.name} did not answer within {timeout:g} s.", timeout=timeout) from None
        except (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout) as error:
            raise ProviderUnreachable(f"{self.name} cannot be reached: {_told(error)}", sent=False) from error
        except (httpx.UnsupportedProtocol, httpx.LocalProtocolError) as error:
            raise BadRequest(f"{self.name} cannot be asked: {_told(error)}", sent=False) from error
        except httpx.HTTPError as error:
            raise ProviderUnreachable(f"The connection to {self.name} broke: {_told(error)}") from error


def _httpx() -> Any:
    import httpx  # Loaded by whoever asks over HTTP, and by nobody else.

    return httpx


def _key(api_key: str | None, api_key_env: str | None) -> Callable[[], str | None]:
    # A closure: an attribute would show the key in a debugger, in `vars` and in what an error reporter collects.
    def key() -> str | None:
        if api_key is not None or api_key_env is None:
            return api_key
        found = os.environ.get(api_key_env)
        if not found:
            raise BadRequest(f"The environment has no {api_key_env}, where the model's key should be.", sent=False)
        return found

    return key


def _headers(key: str | None) -> dict[str, str]:
    # Only gzip is asked for, since only that is unpacked within bounds here.
    headers = {"Content-Type": "application/json", "Accept-Encoding": "gzip"}
    return headers if key is None else {**headers, "Authorization": f"Bearer {key}"}


def _body(request: ModelRequest) -> dict[str, Any]:
    if request.settings.get("n", 1) != 1:
        raise BadRequest("Only one answer can be asked for at a time, and the setting `n` wants more.", sent=False)
    body = {**request.settings, "model": request.model, "messages": request.messages}
    return {**body, "tools": request.tools} if request.tools else body


def _told(error: Exception) -> str:
    return f"{type(error).__name__} {str(error)[:200]}".strip() + "."
