from tests.world.fixtures import session_world, world

__all__ = ["session_world", "world"]
