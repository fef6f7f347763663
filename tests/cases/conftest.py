"""The command line for the cases that speak of it."""

from tests.cli.conftest import call

__all__ = ["call"]
