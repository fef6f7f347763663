"""The world as fixtures: one for the session, in order again after each test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.world.world import World, opened

__all__ = ["session_world", "world"]


@pytest.fixture(scope="session")
def session_world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with opened(tmp_path_factory.mktemp("world")) as world:
        yield world


@pytest.fixture
def world(session_world: World) -> Iterator[World]:
    yield session_world
    session_world.settle()
