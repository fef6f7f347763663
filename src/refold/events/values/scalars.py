"""Values without parts: how each is written as a tag and read back.

Every writer here has one form for one value, and every reader accepts only what its writer would have
written.
"""

from __future__ import annotations

import binascii
import re
import struct
from collections.abc import Callable
from datetime import date, datetime, time, timedelta, timezone, tzinfo
from decimal import Context, Decimal
from typing import Any, Final
from uuid import UUID
from zoneinfo import ZoneInfo

from msgspec import UNSET, UnsetType

from refold.events.values.tags import KEY, SAFE_INTEGER, damaged, dump_json

_DECIMAL_BITS: Final = 4096
# `str` of a Decimal depends on the caller's context.
_DECIMALS: Final = Context(capitals=1)
_SURROGATE: Final = re.compile("([\ud800-\udfff])")
_OFFSET: Final = re.compile(r"([+-])(\d\d):(\d\d)(?::(\d\d)(?:\.(\d{6}))?)?\Z", re.ASCII)
# Keys go to a file look-up and, through the tzdata package, to an import below its own name: letters only.
_ZONE_KEY: Final = re.compile(r"[A-Za-z0-9_+-]+(/[A-Za-z0-9_+-]+)*", re.ASCII)


class Refused(Exception):
    """Raised while writing; the path is added on the way up and the whole becomes NotRecordable."""

    def __init__(self, reason: str, kind: type) -> None:
        super().__init__(reason)
        self.reason = reason
        self.kind = kind
        self.path: list[str] = []
        self.holders: list[int] = []


def write_int(value: int) -> Any:
    if -SAFE_INTEGER <= value <= SAFE_INTEGER:
        return value
    # Decimal digits cost quadratic time, and CPython refuses more than 4,300 of them.
    if value.bit_length() <= _DECIMAL_BITS:
        return {KEY: ["int", str(value)]}
    return {KEY: ["int", hex(value)]}


def _read_int(text: str) -> int:
    if text.startswith(("0x", "-0x")):
        return int(text, 16)
    if len(text) > _DECIMAL_BITS:
        raise ValueError("too many decimal digits")
    return int(text)


def write_float(value: float) -> Any:
    if value != value:
        return {KEY: ["float", "nan"]}
    if value in (float("inf"), float("-inf")):
        return {KEY: ["float", "inf" if value > 0 else "-inf"]}
    return value


def canonical_float(value: float) -> dict[str, Any]:
    """What stands for a finite float in the canonical form: its IEEE 754 bits, so nothing is formatted."""
    return {KEY: ["float", struct.pack(">d", value).hex()]}


def _read_float(text: str) -> float:
    if text in ("nan", "inf", "-inf"):
        return float(text)
    value: float = struct.unpack(">d", bytes.fromhex(text))[0]
    if canonical_float(value)[KEY][1] != text or value - value != 0.0:
        raise ValueError("not the bits of a finite float")
    return value


def write_str(value: str) -> Any:
    if value.isascii():
        return value
    try:
        value.encode()
    except UnicodeEncodeError:
        parts = _SURROGATE.split(value)
        return {KEY: ["str", *(ord(p) if n % 2 else p for n, p in enumerate(parts) if n % 2 or p)]}
    return value


def _read_str(*parts: str | int) -> str:
    return "".join([chr(part) if type(part) is int else part for part in parts])  # type: ignore[misc]


def _write_bytes(value: bytes) -> Any:
    return {KEY: ["bytes", binascii.b2a_base64(value, newline=False).decode("ascii")]}


def _read_bytes(text: str) -> bytes:
    value = binascii.a2b_base64(text, strict_mode=True)
    # Only the bits before the padding are free; comparing all again would double the cost of large values.
    if binascii.b2a_base64(value[-(len(value) % 3 or 3) :], newline=False).decode() != text[-4:]:
        raise ValueError("bits before the padding")
    return value


def _write_timedelta(value: timedelta) -> Any:
    return {KEY: ["timedelta", value.days, value.seconds, value.microseconds]}


def _read_timedelta(days: int, seconds: int, microseconds: int) -> timedelta:
    if not type(days) is type(seconds) is type(microseconds) is int:
        raise TypeError("a timedelta is three integers")
    return timedelta(days, seconds, microseconds)


