"""What runs inside a step or tool is not the workflow's own code: a tool called there is refused."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import Context

from refold.gateway.tools import gateway_call, refuse_nested

STEP = Context()
"""The context, to be copied, of a step that runs in one of its own."""
STEP.run(gateway_call.set, refuse_nested)


@contextmanager
def inside_step(name: str) -> Iterator[None]:
    """For the code of a step."""
    token = gateway_call.set(refuse_nested)
    try:
        yield
    finally:
        gateway_call.reset(token)
