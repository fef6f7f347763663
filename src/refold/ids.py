"""Identity, injected: ULIDs with a prefix that names the kind of thing, and the randomness behind salts.

A ULID is 48 bits of milliseconds and 80 random bits in Crockford's base 32 (https://github.com/ulid/spec). Within a
millisecond the random part counts up, so that ids made by one process sort in the order they were made.
"""

from __future__ import annotations

import os
from typing import Protocol

from refold.clock import Clock, SystemClock

_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_PAIRS = [a + b for a in _ALPHABET for b in _ALPHABET]
_VALUES = {character: number for number, character in enumerate(_ALPHABET)}
_RANDOM_BITS = 80
_RANDOM_LIMIT = 1 << _RANDOM_BITS


class Ids(Protocol):
    """The source of new ids and of random bytes."""

    def new(self, prefix: str) -> str:
        """A new id, as `prefix_ULID`."""
        ...

    def random(self, size: int) -> bytes:
        """Random bytes for salts and secrets."""
        ...


class SystemIds:
    """Ids from the machine's clock and its random source."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._pid = os.getpid()
        self._milliseconds = -1
        self._tail = 0
        self._beginning_of = (-1, -1)
        self._beginning = ""
        self._pool = b""
        self._used = 0

    def new(self, prefix: str) -> str:
        milliseconds = self._clock.now() // 1000
        if self._pid != os.getpid():
            self._forget()
        if milliseconds > self._milliseconds or self._tail + 1 >= _RANDOM_LIMIT:
            self._milliseconds = max(milliseconds, self._milliseconds + 1)
            self._tail = int.from_bytes(self.random(10), "big") >> 1
        else:
            self._tail += 1
        # Counting up changes the end of the text only: its beginning is made once for a thousand times a thousand ids.
        high, low = self._tail >> 20, self._tail & 0xFFFFF
        if (self._milliseconds, high) != self._beginning_of:
            self._beginning_of = (self._milliseconds, high)
            self._beginning = encode_ulid((self._milliseconds << _RANDOM_BITS) | self._tail)[:-4]
        return f"{prefix}_{self._beginning}{_PAIRS[low >> 10]}{_PAIRS[low & 1023]}"

    def random(self, size: int) -> bytes:
        if self._pid != os.getpid():
            self._forget()
        if self._used + size > len(self._pool):
            # One system call serves many salts; getrandom for each would cost more than the hash it salts.
            self._pool = os.urandom(max(4096, size))
            self._used = 0
        start = self._used
        self._used += size
        return self._pool[start : start + size]

    def _forget(self) -> None:
        # A forked child must not repeat what its parent will hand out.
        self._pid = os.getpid()
        self._pool = b""
        self._used = 0
        self._milliseconds = -1


def encode_ulid(value: int) -> str:
    """The 26 characters of a 128-bit number."""
    pairs = _PAIRS
    return "".join([pairs[(value >> shift) & 1023] for shift in range(120, -1, -10)])


def decode_ulid(text: str) -> bytes:
    """The 16 bytes of 26 characters. Raises ValueError for anything else."""
    if len(text) != 26 or text[0] > "7":
        raise ValueError(f"{text!r} is not a ULID")
    value = 0
    try:
        for character in text:
            value = (value << 5) | _VALUES[character]
    except KeyError:
        raise ValueError(f"{text!r} is not a ULID") from None
    return value.to_bytes(16, "big")
