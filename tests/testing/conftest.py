"""Tests that are coroutines run on an event loop of their own."""

from __future__ import annotations

from tests.runtime.conftest import pytest_pyfunc_call

__all__ = ["pytest_pyfunc_call"]
