"""A payment service: `python -m refold.demo.payments --log FILE`.

    POST /charges           Idempotency-Key: KEY, a JSON object    201 {id, status, request}
    GET  /charges?key=KEY                                          200 the same, or 404

The same key gives the first answer again, with another body 422. Under `/accounts/NAME/charges` there are books of
their own, so that many campaigns can share a service. A line of the log: {n, account, key, body, time}, the time in
microseconds since 1970.
"""

from __future__ import annotations

import re
from typing import Any

from refold.clock import Clock, SystemClock
from refold.demo.log import ActLog
from refold.demo.serving import arguments, serve
from refold.demo.wire import Answer, Request

__all__ = ["Payments"]

_CHARGES = re.compile(r"(?:/accounts/(?P<account>[\w.~-]+))?/charges")


class Payments:
    """Charges what it is asked to, once for each key; forgetful, once for each request.

    Killed between the log's line and the answer, it has charged, and says so to whoever asks for the key.
    """

    def __init__(self, log: ActLog, clock: Clock, *, forgetful: bool = False) -> None:
        self._log = log
        self._clock = clock
        self._forgetful = forgetful
        self._first: dict[tuple[str, str], dict[str, Any]] = {}
        for line in log.lines:
            self._remember(line)

    async def answer(self, request: Request) -> Answer:
        place = _CHARGES.fullmatch(request.path)
        if place is None:
            return _error(404, "not_found", "There is no such page.")
        account = place["account"] or ""
        if request.method == "GET":
            return self._find(account, request.query.get("key"))
        if request.method == "POST":
            return self._charge(account, request)
        return _error(405, "method_not_allowed", "Charges are made and found, nothing else.")

    def _find(self, account: str, key: str | None) -> Answer:
        if key is None:
            return _error(400, "key_missing", "Say which key: /charges?key=KEY.")
        line = self._first.get((account, key))
        return _error(404, "no_such_charge", "Nothing was charged under this key.") if line is None else _charged(line)

    def _charge(self, account: str, request: Request) -> Answer:
        body = request.json()
        if not isinstance(body, dict):
            return _error(400, "bad_body", "A charge is a JSON object.")
        key = request.headers.get("idempotency-key")
        known = None if key is None or self._forgetful else self._first.get((account, key))
        if known is None:
            made = {"account": account, "key": key, "body": body, "time": self._clock.now()}
            known = self._log.append(made)
            self._remember(known)
            return _charged(known, status=201)
        if known["body"] != body:
            return _error(422, "key_reused", "This key has charged something else.")
        return _charged(known, status=201)

    def _remember(self, line: dict[str, Any]) -> None:
        if line["key"] is not None:
            self._first.setdefault((line["account"], line["key"]), line)


def _charged(line: dict[str, Any], status: int = 200) -> Answer:
    return Answer.of(status, {"id": f"ch_{line['n']}", "status": "charged", "request": line["body"]})


def _error(status: int, kind: str, message: str) -> Answer:
    return Answer.of(status, {"error": {"type": kind, "message": message}})


def main() -> None:
    parser = arguments("refold.demo.payments", "A payment service on loopback.")
    parser.add_argument("--forgetful", action="store_true", help="ignore keys: a second request charges twice")
    options = parser.parse_args()
    serve(options, lambda log: Payments(log, SystemClock(), forgetful=options.forgetful))


if __name__ == "__main__":
    main()
