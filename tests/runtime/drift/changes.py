"""The changes: what is replaced in `shop.py`, and what must come of it when its killed run is resumed."""

from __future__ import annotations

from typing import NamedTuple


class Drift(NamedTuple):
    """The report that a change must lead to. `site` is a part of the site, `says` of the first difference; `at` is the
    marked line of code that asked.
    """

    kind: str
    type: str
    site: str | None
    says: str
    at: str | None = None


class Change(NamedTuple):
    """`edits` are pairs of old and new text. Without a drift the run goes on, and `result` replaces parts of what the
    unchanged code returns.
    """

    name: str
    edits: list[tuple[str, str]]
    drift: Drift | None = None
