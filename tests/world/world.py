"""A payment service that honours keys, one that forgets them, and a scripted model."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from refold.demo.log import read_log
from refold.demo.processes import ServiceProcess, running

SCRIPT: list[dict[str, Any]] = [
    {
        "role": "user",
        "matches": r"[Cc]harge order (?P<order>\w+): (?P<amount>[\d.]+) (?P<currency>[A-Z]{3})",
        "calls": [
            {"name": "charge", "arguments": {"order": "$order", "amount": "$amount", "currency": "$currency"}},
        ],
    },
    {"role": "user", "matches": r"(?s)(?P<said>.*)", "say": "You said: $said"},
    {"role": "tool", "matches": r"(?s)(?P<result>.*)", "say": "The tool said: $result"},
]
"""A user's `charge order 7: 42.00 EUR` becomes a call of `charge`; anything else is said back."""


@dataclass(frozen=True, slots=True)
class Account:
    """Books of their own at a payment service; small enough to be handed to another process."""

    name: str
    url: str
    log: Path

    def charges(self) -> list[dict[str, Any]]:
        """What was charged, by the service's own log: [{n, account, key, body, time}]."""
        return [line for line in read_log(self.log) if line["account"] == self.name]


class World:
    """What a test finds outside. All services take orders for faults; those that are left end with the test."""

    def __init__(self, payments: ServiceProcess, forgetful: ServiceProcess, model: ServiceProcess) -> None:
        self.payments = payments
        self.forgetful = forgetful
        self.model = model
        self._numbers = itertools.count(1)

    def account(self, *, forgetful: bool = False) -> Account:
        """New books. At the forgetful service a request that is sent twice is charged twice, and seen."""
        service = self.forgetful if forgetful else self.payments
        name = f"account-{next(self._numbers)}"
        return Account(name, f"{service.url}/accounts/{name}/charges", service.log)

    def settle(self) -> None:
        """Nothing ordered, nothing held."""
        for service in (self.payments, self.forgetful, self.model):
            service.faults.forget()
            service.faults.release()


@contextmanager
def opened(folder: Path) -> Iterator[World]:
    """A world whose services log in this folder."""
    script = folder / "script.json"
    script.write_text(json.dumps(SCRIPT), "utf-8")
    with ExitStack() as stack:

        def run(name: str, module: str, *words: str) -> ServiceProcess:
            return stack.enter_context(running(module, folder / f"{name}.log", words, control=True))

        payments = run("payments", "refold.demo.payments")
        forgetful = run("forgetful", "refold.demo.payments", "--forgetful")
        model = run("model", "refold.demo.model", "--script", str(script))
        yield World(payments, forgetful, model)
