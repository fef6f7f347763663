"""For tests: of workflows (`run`), of code that must survive its process, of adapters.

`await refold.testing.run(app, workflow, ...)` runs a workflow with scripted answers and a real journal.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from refold.testing.running import NotReplayable, NotScripted, Ran, run

__all__ = ["NotReplayable", "NotScripted", "Ran", "run"]


if not TYPE_CHECKING:  # Whoever damages files needs no runtime.

    def __getattr__(name: str) -> object:
        if name not in __all__:
            raise AttributeError(f"module 'refold.testing' has no attribute {name!r}")
        from refold.testing import running

        return getattr(running, name)
