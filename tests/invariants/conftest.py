"""The command line for the invariants that speak of it."""

from tests.cli.conftest import call

__all__ = ["call"]
