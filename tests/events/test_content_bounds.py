"""Stored bytes that somebody made to unfold into far more than they are."""

from __future__ import annotations

import pytest

from refold.events import content
from refold.events.content import PREFIX, ContentDamaged, seal, unseal
from refold.events.values import NotRecordable

SALT = b"s" * 16
LIMIT = 100_000


@pytest.fixture(autouse=True)
def small_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(content, "MAX_CONTENT", LIMIT)


def packed(payload: bytes) -> bytes:
    """A frame that unfolds into the payload, as somebody makes it who does not use `seal`."""
    return content.zstd.compress(payload)


@pytest.mark.parametrize("size", [0, 1, 511, 512, LIMIT])
def test_what_is_sealed_up_to_the_limit_comes_back(size: int) -> None:
    assert unseal(seal(b"x" * size, SALT)[0]) == b"x" * size


def test_what_could_not_be_opened_again_is_not_sealed() -> None:
    with pytest.raises(NotRecordable):
        seal(b"x" * (LIMIT + 1), SALT)


@pytest.mark.parametrize(
    "frames",
    [
        pytest.param(packed(b"x" * (LIMIT + 1)), id="one too large"),
        pytest.param(packed(b"x" * LIMIT) * 50, id="many frames"),
        pytest.param(packed(b"x" * LIMIT)[:-1], id="cut"),
        pytest.param(packed(b"x") + b"rest", id="something behind"),
    ],
)
def test_bytes_that_unfold_into_more_are_refused(frames: bytes) -> None:
    stored = seal(b"", SALT)[0][: PREFIX - 1] + b"\x01" + frames
    with pytest.raises(ContentDamaged):
        unseal(stored)
