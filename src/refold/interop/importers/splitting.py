"""Takes a file of JSON apart into the elements of its arrays, one at a time, however large the file is.

A file of chat runs is one array, or one object, or one of either a line. So every value at the top is taken as it is,
unless it is an array; then its elements are. Only one of them is in memory at a time.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from refold.interop.importers.reading import LONGEST_LINE, Malformed

_CHUNK = 1 << 20
# Whole strings are stepped over at once; a quotation mark that is found alone begins a string that is not all here yet.
_TOKEN = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|["{}\[\],]', re.DOTALL)
_BLANK = b" \t\r\n"
_BLANKS = re.compile(rb"[ \t\r\n]*")


class Element(NamedTuple):
    """One value: the line where it begins, the array that it stands in (0: in none), its bytes, and the offset of its
    end.
    """

    line: int
    array: int
    data: bytes
    end: int


def elements(path: Path) -> Iterator[Element]:
    """The elements of a file's arrays, and its other values, in order. Raises Malformed where the file is cut or
    broken.
    """
    splitter = _Splitter()
    size = _CHUNK
    with path.open("rb") as file:
        while chunk := file.read(size):
            before = len(splitter.buffer)
            yield from splitter.feed(chunk)
            # A string that is not all here is scanned again from its beginning: reading ever more keeps that linear.
            size = min(2 * size, 64 * _CHUNK) if len(splitter.buffer) > before else _CHUNK
    splitter.finish()


class _Splitter:
    """What is known of a file of which only a piece is here: the bytes of the value under way, and how deep it is."""

    def __init__(self) -> None:
        self.buffer = bytearray()
        self._scanned = 0
        self._depth = 0
        self._in_array = False
        self._after_comma = False
        self._whole = False
        """Whether the array's last value is complete, so that nothing but a comma or the end may follow."""
        self._arrays = 0
        self._line = 1
        self._offset = 0

    def feed(self, chunk: bytes) -> Iterator[Element]:
        self.buffer += chunk
        if self._offset == 0 and self.buffer.startswith(b"\xef\xbb\xbf"):
            self._take(3)
        while found := _TOKEN.search(self.buffer, self._scanned):
            token, end = found[0], found.end()
            if token == b'"':
                self._scanned = found.start()
                break
            self._scanned = end
            if token in b"{[":
                if self._depth or self._in_array or token == b"{":
                    self._depth += 1
                else:
                    self._enter(end)
            elif self._depth:
                self._depth -= token in b"}]"
                if not self._depth:
                    # At its own end and not at the comma behind it: a file cut right there still has all of it.
                    self._whole = self._in_array
                    yield self._element(end, end)
            elif token in b",]" and self._in_array:
                if self._whole:
                    self._only_blanks(end - 1)
                    self._take(end)
                elif token == b"," or self._after_comma or self.buffer[: end - 1].strip(_BLANK):
                    yield self._element(end - 1, end)
                else:
                    self._take(end)
                self._whole, self._after_comma, self._in_array = False, token == b",", token == b","
            elif token in b",}]":
                raise self._broken(f"{token.decode()} stands where a value should")
        else:
            self._scanned = len(self.buffer)
        if len(self.buffer) > LONGEST_LINE:
            raise self._broken(f"the value is longer than {LONGEST_LINE} bytes")

    def finish(self) -> None:
        """Raises Malformed when something was begun and not ended."""
        if self._in_array or self._depth or self.buffer.strip(_BLANK):
            raise self._broken("the file ends before it does")

    def _only_blanks(self, end: int) -> None:
        if self.buffer[:end].strip(_BLANK):
            raise self._broken("something stands between values")

    def _enter(self, end: int) -> None:
        self._only_blanks(end - 1)
        self._take(end)
        self._arrays += 1
        self._in_array, self._after_comma = True, False

    def _element(self, end: int, taken: int) -> Element:
        blanks = self._skip_blanks()
        line, data = self._line, bytes(self.buffer[: end - blanks])
        self._take(taken - blanks)
        return Element(line, self._arrays if self._in_array else 0, data.rstrip(_BLANK), self._offset)

    def _skip_blanks(self) -> int:
        found = _BLANKS.match(self.buffer)
        blanks = found.end() if found else 0
        self._take(blanks)
        return blanks

    def _take(self, end: int) -> None:
        self._line += self.buffer.count(b"\n", 0, end)
        self._offset += end
        del self.buffer[:end]
        self._scanned = max(0, self._scanned - end)

    def _broken(self, why: str) -> Malformed:
        self._skip_blanks()
        return Malformed(self._line, f"What begins at line {self._line} cannot be read: {why}.")
