"""An HTTP client without opinions: no retries, no pool."""

from __future__ import annotations

import http.client
import json
from typing import Any, NamedTuple
from urllib.parse import urlsplit


class Response(NamedTuple):
    status: int
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


def ask(method: str, url: str, value: Any = None, *, key: str | None = None) -> Response:
    """One request on a connection of its own. Raises what http.client and sockets raise."""
    target = urlsplit(url)
    assert target.hostname is not None
    connection = http.client.HTTPConnection(target.hostname, target.port)
    headers = {} if key is None else {"Idempotency-Key": key}
    try:
        connection.request(
            method,
            f"{target.path}?{target.query}",
            None if value is None else json.dumps(value).encode(),
            headers,
        )
        answer = connection.getresponse()
        return Response(answer.status, answer.read())
    finally:
        connection.close()


def chat(url: str, **body: Any) -> Response:
    """A chat completion of the model at this address."""
    return ask("POST", f"{url}/v1/chat/completions", {"model": "m", **body})


def streamed(response: Response) -> list[Any]:
    """The values of a stream's events; the last is "[DONE]" if the stream is whole."""
    events = [line.removeprefix("data: ") for line in response.body.decode().split("\n\n") if line]
    return [event if event == "[DONE]" else json.loads(event) for event in events]


def assembled(chunks: list[Any]) -> dict[str, Any]:
    """The message that the deltas of a stream add up to, as it would stand in an answer that is not streamed."""
    message: dict[str, Any] = {"role": "assistant", "content": ""}
    calls: list[Any] = []
    for delta in (choice["delta"] for chunk in chunks for choice in chunk["choices"]):
        message["content"] += delta.get("content", "")
        for part in delta.get("tool_calls", []):
            if part["index"] == len(calls):
                calls.append({"id": part["id"], "type": part["type"], "function": {**part["function"]}})
            else:
                calls[part["index"]]["function"]["arguments"] += part["function"]["arguments"]
    if calls:
        message |= {"content": message["content"] or None, "tool_calls": calls}
    return message
