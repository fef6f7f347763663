"""The text that people read of a message, for summaries; and whether a result is one text and nothing else."""

from __future__ import annotations

from typing import Any

_ENOUGH = 8192
"""Characters of a message's text that summaries can use; see the window in `ledger.drafts`."""


def message_text(message: dict[str, Any]) -> str:
    """What a message says, from its beginning: its texts, then the names of the tools that it calls."""
    content = message.get("content")
    if isinstance(content, str):
        return content
    texts, length = [], 0
    for block in content if isinstance(content, list) else ():
        text = _block_text(block)
        if text:
            texts.append(text)
            length += len(text)
            if length > _ENOUGH:
                break
    return "\n".join(texts)


def only_text(content: Any) -> str | None:
    """The text of a content that is one text and nothing else; None for any other form."""
    if isinstance(content, str):
        return content
    if isinstance(content, list) and len(content) == 1 and isinstance(content[0], dict):
        block = content[0]
        if block.get("type") == "text" and isinstance(block.get("text"), str) and len(block) == 2:
            return str(block["text"])
    return None


def _block_text(block: Any) -> str:
    if not isinstance(block, dict):
        return ""
    kind = block.get("type")
    if kind == "toolCall":
        return f"→ {block.get('name')}"
    text = block.get("text") if kind == "text" else None
    return text if isinstance(text, str) else f"[{kind}]" if kind != "thinking" else ""
