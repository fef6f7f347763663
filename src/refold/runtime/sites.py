"""Which sites of a segment the code is done with, and at which site an event happened."""

from __future__ import annotations

from refold.events.envelope import Event


class Sites:
    """The sites of one segment, as far as record and code have come."""

    def __init__(self, segment: int) -> None:
        self._segment = segment
        self._settled: set[str] = set()
        self._calls: dict[str, str] = {}

    def of(self, event: Event) -> str:
        """The site that an event is about. A resolution knows its call and not its site."""
        call = getattr(event.facts, "tool_call_id", None)
        if call is None:
            return event.site
        if event.site:
            self._calls[call] = event.site
        return event.site or self._calls.get(call, "")

    def settle(self, site: str) -> None:
        """The operation there has its outcome, or the code gave it up."""
        self._settled.add(site)

    def is_past(self, event: Event) -> bool:
        """Whether the code is done with what an event is about: it gave it up, or left its segment."""
        site = self.of(event)
        segment = site.partition("/")[0]
        return site in self._settled or (segment.isdecimal() and int(segment) < self._segment)
