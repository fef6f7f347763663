"""A recorded session of an agent, brought in: evidence, a doubt, costs, proof, tampering, erasure."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from refold.cli.output import Cell, Output
from refold.cli.statuses import PROOF_BROKEN
from refold.cli.walks.walk import Walk

_SECRET = "sk-"


class SessionWalk(Walk):
    """What can be known of a run that refold did not execute."""

    def __init__(self, out: Output, folder: Path, session: Path) -> None:
        super().__init__(out, folder)
        self._session = session
        self._run_id = ""
        self._sent = 0

    def run(self) -> None:
        self._out.line(
            "A support agent worked on a ticket, and the session log is all that is left. While a refund was on"
        )
        self._out.line("its way to the payment service, that service went down.")
        self._bring_in()
        self._doubt_and_money()
        self._moment_before()
        self._rebuilt()
        self._proof_and_tampering()
        self._erasure()
        self._out.line()
        self._out.line(
            Cell("Done. ", "good"), "Every line above came from the ledger; no model, tool or network was used."
        )

    def _bring_in(self) -> None:
        self._title("Bring the log in. Importing it twice changes nothing.")
        # Asked twice, once for people and once for programs: the answer is that of the second import.
        answer = self._show("import", "pi", str(self._session))["runs"][0]
        self._run_id = answer["run_id"]
        self._check(not answer["created"] and answer["added"] == 0, "the second import makes no run and adds no event")
        self._check(answer["unanswered"] == 1, "one call has no answer")

    def _doubt_and_money(self) -> None:
        self._title("What happened, what it cost, and what nobody knows.")
        shown = self._show("show", self._run_id, "--steps", "12")
        doubts = [call for call in shown["tool_calls"] if call["status"] == "in_doubt"]
        self._check([call["tool"] for call in doubts] == ["refund"], "the refund is in doubt, and nothing else")
        self._sent = doubts[0]["seq"]
        self._say(
            "The refund was sent and no answer was recorded. refold does not guess: not sent, not paid, but in doubt."
        )
        self._say("Amounts are the log's own digits, added exactly.")
        self._title("Which evidence there is, by thirteen rules.")
        items = self._show("evidence", self._run_id)["evidence_items"]
        by_key = {item["key"]: item["status"] for item in items}
        self._check(by_key["cost_attribution"] == "pass", "every metered call has its cost")
        self._check(by_key["tool_call"] == "fail", "the doubt fails the evidence of the tool calls")

    def _moment_before(self) -> None:
        self._title("The state at any moment: just before the refund was sent.")
        events = self._lines("events", self._run_id)
        before = self._show("show", self._run_id, "--at", str(self._sent - 1), "--steps", "6")
        self._check(
            not any(call["tool"] == "refund" for call in before["tool_calls"]), "the refund was not yet asked for"
        )
        self._say("The log held an API key. Its bytes are kept for a replay; no view, table or export shows it:")
        self._check(_SECRET not in json.dumps([*events, before]), "no view shows the key")
        self._check("[redacted:" in json.dumps(events), "the views say where it stood")

    def _rebuilt(self) -> None:
        self._title("Replay, kind 5 of nine: every table folded again from the events, and compared.")
        self._check(self._show("replay", self._run_id, "--mode", "projection-only")["result"] == "equal", "equal")

    def _proof_and_tampering(self) -> None:
        self._title("The proof that nothing was edited, and what it says when something was.")
        self._check(self._show("verify", "--all")["ok"], "intact")
        copy = self._folder / "demo.db.tampered"
        self._ask("backup", str(copy))
        edited = copy / "ledger.db"
        seq = _edit_one_byte(edited)
        self._say(f"In a copy, one byte of event {seq} is changed with an ordinary SQLite editor:")
        found = self._show("verify", "--all", ledger=edited, status=PROOF_BROKEN)
        self._check(found["first_bad"]["seq"] == seq, f"the first bad place is seq {seq}")
        shutil.rmtree(copy)

    def _erasure(self) -> None:
        self._title("Somebody asks for erasure. What was said goes; that it happened, and the proof, stay.")
        self._print(("cancel", self._run_id, "--basis", "ended for erasure"), None, 0)
        self._show("erase", self._run_id, "--basis", "request 17 of the data protection desk")
        proof = self._show("verify", "--all")
        self._check(proof["ok"] and proof["redacted"] > 0, "intact, with redacted content")
        self._check(self._ask("rebuild")["equal"], "the tables still equal their events")
        left = [
            each.name for each in sorted(self._folder.rglob("*")) if each.is_file() and b"Okafor" in each.read_bytes()
        ]
        self._check(not left, "the customer's name is in no file of the ledger any more")
        self._show("show", self._run_id, "--steps", "3")

    def _named(self, text: str) -> str:
        """The session by its name, not by where the package lies."""
        return text.replace(str(self._session), self._session.name)


def _edit_one_byte(ledger: Path) -> int:
    """What somebody with access to the file could do."""
    import sqlite3

    connection = sqlite3.connect(ledger)
    with connection:
        key, content = connection.execute(
            "SELECT id, content FROM events WHERE type = 'tool.dispatched' ORDER BY id DESC LIMIT 1"
        ).fetchone()
        changed = content[:-9] + bytes([content[-9] ^ 1]) + content[-8:]
        connection.execute("UPDATE events SET content = ? WHERE id = ?", (changed, key))
    connection.close()
    return int(key) & 0xFFFFFFFF
