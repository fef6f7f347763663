"""Small conversions that several commands share: times, sums and doubts in words, page tokens."""

from __future__ import annotations

import base64
import binascii

from refold.cli.failures import BadToken


def clock(moment: str | None) -> str:
    """An ISO time as people read it: UTC, to the second; `-` when there is none."""
    return "-" if moment is None else moment[:19].replace("T", " ")


def duration(milliseconds: float | None) -> str:
    """A duration for people."""
    if milliseconds is None:
        return "-"
    if milliseconds < 1000:
        return f"{milliseconds:.0f} ms"
    seconds = milliseconds / 1000
    if seconds < 120:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02} min" if hours else f"{minutes} min {rest:02} s"


def counted(count: int, what: str) -> str:
    """A number and what it counts."""
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def money(charges: dict[str, str], unpriced: int) -> str:
    """Charges for people: every currency by itself, and what has no known price said as such."""
    parts = [f"{amount} {currency}" for currency, amount in charges.items()]
    if unpriced:
        parts.append(f"{unpriced} unpriced")
    return ", ".join(parts) or "-"


def doubt_sentence(count: int) -> str:
    """What a doubt means, said so that nobody takes it for a failure or a success."""
    if count == 1:
        return "1 call was sent and has no recorded answer: we do not know whether it happened."
    return f"{count} calls were sent and have no recorded answer: we do not know whether they happened."


def page_token(position: str) -> str:
    """A position in a list as the opaque token of the next page."""
    return base64.urlsafe_b64encode(position.encode()).decode().rstrip("=")


def page_position(token: str, prefix: str) -> str:
    """The position in a token that `page_token` made. Raises BadToken."""
    try:
        position = base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)).decode("ascii")
    except (binascii.Error, ValueError):
        position = ""
    if not position.startswith(prefix):
        raise BadToken(f"{token!r} is not a page token of this command.", token=token)
    return position
