"""An agent that is killed while a charge is on the wire, and again while a bonus is: what is known, what is not, who
decides, and what each kind of replay does with it.
"""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import threading
from contextlib import ExitStack
from importlib.resources import files
from pathlib import Path
from typing import Any

from refold.cli.output import Cell, Output
from refold.cli.statuses import UNEQUAL, WAITING
from refold.cli.walks.walk import DemoFailed, Walk
from refold.demo.faults import Fault
from refold.demo.processes import ServiceProcess, running

_APP = ("--app", "refold.demo.agent:app")
_TICKET = json.dumps({"order": "7", "amount": "42.00"})
_CHANGED = ('said = f"Settle', 'said = f"Please settle')


class SurvivalWalk(Walk):
    """Three processes - agent, payment service, model - and one ledger."""

    def __init__(self, out: Output, folder: Path) -> None:
        super().__init__(out, folder)
        self._run = ""

    def run(self) -> None:
        with ExitStack() as stack:
            script = self._folder / "script.json"
            script.write_text(files("refold.demo").joinpath("script.json").read_text("utf-8"), "utf-8")
            payments = stack.enter_context(
                running("refold.demo.payments", self._folder / "payments.log", ["--forgetful"], control=True)
            )
            model = stack.enter_context(
                running("refold.demo.model", self._folder / "model.log", ["--script", str(script)])
            )
            self.environment = {"REFOLD_DEMO_PAYMENTS": payments.url, "REFOLD_DEMO_MODEL": model.url}
            self._out.line("An agent settles an order: it charges the customer, and credits a bonus with a partner.")
            self._out.line(
                "The payment service forgets keys: whoever sends twice, charges twice. Its log is the truth."
            )
            self._killed_while_charging(payments)
            self._probe_answers(payments)
            self._person_decides(payments)
            self._same_key_again(payments)
            asked = len(model.lines())
            payments.stop()
            model.stop()
            self._replays(payments, asked)
        self._out.line()
        charges = self._booked(payments, "")
        self._check(len(charges) == 1, f"the payment service's log shows {len(charges)} charge")
        self._out.line(Cell("Done. ", "good"), "Killed twice, charged once, nothing guessed.")

    def run_with_real_model(self) -> None:
        """The same with a real model, the smallest there is: one charge, one sentence. Raises RealModelMissing."""
        with ExitStack() as stack:
            payments = stack.enter_context(
                running("refold.demo.payments", self._folder / "payments.log", ["--forgetful"], control=True)
            )
            model = stack.enter_context(running("refold.demo.real_model", self._folder / "model.log"))
            self.environment = {"REFOLD_DEMO_PAYMENTS": payments.url, "REFOLD_DEMO_MODEL": model.url}
            self._out.line("A real model of 135 million parameters charges an order and thanks the customer.")
            self._title("The agent runs, and is killed (SIGKILL) while its charge is on the wire.")
            words = ("run", "settle_simply", *_APP, "--input", _TICKET, "--key", "ticket-18")
            self._kill_on_the_wire(payments, "/charges", words)
            (self._run,) = [run["run_id"] for run in self._ask("runs")["runs"]]
            self._say(f"The service's log: {self._told(payments, '')}. The agent never heard of it.")
            self._title("The next process resumes the run: the probe asks the payment service, the model goes on.")
            done = self._show("resume", self._run, *_APP)
            self._check(done["status"] == "succeeded", "the same run went on and succeeded")
            self._check(
                self._call_of("pay")["resolution"] == "happened", "the probe found that the charge had happened"
            )
            asked = len(model.lines())
            self._say(f"The model's own log shows {asked} requests; what it said is on record.")
            payments.stop()
            model.stop()
            self._title("Both are stopped. The run is replayed without model, tool and network.")
            answer = self._show("replay", self._run, *_APP, "--mode", "inference-skipping")
            self._check(answer["result"] == "equal", "inference-skipping: equal")
            self._check(self._ask("verify", "--all")["ok"], "the chain is intact")
        charges = self._booked(payments, "")
        self._check(len(charges) == 1, f"the payment service's log shows {len(charges)} charge")
        self._out.line(Cell("Done. ", "good"), "Killed, charged once, nothing guessed.")

    # The agent's life.

    def _killed_while_charging(self, payments: ServiceProcess) -> None:
        self._title("The agent runs, and is killed (SIGKILL) while its charge is on the wire.")
        words = ("run", "settle", *_APP, "--input", _TICKET, "--key", "ticket-17")
        self._kill_on_the_wire(payments, "/charges", words)
        (self._run,) = [run["run_id"] for run in self._ask("runs")["runs"]]
        self._say(f"The service's log: {self._told(payments, '')}. The agent never heard of it.")
        call = self._call_of("charge")
        self._say(f"The ledger: charge is {call['status']}, and no answer is on record.")
        self._check(call["status"] == "dispatched", "the charge was on record before it left")

    def _probe_answers(self, payments: ServiceProcess) -> None:
        self._title("The next process resumes the run. It does not charge again: it asks the payment service.")
        self._kill_on_the_wire(payments, "/accounts/bonus/charges", ("resume", self._run, *_APP))
        charge = self._call_of("charge")
        self._check(charge["status"] == "succeeded", "the charge is settled")
        self._check(charge["resolution"] == "happened", "the probe found that it had happened")
        self._check(len(self._booked(payments, "")) == 1, "the service's log still shows one charge")
        self._say("Then the agent went on, and was killed again: while the bonus was on its way to the partner.")

    def _person_decides(self, payments: ServiceProcess) -> None:
        self._title("The partner cannot be asked. refold does not know, says so, and waits for a person.")
        answer = json.loads(self._call(("resume", self._run, *_APP, "--json"), None, WAITING))
        self._check(answer["reason"] == "in_doubt", "the run is paused, in doubt")
        (doubt,) = self._show("tool-calls", "--status", "in_doubt")["tool_calls"]
        (line,) = self._booked(payments, "bonus")
        self._say(f"Somebody reads the partner's log: {self._told(payments, 'bonus')}.")
        receipt = json.dumps(f"ch_{line['n']}")
        basis = f"line {line['n']} of the partner's log"
        self._show("resolve", doubt["id"], "--happened", receipt, "--basis", basis, "--by", "ada")
        done = self._show("resume", self._run, *_APP)
        self._check(done["status"] == "succeeded", "the same run went on and succeeded")
        self._check(len(self._booked(payments, "bonus")) == 1, "the bonus was credited once")
        shown = self._ask("show", self._run)
        charges = self._ask("runs")["runs"][0]["charges"]
        steps = [step for step in shown["steps"] if step["node"] == "points_for"]
        self._say(f"Asking the model cost {_money(charges)}; lost attempts are counted, marked as estimates.")
        self._check(len(steps) == 1, "the step before the crashes ran once")

    def _same_key_again(self, payments: ServiceProcess) -> None:
        self._title("Replay, kind 3 of nine: another run asks for the same charge, and gets the recorded answer.")
        before = len(payments.lines())
        done = self._ask("run", "settle", *_APP, "--input", _TICKET, "--key", "ticket-17-again")
        calls = self._ask("show", done["run_id"])["tool_calls"]
        replayed = [call["tool"] for call in calls if call["mode"] == "replayed"]
        self._check(replayed == ["charge", "credit_bonus"], "charge and bonus are marked as idempotent replies")
        self._check(len(payments.lines()) == before, "nothing left the process: the service's log has not grown")

    # Replays.

    def _replays(self, payments: ServiceProcess, asked: int) -> None:
        self._title("Model and payment service are stopped. Everything from here on needs the ledger only.")
        items = self._ask("evidence", self._run)["evidence_items"]
        failed = [item["key"] for item in items if item["status"] == "fail"]
        self._say(f"Kind 1, evidence: {len(items)} items; not there: {', '.join(failed)}.")
        self._say("Kind 2, catch-up: the events after seq 8:")
        for line in self._lines("events", self._run, "--after", "8")[:3]:
            self._say(f"  {line['seq']:>4}  {line['type']}")
        for mode in ("projection-only", "inference-skipping"):
            answer = self._show("replay", self._run, *(_APP if mode != "projection-only" else ()), "--mode", mode)
            self._check(answer["result"] == "equal", f"{mode}: equal")
        part = self._ask("replay", self._run, *_APP, "--mode", "partial", "--until", "8")
        self._check(
            part["source_head_before"] == part["source_head_after"], "partial, up to seq 8: the source unchanged"
        )
        self._check(self._ask("verify", "--all")["ok"], "the chain is intact")
        self._title("One line of the agent's code is changed: it asks the model politely.")
        source = files("refold.demo").joinpath("agent.py").read_text("utf-8")
        (self._folder / "agent.py").write_text(source.replace(*_CHANGED), "utf-8")
        changed = ("replay", self._run, "--app", "agent:app", "--mode", "inference-skipping")
        answer = self._show(*changed, status=UNEQUAL)
        self._check(answer["result"] == "diverged", "the replay says where the new code parts from the record")

    # What is asked for it.

    def _kill_on_the_wire(self, payments: ServiceProcess, path: str, words: tuple[str, ...]) -> None:
        payments.faults.order(Fault(held="before answering", path=path))
        line = [sys.executable, "-m", "refold.cli.main", "--ledger", str(self._folder / "demo.db"), *words]
        self._out.line(f"   $ refold {shlex.join(words)}")
        agent = subprocess.Popen(
            line,
            env={**os.environ, **self.environment},
            cwd=self._folder,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        held = threading.Thread(target=payments.faults.wait_until_held, daemon=True)
        held.start()
        while held.is_alive() and agent.poll() is None:
            held.join(0.05)
        agent.send_signal(signal.SIGKILL)
        said = agent.communicate()[1]
        if agent.returncode != -signal.SIGKILL:
            raise DemoFailed(f"The agent ended by itself, with {agent.returncode}: {said.strip()}")
        payments.faults.release()
        self._out.line(Cell("     killed", "bad"), f" (pid {agent.pid}), after the request had arrived")

    def _call_of(self, tool: str) -> dict[str, Any]:
        (call,) = [call for call in self._ask("show", self._run)["tool_calls"] if call["tool"] == tool]
        found: dict[str, Any] = call
        return found

    def _booked(self, payments: ServiceProcess, account: str) -> list[dict[str, Any]]:
        return [line for line in payments.lines() if line["account"] == account]

    def _told(self, payments: ServiceProcess, account: str) -> str:
        return "; ".join(f"line {line['n']}: {json.dumps(line['body'])}" for line in self._booked(payments, account))


def _money(charges: dict[str, str]) -> str:
    return ", ".join(f"{amount} {currency}" for currency, amount in charges.items()) or "nothing"
