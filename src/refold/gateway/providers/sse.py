"""Server-sent events out of bytes that may be cut anywhere (https://html.spec.whatwg.org, "Server-sent events")."""

from __future__ import annotations

from collections.abc import Iterator

_BOM = b"\xef\xbb\xbf"


class EventStream:
    """Takes chunks and gives the data of each event that is whole.

    Lines end with LF, CR or CRLF; comments and fields other than `data` are passed over; several data lines of an event
    are joined by a line feed. An event that is not followed by an empty line is none.
    """

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._data: list[str] = []
        self._after_cr = False
        self._first = True

    def feed(self, chunk: bytes) -> Iterator[str]:
        """The events that this chunk makes whole. Raises UnicodeDecodeError for a line that is not UTF-8."""
        if self._after_cr and chunk:
            # The line ended with the CR already; an LF behind it belongs to the same end.
            self._after_cr = False
            if chunk.startswith(b"\n"):
                chunk = chunk[1:]
        if chunk.endswith(b"\r"):
            self._after_cr = True
        *lines, rest = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        for line in lines:
            self._pieces.append(line)
            whole = b"".join(self._pieces)
            self._pieces.clear()
            event = self._line(whole)
            if event is not None:
                yield event
        if rest:
            self._pieces.append(rest)

    def _line(self, line: bytes) -> str | None:
        if self._first:
            self._first = False
            line = line.removeprefix(_BOM)
        if not line:
            data, self._data = self._data, []
            return "\n".join(data) if data else None
        name, _, value = line.partition(b":")
        if name == b"data":
            self._data.append(value.removeprefix(b" ").decode("utf-8"))
        return None
