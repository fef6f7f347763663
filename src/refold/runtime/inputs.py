"""Values that come as JSON from outside, as the code that gets them has annotated them."""

from __future__ import annotations

from typing import Any

import msgspec

from refold.errors import RefoldError
from refold.gateway.parameters import read_pydantic, uses_pydantic
from refold.runtime.workflow import Workflow


class BadInput(RefoldError):
    """A value is no JSON, or does not fit the annotation of the code that gets it. Facts: `reason`, with the path."""

    code = "bad_input"
    exit_status = 2
    remedy = "Give a JSON value of the shape that the code's annotation names."


def read_input(workflow: Workflow, data: bytes | None) -> Any:
    """A workflow's input from JSON; None where nothing is given. Raises BadInput."""
    if not workflow.takes_input:
        if data is not None:
            raise BadInput(f"Workflow {workflow.name} takes no input.", workflow=workflow.name)
        return None
    return read_json(b"null" if data is None else data, workflow.input_hint, f"The input of {workflow.name}")


def read_json(data: bytes, hint: Any, what: str) -> Any:
    """A JSON text as a value of an annotation; `what` names it in the error. Raises BadInput."""
    try:
        if uses_pydantic((hint,)):
            return read_pydantic(hint, data)
        return msgspec.json.decode(data, type=hint)
    except TypeError as error:  # An annotation that JSON has no form for: a class of somebody's own.
        raise BadInput(f"{what} cannot be read from JSON: {error}.", reason=str(error)) from None
    except (msgspec.MsgspecError, UnicodeError, ValueError, RecursionError) as error:
        raise BadInput(f"{what} does not fit: {error}.", reason=str(error)) from None
