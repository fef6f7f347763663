"""Case 37: cached tokens were counted twice, because one provider's input count includes them and another's does not.
Here usage is normalised once, and the provider's own figures are kept beside it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import refold
from tests.interop.record.servers import Reply, as_events, as_json, asking, chat, one_after_the_other, piece, serving
from tests.interop.record.sides import SIDES
from tests.interop.record.support import FILE, contents, cost_rows

CHAT = {"prompt_tokens": 1000, "completion_tokens": 20, "prompt_tokens_details": {"cached_tokens": 900}}
RESPONSES = {"input_tokens": 1000, "output_tokens": 20, "input_tokens_details": {"cached_tokens": 900}}
MESSAGES = {"input_tokens": 60, "output_tokens": 20, "cache_read_input_tokens": 900, "cache_creation_input_tokens": 40}
AT_FIRST = {**MESSAGES, "output_tokens": 1}


def message(usage: dict[str, Any]) -> dict[str, Any]:
    return {"id": "msg_1", "type": "message", "role": "assistant", "content": [], "usage": usage}


@pytest.mark.parametrize(
    ("reply", "raw"),
    [
        (as_json(chat("yes", CHAT)), CHAT),
        (as_events(piece("yes"), piece(finish="stop"), {**piece(), "choices": [], "usage": CHAT}, "[DONE]"), CHAT),
        (as_json({"object": "response", "status": "completed", "output": [], "usage": RESPONSES}), RESPONSES),
        (
            as_events({"type": "response.completed", "response": {"status": "completed", "usage": RESPONSES}}),
            RESPONSES,
        ),
        (as_json({**message(MESSAGES), "stop_reason": "end_turn"}), MESSAGES),
        (
            # Said twice, the second time higher: not a sum.
            as_events(
                {"type": "message_start", "message": message(AT_FIRST)},
                {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 20}},
                {"type": "message_stop"},
            ),
            MESSAGES,
        ),
    ],
    ids=["chat", "chat-stream", "responses", "responses-stream", "messages", "messages-stream"],
)
def test_a_thousand_tokens_are_a_thousand_whoever_counts_them(
    reply: Reply, raw: dict[str, Any], tmp_path: Path
) -> None:
    with serving(one_after_the_other(reply)) as server, refold.record("nightly", ledger=tmp_path / FILE) as rec:
        SIDES[0].ask(rec, server.url + "/v1/chat/completions", asking("?"))
    (cost,) = cost_rows(tmp_path, rec.run_id)
    assert (cost.tokens_prompt, cost.tokens_completion, cost.tokens_cached) == (1000, 20, 900)
    assert contents(tmp_path, rec.run_id, "inference.completed")[0]["usage"] == raw
