"""Reading sources piece by piece: lines of JSONL, JSON that others write, and times."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from refold.events.values import NotRecordable
from refold.interop.importers.report import Problem

LONGEST_LINE = 256 * 1024 * 1024
"""Bytes of the longest line, or chat run, that is read."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_FAST = msgspec.json.Decoder()
_EXACT = msgspec.json.Encoder(decimal_format="number")
_FAST_EXACT = msgspec.json.Decoder(float_hook=Decimal)


class Malformed(Exception):
    """A piece of a source that is not what its format says. Never leaves the importers: it becomes a `Problem`."""

    def __init__(self, line: int, message: str) -> None:
        super().__init__(message)
        self.line = line
        self.message = message

    def as_problem(self, run: int | None = None) -> Problem:
        return Problem(self.line, self.message, run)


class Line(NamedTuple):
    """A line that is not blank: its number in the file, its place among such lines (both from 1), its bytes, and the
    offset of its end."""

    number: int
    record: int
    data: bytes
    end: int


def lines(path: Path) -> Iterator[Line]:
    """The lines of a file that are not blank, one at a time. Raises Malformed for one too long to be read."""
    number = record = end = 0
    with path.open("rb", buffering=1 << 20) as file:
        while data := file.readline(LONGEST_LINE + 1):
            number += 1
            end += len(data)
            if len(data) > LONGEST_LINE:
                raise Malformed(number, f"Line {number} is longer than {LONGEST_LINE} bytes.")
            if number == 1:
                data = data.removeprefix(b"\xef\xbb\xbf")
            data = data.strip(b" \t\r\n")
            if data:
                record += 1
                yield Line(number, record, data, end)


@contextmanager
def unrecordable(line: int) -> Iterator[None]:
    """Makes a value that the ledger cannot keep (nested too deep) a fault of the line that it stands in."""
    try:
        yield
    except NotRecordable as error:
        raise Malformed(line, f"Line {line} cannot be recorded: {error.message}") from error


def parse(data: bytes, *, line: int) -> Any:
    """A JSON text as Python values. Raises Malformed, naming the line.

    The fast parser refuses what Python's own takes and real files hold: NaN, lone surrogates, numbers of any size. So
    what it refuses is tried again.
    """
    return _parse(data, line, _FAST, float)


def parse_exact(data: bytes, *, line: int) -> Any:
    """As `parse`, with a Decimal of the text's own digits in place of every float."""
    return _parse(data, line, _FAST_EXACT, Decimal)


def dump_exact(value: Any) -> str:
    """The JSON text of what `parse_exact` read, with the same digits; `null` where it cannot be one."""
    try:
        return _EXACT.encode(value).decode()
    except (msgspec.MsgspecError, UnicodeError, OverflowError, TypeError):
        return "null"


def _parse(data: bytes, line: int, fast: msgspec.json.Decoder[Any], number: Callable[[str], Any]) -> Any:
    try:
        return fast.decode(data)
    except (msgspec.MsgspecError, RecursionError, UnicodeError):
        pass
    try:
        return json.loads(data, parse_float=number, parse_int=_integer)
    except RecursionError:
        raise Malformed(line, f"Line {line} is nested too deep to be read.") from None
    except ValueError as error:
        reason = getattr(error, "msg", None) or getattr(error, "reason", None) or str(error)
        where = f" at byte {len(data)}, where it ends" if _is_cut(error, data) else ""
        raise Malformed(line, f"Line {line} is not valid JSON: {reason}{where}.") from None


def _integer(text: str) -> int:
    # int() refuses more than 4,300 digits, in time that grows with their square; a number that long is no fact of a
    # session.
    if len(text) > 4300:
        raise ValueError(f"an integer of {len(text)} digits")
    return int(text)


def _is_cut(error: ValueError, data: bytes) -> bool:
    return isinstance(error, json.JSONDecodeError) and not data.endswith((b"}", b"]"))


def iso_time(value: Any) -> int | None:
    """Microseconds UTC of an ISO 8601 time; without an offset it is taken as UTC. None for anything else."""
    if not isinstance(value, str):
        return None
    try:
        moment = datetime.fromisoformat(value)
        return _micros((moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - _EPOCH)
    except (ValueError, OverflowError):
        return None


def _micros(span: timedelta) -> int:
    return span // _MICROSECOND


def millis_time(value: Any) -> int | None:
    """Microseconds UTC of milliseconds since 1970. None for anything else, and for years beyond 9999."""
    return value * 1000 if type(value) is int and 0 <= value < 253_402_300_800_000 else None
