"""What a command's exit status says. Each is returned by name, and listed once for help and documentation."""

from __future__ import annotations

ENDED = frozenset({"succeeded", "failed", "canceled", "expired"})
"""How a run stands that has ended, in its row."""

NOT_OK = 1
NOT_SUCCEEDED = 3
WAITING = 4
UNEQUAL = 5
PROOF_BROKEN = 7
INCOMPLETE = 8
INTERRUPTED = 130
"""Ctrl-C: 128 + SIGINT, as shells report it."""
PIPE_CLOSED = 141
"""Whoever read our output went away: 128 + SIGPIPE. Not 0, or `refold verify | head` could hide a broken proof."""

EXIT_STATUSES = {
    0: "done; reading commands end so whatever the run's status",
    NOT_OK: "our fault, or the system's",
    2: "bad input",
    NOT_SUCCEEDED: "the run failed, was canceled, or expired (from run and resume only)",
    WAITING: "the run waits, or is in doubt (from run and resume only)",
    UNEQUAL: "diverged, or unequal",
    6: "refused, or in conflict with what is there",
    PROOF_BROKEN: "the proof is broken",
    INCOMPLETE: "the import is incomplete",
    INTERRUPTED: "interrupted (Ctrl-C)",
    PIPE_CLOSED: "whoever read the output went away",
}
