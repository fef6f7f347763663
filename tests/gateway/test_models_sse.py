"""Server-sent events, cut anywhere."""

from __future__ import annotations

from itertools import product

import pytest

from refold.gateway.providers.sse import EventStream

BODY = (
    b"\xef\xbb\xbfdata: first\n\n: a comment\n\n"
    b'data: {"text": "gr\xc3\xbc\xc3\x9fe \xf0\x9f\x98\x80"}\r\n\r\n'
    b"event: message\rdata:no space\rid: 7\r\r"
    b"data: first line\ndata: second line\r\ndata\n\n"
    b"retry: 10\n\n"
    b"\n\r\n\r"
    b"data:  two spaces\nunknown: field\n\n"
    b"data: [DONE]\n\n"
    b"data: never ended\n"
)
EVENTS = [
    "first",
    '{"text": "grüße 😀"}',
    "no space",
    "first line\nsecond line\n",
    " two spaces",
    "[DONE]",
]


def fed(*chunks: bytes) -> list[str]:
    stream = EventStream()
    return [data for chunk in chunks for data in stream.feed(chunk)]


def test_a_stream_is_the_same_wherever_it_is_cut() -> None:
    assert fed(BODY) == EVENTS
    assert fed(*(bytes([byte]) for byte in BODY)) == EVENTS
    for first, second in product(range(len(BODY) + 1), repeat=2):
        if first <= second:
            assert fed(BODY[:first], BODY[first:second], BODY[second:]) == EVENTS


@pytest.mark.parametrize("ending", ["\n", "\r", "\r\n"])
def test_lines_end_in_three_ways(ending: str) -> None:
    body = f"data: a{ending}{ending}data: b{ending}data: c{ending}{ending}".encode()
    for cut in range(len(body) + 1):
        assert fed(body[:cut], body[cut:]) == ["a", "b\nc"]


def test_bytes_that_are_no_text_are_refused() -> None:
    with pytest.raises(UnicodeDecodeError):
        fed(b"data: \xff\n\n")
