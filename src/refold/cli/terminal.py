"""Text that agents, tools and models wrote, made safe for a terminal.

A terminal obeys what it is sent: escape sequences move the cursor, retitle the window, write to the clipboard;
bidirectional controls reorder a line so that it reads as something else. Nothing of that passes: controls are shown as
what they are.
"""

from __future__ import annotations

import re

_UNSAFE = re.compile(
    "["
    "\x00-\x1f\x7f-\x9f"  # C0 and C1 controls, ESC and CSI among them
    "\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"  # zero-width, line separators, direction
    "\U000e0000-\U000e0fff"  # tags and further invisible ones
    "\ud800-\udfff"  # lone surrogates cannot be encoded
    "]"
)
_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t", "\x1b": "\\e"}


def visible(text: str) -> str:
    """The text on one line, every control character in a form that can be read and does nothing."""
    return _UNSAFE.sub(_shown, text)


def _shown(match: re.Match[str]) -> str:
    character = match.group()
    code = ord(character)
    if character in _SHORT:
        return _SHORT[character]
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def clipped(text: str, width: int) -> str:
    """At most `width` characters of the text made visible, with a mark where something was left out."""
    shown = visible(text[: width + 1])
    return shown if len(shown) <= width else shown[: max(width - 1, 0)] + "…"