def _write_moment(tag: str, value: datetime | time) -> Any:
    zone = value.tzinfo
    kind = type(value)
    more: dict[str, Any] = {"fold": 1} if value.fold else {}
    if zone is not None and type(zone) is ZoneInfo:
        more["zone"] = _zone_key(zone, kind)
    elif zone is not None:
        name = _offset_name(zone, kind)
        if name is not None:
            more["name"] = write_str(name)
    text = (value.replace(tzinfo=None) if "zone" in more else value).isoformat()
    written = {KEY: [tag, text, more] if more else [tag, text]}
    if more and (again := READERS[tag](*written[KEY][1:])) != value:
        # A zone made without the cache, or from a changed database, is another zone to `==`.
        raise Refused(f"it would come back as {again}, which is not equal", kind)
    return written


def _zone_key(zone: ZoneInfo, kind: type) -> str:
    key: str | None = zone.key
    if key is None or not _ZONE_KEY.fullmatch(key):
        raise Refused("its time zone has no key by which it could be found again", kind)
    try:
        ZoneInfo(key)
    except (ValueError, KeyError, OSError):
        raise Refused("its time zone is not in this machine's database", kind) from None
    return key


def _offset_name(zone: tzinfo, kind: type) -> str | None:
    """The name that a fixed offset was given; None where it has only the one derived from the offset."""
    if type(zone) is not timezone:
        found = type(zone).__qualname__
        raise Refused(f"its tzinfo is a {found}, no fixed offset and no ZoneInfo", kind)
    arguments = zone.__getinitargs__()  # type: ignore[attr-defined]
    return arguments[1] if len(arguments) > 1 else None


def _apply_zone(value: Any, more: dict[str, Any]) -> Any:
    if not set(more) <= {"zone", "name", "fold"}:
        raise ValueError("unknown facts beside a moment")
    if "zone" in more:
        if not _ZONE_KEY.fullmatch(more["zone"]):
            raise ValueError("not the key of a time zone")
        value = value.replace(tzinfo=ZoneInfo(more["zone"]))
    elif "name" in more:
        name = more["name"]
        value = value.replace(tzinfo=timezone(value.utcoffset(), name if type(name) is str else read_scalar(name[KEY])))
    return value.replace(fold=more.get("fold", 0))


def _read_datetime(text: str, more: dict[str, Any] | None = None) -> datetime:
    plain, zone = _split_offset(text)
    value = datetime.fromisoformat(plain).replace(tzinfo=zone)
    result: datetime = _apply_zone(value, more) if more else value
    return result


def _read_time(text: str, more: dict[str, Any] | None = None) -> time:
    plain, zone = _split_offset(text)
    value = time.fromisoformat(plain).replace(tzinfo=zone)
    result: time = _apply_zone(value, more) if more else value
    return result


def _split_offset(text: str) -> tuple[str, timezone | None]:
    # Not left to `fromisoformat`, which takes an offset of less than a second for UTC.
    match = _OFFSET.search(text)
    if match is None:
        return text, None
    sign, hours, minutes, seconds, micros = match.groups()
    offset = timedelta(0, int(seconds or 0), int(micros or 0), 0, int(minutes), int(hours))
    return text[: match.start()], timezone(-offset if sign == "-" else offset)


WRITERS: Final[dict[type, Callable[[Any], Any]]] = {
    int: write_int,
    float: write_float,
    str: write_str,
    bytes: _write_bytes,
    datetime: lambda value: _write_moment("datetime", value),
    date: lambda value: {KEY: ["date", value.isoformat()]},
    time: lambda value: _write_moment("time", value),
    timedelta: _write_timedelta,
    Decimal: lambda value: {KEY: ["decimal", _DECIMALS.to_sci_string(value)]},
    UUID: lambda value: {KEY: ["uuid", str(value)]},
    UnsetType: lambda value: {KEY: ["unset"]},
}

READERS: Final[dict[str, Callable[..., Any]]] = {
    "int": _read_int,
    "float": _read_float,
    "str": _read_str,
    "bytes": _read_bytes,
    "datetime": _read_datetime,
    "date": date.fromisoformat,
    "time": _read_time,
    "timedelta": _read_timedelta,
    "decimal": Decimal,
    "uuid": UUID,
    "unset": lambda: UNSET,
}


def read_scalar(body: list[Any]) -> Any:
    """The value of a scalar's tag. Raises ValueDamaged unless its writer would have written exactly this."""
    tag = body[0]
    try:
        value = READERS[tag](*body[1:])
        # The readers of bytes and of floats (finite: in the canonical form only) compare themselves.
        exact = type(value) in (bytes, float) or dump_json(WRITERS[type(value)](value)) == dump_json({KEY: body})
    except (ValueError, TypeError, KeyError, AttributeError, ArithmeticError, OSError, Refused) as error:
        raise damaged(f"what the tag {tag} holds is not one ({type(error).__name__})", tag=tag) from error
    if not exact:
        raise damaged(f"what the tag {tag} holds is not the form in which it is written", tag=tag)
    return value
