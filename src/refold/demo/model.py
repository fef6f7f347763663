"""A model that says what a script says: `python -m refold.demo.model --script FILE --log FILE`.

An OpenAI-compatible endpoint, `POST /v1/chat/completions`, streaming or not. The script is a JSON list of rules,
{role, matches, say, calls}. The first one speaks whose `role` is that of the last message and whose `matches`, a
regular expression, is found in it. `say` is a text, `calls` a list of {name, arguments}; `$name` in their strings
stands for the expression's group of that name. Tokens are words. A line of the log: {n, body, reply, time}, the time
in microseconds since 1970.
"""

from __future__ import annotations

import json
import re
from dataclasses import asdict
from pathlib import Path
from string import Template
from typing import Any

from refold.clock import Clock, SystemClock
from refold.demo import chat
from refold.demo.chat import Reply, ToolCall
from refold.demo.log import ActLog
from refold.demo.serving import arguments, serve
from refold.demo.wire import Answer, Request

__all__ = ["ScriptedModel"]


class ScriptedModel:
    """Equal conversations get equal replies, whatever was asked before."""

    def __init__(self, script: list[dict[str, Any]], log: ActLog, clock: Clock) -> None:
        self._script = [(re.compile(rule["matches"]), rule) for rule in script]
        self._log = log
        self._clock = clock

    async def answer(self, request: Request) -> Answer:
        if not chat.is_chat(request):
            return chat.error(404, "not_found", "There is POST /v1/chat/completions, and nothing else.")
        body = request.json()
        if not isinstance(body, dict) or not body.get("messages"):
            return chat.error(400, "invalid_request_error", "A request is a JSON object with messages.")
        reply = self._reply(body["messages"])
        if reply is None:
            return chat.error(400, "invalid_request_error", "No rule of the script fits the last message.")
        self._log.append({"body": body, "reply": asdict(reply), "time": self._clock.now()})
        return chat.completion(body, reply)

    def _reply(self, messages: list[dict[str, Any]]) -> Reply | None:
        last = messages[-1]
        for pattern, rule in self._script:
            found = pattern.search(last.get("content") or "") if rule["role"] == last["role"] else None
            if found is not None:
                text = _filled(rule.get("say"), found.groupdict())
                calls = tuple(
                    ToolCall(call["name"], json.dumps(_filled(call["arguments"], found.groupdict())))
                    for call in rule.get("calls", ())
                )
                said = [text or "", *(call.arguments for call in calls)]
                return Reply(text, calls, _words(each.get("content") or "" for each in messages), _words(said))
        return None


def _words(texts: Any) -> int:
    return sum(len(text.split()) for text in texts)


def _filled(value: Any, groups: dict[str, str]) -> Any:
    if isinstance(value, str):
        return Template(value).substitute(groups)
    if isinstance(value, dict):
        return {name: _filled(each, groups) for name, each in value.items()}
    if isinstance(value, list):
        return [_filled(each, groups) for each in value]
    return value


def main() -> None:
    parser = arguments("refold.demo.model", "A scripted model on loopback.")
    parser.add_argument("--script", type=Path, required=True, help="the rules, as JSON")
    options = parser.parse_args()
    script = json.loads(options.script.read_text("utf-8"))
    serve(options, lambda log: ScriptedModel(script, log, SystemClock()))


if __name__ == "__main__":
    main()
