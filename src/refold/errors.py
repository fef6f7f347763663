"""One tree of errors. Each class has a code, an exit status, a way out, and a page (docs/errors.md#code).

The message is one sentence with the facts of the case; `facts` holds the same facts for programs; `remedy` says
what to do. The pages are generated from the docstrings and remedies here by tools/generate_docs.py.
"""

from __future__ import annotations

from typing import Any, ClassVar


class RefoldError(Exception):
    """Base of all errors that refold raises on purpose.

    `code` is stable and meant for programs; `exit_status` is what the command line returns (spec of the CLI: 1 our
    fault, 2 bad input, 6 refused or conflict, 7 proof broken, 8 import incomplete).
    """

    code: ClassVar[str] = "internal"
    exit_status: ClassVar[int] = 1
    remedy: str = "Report it with the command and the facts above."

    def __init__(self, message: str, *, remedy: str | None = None, **facts: Any) -> None:
        super().__init__(message)
        self.message = message
        self.facts = facts
        if remedy is not None:
            self.remedy = remedy

    @property
    def page(self) -> str:
        """Where this error is explained, relative to the documentation root."""
        return f"errors.md#{self.code}"

    def as_dict(self) -> dict[str, Any]:
        """The error as programs get it: {code, message, facts, remedy, page}."""
        return {
            "code": self.code,
            "message": self.message,
            "facts": self.facts,
            "remedy": self.remedy,
            "page": self.page,
        }
