"""The command line, coroutines and the outside world, for the cases that speak of them."""

from tests.cli.conftest import call
from tests.runtime.conftest import pytest_pyfunc_call
from tests.world.fixtures import session_world, world

__all__ = ["call", "pytest_pyfunc_call", "session_world", "world"]
